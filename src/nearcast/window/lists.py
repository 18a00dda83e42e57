"""Which messages of the window hold a term? The lists of a window, made as messages come; see `_kernels.lists`.

Cost: some ten nanoseconds and 16 bytes a term of a message, and 16 bytes a bucket, of which there are about as
many as messages: buckets and the rings beside them are made anew when the window doubles.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast._jit import Arena
from nearcast.model._kernels import blocks
from nearcast.window._kernels import lists as kernels
from nearcast.window._kernels import search
from nearcast.window._kernels.world import World
from nearcast.window.sliding import SlidingWindow
from nearcast.window.store import FIRST, HORIZON, NEXT

_PREFIX = "lists"
_LEAST = 1 << 10
_POSTINGS_A_BUCKET = 8


class Lists:
    """The lists of one window, in an arena; opened again if it holds them already."""

    def __init__(self, arena: Arena, window: SlidingWindow, world: World) -> None:
        self._arena, self._window, self._world = arena, window, world
        if f"{_PREFIX}.counts" not in arena:
            with arena.together():
                arena.new(f"{_PREFIX}.buckets", np.int32, _LEAST, -1, columns=4)[:, kernels.EDGES :] = 0
                arena.new(f"{_PREFIX}.items", np.int64, 0)
                arena.new(f"{_PREFIX}.state", np.int64, blocks.STATE)[blocks.FIRST :] = -1
                arena.new(f"{_PREFIX}.counts", np.int64, 4)[kernels.LISTED] = window.store.state[FIRST]
                arena.new(f"{_PREFIX}.spots", np.int64, 0)
                arena.new(f"{_PREFIX}.signs", np.int64, 0)
        self.catch_up(int(window.store.state[FIRST]))

    @property
    def arrays(self) -> kernels.ListArrays:
        """The lists as kernels take them; others after messages came."""
        return self._arena.bundle(_PREFIX, kernels.ListArrays)

    @property
    def signs(self) -> npt.NDArray[np.int64]:
        """A bit for each term of messages, by number modulo their size, which is that of the window."""
        return self._array("signs")

    @property
    def base(self) -> int:
        """What numbers are relative to."""
        return int(self._array("counts")[kernels.BASE])

    def catch_up(self, first: int) -> None:
        """Put messages on their lists that came to the window since; who is before the first is not asked for."""
        store = self._window.store
        window, done, stop = store.arrays, int(self._array("counts")[kernels.LISTED]), int(store.state[NEXT])
        n_places = len(window.seqs)
        signed = done
        if len(self.signs) != n_places:
            self._arena.renew(f"{_PREFIX}.signs", n_places)
            signed = first
        search.sign_messages(window, self.signs, signed, stop)
        coming = int(store.of("n_terms", np.arange(done, stop)).sum())
        n_postings = int(self._array("counts")[kernels.N_POSTINGS]) + coming
        if len(self._array("buckets")) * _POSTINGS_A_BUCKET < n_postings:
            self._widen(first, done, n_buckets=1 << (n_postings // _POSTINGS_A_BUCKET).bit_length())
        self._append(done, stop)

    def drop(self, leaving: npt.NDArray[np.int64], keys: npt.NDArray[np.int64], *, in_order: bool) -> None:
        """Take messages off their lists that have left."""
        store = self._window.store
        first, horizon = int(store.state[FIRST]), int(store.state[HORIZON])
        kernels.drop_messages(self.arrays, store.arrays, leaving, first, keys, horizon, in_order)

    def move_base(self, by: int) -> None:
        """Count numbers from a later one on."""
        kernels.move_base(self.arrays, by)

    def _append(self, start: int, stop: int) -> None:
        window = self._window.store.arrays
        done = kernels.append_messages(self._world, self.arrays, window, start, stop)
        while done < stop:
            state = self._array("state")
            self._arena.grow_all(
                [f"{_PREFIX}.{name}" for name in ("items", "spots")], int(state[blocks.USED] + state[blocks.NEEDED])
            )
            done = kernels.append_messages(self._world, self.arrays, window, done, stop)

    def _widen(self, first: int, done: int, *, n_buckets: int) -> None:
        """Make buckets anew, and more of them, of the messages that are alive."""
        with self._arena.together():
            buckets = self._arena.renew(f"{_PREFIX}.buckets", n_buckets)
            buckets[:, kernels.EDGES :] = 0
            state = self._array("state")
            state[: blocks.FIRST], state[blocks.FIRST :] = 0, -1
            self._array("counts")[kernels.N_POSTINGS] = 0
        self._append(first, done)

    def _array(self, name: str) -> npt.NDArray[Any]:
        return self._arena[f"{_PREFIX}.{name}"]
