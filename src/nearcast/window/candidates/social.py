"""The source of candidates of kind `social`: a row per message, and lists by place; see `_kernels.candidates.social`.

Places are those of the social graph, by number. A place that becomes known later may have messages in the window
already, and a ring that doubles changes the position of all messages: rows are then written again.

Cost: tens of nanoseconds and 80 bytes per message.
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
from nearcast.window._kernels.horizon import Horizon
from nearcast.window._kernels.params import BufferParams
from nearcast.window._kernels.search import SearchScratch
from nearcast.window.candidates.source import CandidateSource
from nearcast.window.lists import PlaceLists
from nearcast.window.sliding import SlidingWindow
from nearcast.window.store import FIRST, NEXT

_PREFIX = "social"


class SocialCandidates(CandidateSource):
    """Term lists with the number of terms beside each message, place lists, and a row per message."""

    append_messages = staticmethod(kernels.append_messages)
    begin = staticmethod(kernels.begin)
    publish = staticmethod(kernels.publish)

    def __init__(self, arena: Arena, window: SlidingWindow, params: BufferParams, scoring: ScoringContext) -> None:
        super().__init__(arena, window, params, scoring)
        self._arena, self._graph = arena, scoring.social
        if f"{_PREFIX}.state" not in arena:
            with arena.together():
                arena.new(f"{_PREFIX}.users", np.int32, 0)
                arena.new(f"{_PREFIX}.rows", np.int64, 0, columns=kernels.ROW)
                arena.new(f"{_PREFIX}.state", np.int64, 4)
        self._places = PlaceLists(arena, window, params, rows=f"{_PREFIX}.rows")
        self._scratch: dict[str, npt.NDArray[Any]] = {}
        self._fit_scratch()
        self._catch_up_rows(int(window.store.state[FIRST]))

    def arrays(self, profiles: ProfileArrays, scratch: SearchScratch) -> kernels.SocialSource:
        """Return the arrays of the source as kernels take them; they change with messages and edges."""
        lists, window = self._lists.arrays, self._window.store.arrays
        return kernels.SocialSource(self._params, lists, window, profiles, self._social, scratch)

    @property
    def _social(self) -> kernels.SocialArrays:
        users, rows, state = (self._array(name) for name in ("users", "rows", "state"))
        return kernels.SocialArrays(self._graph.arrays, users, rows, self._places.arrays, state, **self._scratch)

    def insert(self, slots: npt.NDArray[np.int32], columns: KeywordColumns) -> None:
        """Insert the users of subscriptions, and add places that are known by now."""
        numbers = self._graph.users
        users = self._arena.grow(f"{_PREFIX}.users", int(slots.max()) + 1)
        users[slots] = [numbers[user] for user in columns.users if user is not None]
        self._catch_up_rows(int(self._window.store.state[FIRST]))

    def catch_up(self, first: int) -> None:
        """Append the messages that were added to the window, or whose place became known, since the last call."""
        super().catch_up(first)
        self._catch_up_rows(first)

    def _catch_up_rows(self, first: int) -> None:
        store, state = self._window.store, self._array("state")
        n_rows, n_places, start = len(store.arrays.seqs), len(self._graph.places), int(state[kernels.NEXT_ROW])
        places_changed = n_places != state[kernels.N_PLACES]
        if len(self._array("rows")) != n_rows or places_changed:
            self._arena.renew(f"{_PREFIX}.rows", n_rows)
            state = self._array("state")
            state[kernels.N_PLACES], start = n_places, first
        self._fit_scratch()
        places = self._graph.number_places(store.places(np.arange(max(start, first), int(store.state[NEXT]))))
        signatures = self._lists.signatures
        kernels.write_rows(self._params, store.arrays, signatures, self._social, max(start, first), places)
        if places_changed:
            self._places.rebuild(first)
        self._places.catch_up(first)

    def drop(self, leaving: npt.NDArray[np.int64], horizon: Horizon) -> None:
        """Remove expired messages from the lists."""
        super().drop(leaving, horizon)
        self._places.drop(leaving, horizon)

    def move_base(self, by: int) -> None:
        """Add to the base, and subtract the same from all numbers."""
        super().move_base(by)
        self._places.move_base(by)

    def _fit_scratch(self) -> None:
        """Make the scratch arrays as long as the graph requires."""
        n_places, n_users = len(self._graph.places), len(self._graph.users)
        if not self._scratch or len(self._scratch["scores"]) < n_places or len(self._scratch["counts"]) < n_users:
            self._array("state")[kernels.N_CLOSE] = 0
            self._scratch = {
                "scores": np.zeros(n_places),
                "close_places": np.zeros(n_places, np.int32),
                "counts": np.zeros(n_users, np.int32),
                "others": np.zeros(n_users, np.int32),
            }

    def _array(self, name: str) -> npt.NDArray[Any]:
        return self._arena[f"{_PREFIX}.{name}"]
