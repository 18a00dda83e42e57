"""The source of candidates of kind `topk`: messages that share a term; see `_kernels.candidates.terms`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nearcast._jit import Arena
from nearcast.model import ScoringContext
from nearcast.model._kernels.profiles import ProfileArrays
from nearcast.model.subscription_columns import KeywordColumns
from nearcast.window._kernels.candidates import terms as kernels
from nearcast.window._kernels.params import BufferParams
from nearcast.window._kernels.search import SearchScratch
from nearcast.window.candidates.source import CandidateSource
from nearcast.window.lists import TermLists
from nearcast.window.sliding import SlidingWindow

_NAME = "topk"


class TermCandidates(CandidateSource):
    """Term lists, with the weight of the heaviest term beside each message."""

    begin = staticmethod(kernels.begin)
    publish = staticmethod(kernels.publish)

    def __init__(
        self, arena: Arena, window: SlidingWindow, params: BufferParams, scoring: ScoringContext, *, max_number: int
    ) -> None:
        super().__init__(arena, window, params, scoring, max_number=max_number)

        def make(lists_arena: Arena) -> TermLists:
            append = kernels.append_messages
            return TermLists(lists_arena, window, params, _NAME, append_messages=append, max_number=max_number)

        self._lists = window.follower(_NAME, make)
        self._sums = np.zeros(0)

    @property
    def lists(self) -> TermLists:
        """The messages of the window by term."""
        return self._lists

    def insert(self, slots: npt.NDArray[np.int32], columns: KeywordColumns) -> None:
        """Do nothing: the search reads profiles only."""

    def arrays(self, profiles: ProfileArrays, scratch: SearchScratch) -> kernels.TermSource:
        """Return the arrays of the source as kernels take them; they change with messages."""
        lists, window = self._lists.arrays, self._window.store.arrays
        return kernels.TermSource(
            self._params, lists, window, profiles, self._lists.signatures, scratch,
            self._filters.arrays, self._window.store.rows_for_filters, self.keys, self._fit_sums(),
        )  # fmt: skip

    def _fit_sums(self) -> npt.NDArray[np.float64]:
        """Return the sums of weights, as many as signatures; a search leaves all of them 0."""
        if len(self._sums) != len(self._lists.signatures):
            self._sums = np.zeros(len(self._lists.signatures))
        return self._sums
