"""Which messages of the window hold a term, or come from a place? Lists, made as messages come; see `_kernels.lists`.

Cost: some ten nanoseconds and 16 bytes a term of a message, and 16 bytes a bucket, of which there are about as
many as messages: buckets and the rings beside them are made anew when the window doubles.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast._jit import Arena
from nearcast.model._kernels import blocks
from nearcast.window._kernels import lists as kernels
from nearcast.window._kernels import search, social_window
from nearcast.window._kernels.params import BufferParams
from nearcast.window.sliding import SlidingWindow
from nearcast.window.store import FIRST, HORIZON, NEXT

_LEAST = 1 << 10
_POSTINGS_A_BUCKET = 8


class MessageLists(ABC):
    """Lists of messages by some key, in an arena; opened again if it holds them already."""

    def __init__(self, arena: Arena, window: SlidingWindow, params: BufferParams, prefix: str) -> None:
        self._arena, self._window, self._make_params, self._prefix = arena, window, params, prefix
        if f"{prefix}.counts" not in arena:
            with arena.together():
                arena.new(f"{prefix}.buckets", np.int32, _LEAST, -1, columns=4)[:, kernels.EDGES :] = 0
                arena.new(f"{prefix}.items", np.int64, 0)
                arena.new(f"{prefix}.state", np.int64, blocks.STATE)[blocks.FIRST :] = -1
                arena.new(f"{prefix}.counts", np.int64, 4)[kernels.LISTED] = window.store.state[FIRST]
                arena.new(f"{prefix}.spots", np.int64, 0)

    @property
    def arrays(self) -> kernels.ListArrays:
        """The lists as kernels take them; others after messages came."""
        return self._arena.bundle(self._prefix, kernels.ListArrays)

    @property
    def base(self) -> int:
        """What numbers are relative to."""
        return int(self._array("counts")[kernels.BASE])

    def move_base(self, by: int) -> None:
        """Count numbers from a later one on."""
        kernels.move_base(self.arrays, by)

    def _take(self, first: int, n_postings: int) -> None:
        """Put messages on their lists that came since; they bring about so many postings."""
        done, stop = int(self._array("counts")[kernels.LISTED]), int(self._window.store.state[NEXT])
        n_postings += int(self._array("counts")[kernels.N_POSTINGS])
        if len(self._array("buckets")) * _POSTINGS_A_BUCKET < n_postings:
            self._begin_anew(first, done, n_buckets=1 << (n_postings // _POSTINGS_A_BUCKET).bit_length())
        self._append(done, stop)

    @abstractmethod
    def _put(self, start: int, stop: int) -> int:
        """Put messages on their lists; return the first for which there was no room."""

    def _append(self, start: int, stop: int) -> None:
        done = self._put(start, stop)
        while done < stop:
            state = self._array("state")
            self._arena.grow_all(
                [f"{self._prefix}.{name}" for name in ("items", "spots")],
                int(state[blocks.USED] + state[blocks.NEEDED]),
            )
            done = self._put(done, stop)

    def _begin_anew(self, first: int, done: int, *, n_buckets: int) -> None:
        """Make lists anew, in so many buckets, of the messages that are alive."""
        with self._arena.together():
            buckets = self._arena.renew(f"{self._prefix}.buckets", n_buckets)
            buckets[:, kernels.EDGES :] = 0
            state = self._array("state")
            state[: blocks.FIRST], state[blocks.FIRST :] = 0, -1
            self._array("counts")[kernels.N_POSTINGS] = 0
        self._append(first, done)

    def _array(self, name: str) -> npt.NDArray[Any]:
        return self._arena[f"{self._prefix}.{name}"]


class TermLists(MessageLists):
    """The messages of a window by their terms."""

    def __init__(self, arena: Arena, window: SlidingWindow, params: BufferParams) -> None:
        super().__init__(arena, window, params, "lists")
        if "lists.signs" not in arena:
            arena.new("lists.signs", np.int64, 0)
        self.catch_up(int(window.store.state[FIRST]))

    @property
    def signs(self) -> npt.NDArray[np.int64]:
        """A bit for each term of messages, by number modulo their size, which is that of the window."""
        return self._array("signs")

    def catch_up(self, first: int) -> None:
        """Put messages on their lists that came to the window since; who is before the first is not asked for."""
        store = self._window.store
        window, done, stop = store.arrays, int(self._array("counts")[kernels.LISTED]), int(store.state[NEXT])
        signed = done
        if len(self.signs) != len(window.seqs):
            self._arena.renew("lists.signs", len(window.seqs))
            signed = first
        search.sign_messages(window, self.signs, signed, stop)
        self._take(first, int(store.of("n_terms", np.arange(done, stop)).sum()))

    def drop(self, leaving: npt.NDArray[np.int64], keys: npt.NDArray[np.int64], *, in_order: bool) -> None:
        """Take messages off their lists that have left."""
        store = self._window.store
        first, horizon = int(store.state[FIRST]), int(store.state[HORIZON])
        kernels.drop_messages(self.arrays, store.arrays, leaving, first, keys, horizon, in_order)

    def _put(self, start: int, stop: int) -> int:
        return int(kernels.append_messages(self._make_params, self.arrays, self._window.store.arrays, start, stop))


class PlaceLists(MessageLists):
    """The messages of a window by the place that published them; see `friends` for how rows come about."""

    def __init__(self, arena: Arena, window: SlidingWindow, params: BufferParams) -> None:
        super().__init__(arena, window, params, "places")

    @property
    def _rows(self) -> npt.NDArray[np.int64]:
        return self._arena["friends.rows"]

    def catch_up(self, first: int) -> None:
        """Put messages on their lists whose rows are written by now."""
        self._take(first, int(self._window.store.state[NEXT]) - int(self._array("counts")[kernels.LISTED]))

    def begin_anew(self, first: int) -> None:
        """Make all lists anew: more places are known."""
        self._begin_anew(first, int(self._array("counts")[kernels.LISTED]), n_buckets=len(self._array("buckets")))

    def drop(self, leaving: npt.NDArray[np.int64], keys: npt.NDArray[np.int64], *, in_order: bool) -> None:
        """Take messages off their lists that have left."""
        state = self._window.store.state
        first, horizon = int(state[FIRST]), int(state[HORIZON])
        social_window.drop_places(self.arrays, self._rows, leaving, first, keys, horizon, in_order)

    def _put(self, start: int, stop: int) -> int:
        return int(social_window.append_places(self.arrays, self._rows, start, stop))
