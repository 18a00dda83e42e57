"""The source of candidates of kind `topk`: messages that share a term; see `_kernels.candidates.terms`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nearcast.model._kernels.profiles import ProfileArrays
from nearcast.model.subscription_columns import KeywordColumns
from nearcast.window._kernels.candidates import terms as kernels
from nearcast.window._kernels.search import SearchScratch
from nearcast.window.candidates.source import CandidateSource


class TermCandidates(CandidateSource):
    """Term lists, with the weight of the heaviest term beside each message."""

    append_messages = staticmethod(kernels.append_messages)
    begin = staticmethod(kernels.begin)
    publish = staticmethod(kernels.publish)

    def insert(self, slots: npt.NDArray[np.int32], columns: KeywordColumns) -> None:
        """Do nothing: the search reads profiles only."""

    def arrays(self, profiles: ProfileArrays, scratch: SearchScratch) -> kernels.TermSource:
        """Return the arrays of the source as kernels take them; they change with messages."""
        lists, window = self._lists.arrays, self._window.store.arrays
        return kernels.TermSource(self._params, lists, window, profiles, self._lists.signatures, scratch)
