"""The source of candidates of kind `social`: a row per message, and lists by place; see `_kernels.candidates.social`.

Cost: tens of nanoseconds and 60 bytes per message, and 8 more for each shard that shares the lists.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast._jit import Arena
from nearcast.model import ScoringContext
from nearcast.model._kernels.profiles import ProfileArrays
from nearcast.model.subscription_columns import KeywordColumns
from nearcast.window._kernels.candidates import social as kernels
from nearcast.window._kernels.params import BufferParams
from nearcast.window._kernels.search import SearchScratch
from nearcast.window.candidates.source import CandidateSource
from nearcast.window.lists import SocialLists, TermLists
from nearcast.window.sliding import SlidingWindow
from nearcast.window.store import NEXT

_NAME = "social"
_USERS = f"{_NAME}.users"


class SocialCandidates(CandidateSource):
    """Term lists with the number of terms beside each message, place lists, and a row per message."""

    begin = staticmethod(kernels.begin)
    publish = staticmethod(kernels.publish)

    def __init__(
        self, arena: Arena, window: SlidingWindow, params: BufferParams, scoring: ScoringContext, *, max_number: int
    ) -> None:
        super().__init__(arena, window, params, scoring, max_number=max_number)
        graph = self._graph = scoring.social
        if _USERS not in arena:
            arena.new(_USERS, np.int32, 0)

        def make(lists_arena: Arena) -> SocialLists:
            return SocialLists(lists_arena, window, params, _NAME, graph=graph, max_number=max_number)

        self._lists = window.follower(_NAME, make)
        self._scratch: dict[str, npt.NDArray[Any]] = {}

    @property
    def lists(self) -> TermLists:
        """The messages of the window by term."""
        return self._lists.terms

    def arrays(self, profiles: ProfileArrays, scratch: SearchScratch) -> kernels.SocialSource:
        """Return the arrays of the source as kernels take them; they change with messages and edges."""
        lists, window = self.lists.arrays, self._window.store.arrays
        return kernels.SocialSource(
            self._params, lists, window, profiles, self._social, scratch,
            self._filters.arrays, self._window.store.rows_for_filters, self.keys,
        )  # fmt: skip

    @property
    def _social(self) -> kernels.SocialArrays:
        self._fit_scratch()
        self._scratch["state"][kernels.END] = self._window.store.state[NEXT]
        rows, places = self._lists.rows, self._lists.places.arrays
        return kernels.SocialArrays(self._graph.arrays, self._arena[_USERS], rows, places, **self._scratch)

    def insert(self, slots: npt.NDArray[np.int32], columns: KeywordColumns) -> None:
        """Insert the users of subscriptions."""
        numbers = self._graph.users
        users = self._arena.grow(_USERS, int(slots.max()) + 1)
        users[slots] = [numbers[user] for user in columns.users if user is not None]

    def _fit_scratch(self) -> None:
        """Make the scratch arrays as long as the graph and the window require."""
        n_places, n_users, n_rows = len(self._graph.places), len(self._graph.users), len(self._lists.rows)
        scratch = self._scratch
        fits = scratch and len(scratch["scores"]) >= n_places and len(scratch["counts"]) >= n_users
        if not fits or len(scratch["marks"]) != n_rows:
            self._scratch = {
                "state": np.zeros(4, np.int64),
                "marks": np.zeros(n_rows, np.int64),
                "scores": np.zeros(n_places),
                "close_places": np.zeros(n_places, np.int32),
                "counts": np.zeros(n_users, np.int32),
                "others": np.zeros(n_users, np.int32),
            }
