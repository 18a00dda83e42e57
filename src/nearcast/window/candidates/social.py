"""What does a window know of places and friends? A row a message, and lists by place; see `_kernels.friends`.

Places are those of the social graph, by number. One that becomes known later may have published before, and a ring
that doubles has other places for everyone: rows are then written anew.

Cost: some tens of nanoseconds and 80 bytes a message.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast._jit import Arena
from nearcast.model.subscription_columns import KeywordColumns
from nearcast.social import SocialGraph
from nearcast.window._kernels import social_window as kernels
from nearcast.window._kernels.params import BufferParams
from nearcast.window.lists import PlaceLists
from nearcast.window.sliding import SlidingWindow
from nearcast.window.store import NEXT

_PREFIX = "friends"


class SocialWindow:
    """The rows of one window, in an arena; opened again if it holds them already."""

    def __init__(self, arena: Arena, window: SlidingWindow, params: BufferParams, graph: SocialGraph) -> None:
        self._arena, self._window, self._make_params = arena, window, params
        self._graph = graph
        if f"{_PREFIX}.state" not in arena:
            with arena.together():
                arena.new(f"{_PREFIX}.users", np.int32, 0)
                arena.new(f"{_PREFIX}.rows", np.int64, 0, columns=kernels.ROW)
                arena.new(f"{_PREFIX}.state", np.int64, 4)
        self._array("state")[kernels.N_MET] = 0
        self._lists = PlaceLists(arena, window, params)
        self._scores = np.zeros(0)
        self._room: dict[str, npt.NDArray[np.int32]] = {}
        if params.is_social:
            self._make_room()
        else:
            self._room = {name: np.zeros(0, np.int32) for name in ("met", "counts", "others")}

    @property
    def arrays(self) -> kernels.SocialWindowArrays:
        """The rows as kernels take them; others after messages came, or edges changed."""
        users, rows, state = (self._array(name) for name in ("users", "rows", "state"))
        graph = self._graph.arrays if self._make_params.is_social else kernels.NO_GRAPH
        return kernels.SocialWindowArrays(graph, users, rows, self._lists.arrays, state, self._scores, **self._room)

    def insert(self, slots: npt.NDArray[np.int32], subscription_columns: KeywordColumns) -> None:
        """Write down whose subscriptions these are."""
        if self._make_params.is_social:
            known = self._graph.users
            users = self._arena.grow(f"{_PREFIX}.users", int(slots.max()) + 1)
            users[slots] = [known[user] for user in subscription_columns.users if user is not None]

    def catch_up(self, first: int, signs: npt.NDArray[np.int64]) -> None:
        """Write rows of messages that came to the window since; who is before the first is not asked for."""
        if not self._make_params.is_social:
            return
        store, state = self._window.store, self._array("state")
        n_rows, n_places, start = len(store.arrays.seqs), len(self._graph.places), int(state[kernels.NOTED])
        knows_more = n_places != state[kernels.KNOWN]
        if len(self._array("rows")) != n_rows or knows_more:
            self._arena.renew(f"{_PREFIX}.rows", n_rows)
            state = self._array("state")
            state[kernels.KNOWN], start = n_places, first
        self._make_room()
        places = self._graph.number_places(store.places(np.arange(max(start, first), int(store.state[NEXT]))))
        kernels.note_messages(self._make_params, store.arrays, signs, self.arrays, max(start, first), places)
        if knows_more:
            self._lists.begin_anew(first)
        self._lists.catch_up(first)

    def drop(self, leaving: npt.NDArray[np.int64], keys: npt.NDArray[np.int64], *, in_order: bool) -> None:
        """Take messages off their lists that have left."""
        if self._make_params.is_social:
            self._lists.drop(leaving, keys, in_order=in_order)

    def move_base(self, by: int) -> None:
        """Count numbers from a later one on."""
        self._lists.move_base(by)

    def _make_room(self) -> None:
        """Let there be room for what the graph has by now."""
        n_places, n_users = len(self._graph.places), len(self._graph.users)
        if not self._room or len(self._scores) < n_places or len(self._room["counts"]) < n_users:
            self._array("state")[kernels.N_MET] = 0
            self._scores = np.zeros(n_places)
            lengths = {"met": n_places, "counts": n_users, "others": n_users}
            self._room = {name: np.zeros(length, np.int32) for name, length in lengths.items()}

    def _array(self, name: str) -> npt.NDArray[Any]:
        return self._arena[f"{_PREFIX}.{name}"]
