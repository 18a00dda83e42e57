"""Lists of the messages of a window by term and by place, built as messages arrive; see `_kernels.lists`.

They follow the window (see `sliding`), and all shards that share a window read the same lists.

Cost: tens of nanoseconds and 16 bytes per term of a message, and 16 bytes per bucket, of which there are about as
many as messages: buckets and the rings beside them are rebuilt when the window doubles.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast._jit import Arena
from nearcast.model._kernels import blocks
from nearcast.social import SocialGraph
from nearcast.window._kernels import lists as kernels
from nearcast.window._kernels import search
from nearcast.window._kernels.candidates import social
from nearcast.window._kernels.horizon import Horizon
from nearcast.window._kernels.params import BufferParams
from nearcast.window.sliding import SlidingWindow, Steps
from nearcast.window.store import FIRST, HORIZON, NEXT

_LEAST = 1 << 10
MAX_NUMBER = 1 << 30  # numbers beyond this move the base
_POSTINGS_PER_BUCKET = 8


class MessageLists(ABC):
    """Lists of messages by a key, in an arena; an arena that holds them already is continued."""

    def __init__(
        self, arena: Arena, window: SlidingWindow, params: BufferParams, prefix: str, *, max_number: int = MAX_NUMBER
    ) -> None:
        self._arena, self._window, self._params, self._prefix = arena, window, params, prefix
        self._max_number = max_number
        if f"{prefix}.counts" not in arena:
            with arena.together():
                arena.new(f"{prefix}.buckets", np.int32, _LEAST, -1, columns=4)[:, kernels.EDGES :] = 0
                arena.new(f"{prefix}.items", np.int64, 0)
                arena.new(f"{prefix}.state", np.int64, blocks.STATE)[blocks.FIRST :] = -1
                arena.new(f"{prefix}.counts", np.int64, 4)[kernels.LISTED] = window.store.state[FIRST]
                arena.new(f"{prefix}.spots", np.int64, 0)

    @property
    def arrays(self) -> kernels.ListArrays:
        """The lists as kernels take them; they change when messages are added."""
        return self._arena.bundle(self._prefix, kernels.ListArrays)

    @property
    def base(self) -> int:
        """The number that stored numbers are relative to."""
        return int(self._array("counts")[kernels.BASE])

    def _move_base(self, first: int) -> None:
        """Make numbers relative to the first, before they grow too large."""
        by = first - self.base
        if by > 0 and int(self._window.store.state[NEXT]) - self.base > self._max_number:
            kernels.move_base(self.arrays, by)

    def _extend(self, first: int, n_postings: int) -> None:
        """Append the messages added since the last call, given an estimate of their postings."""
        self._move_base(first)
        done, stop = int(self._array("counts")[kernels.LISTED]), int(self._window.store.state[NEXT])
        n_postings += int(self._array("counts")[kernels.N_POSTINGS])
        if len(self._array("buckets")) * _POSTINGS_PER_BUCKET < n_postings:
            self._rebuild(first, done, n_buckets=1 << (n_postings // _POSTINGS_PER_BUCKET).bit_length())
        self._append(done, stop)

    @abstractmethod
    def _append_some(self, start: int, stop: int) -> int:
        """Append messages; return the first for which there was no room."""

    def _append(self, start: int, stop: int) -> None:
        done = self._append_some(start, stop)
        while done < stop:
            state = self._array("state")
            self._arena.grow_all(
                [f"{self._prefix}.{name}" for name in ("items", "spots")],
                int(state[blocks.USED] + state[blocks.NEEDED]),
            )
            done = self._append_some(done, stop)

    def _rebuild(self, first: int, done: int, *, n_buckets: int) -> None:
        """Build the lists of the live messages again, with a number of buckets."""
        with self._arena.together():
            buckets = self._arena.renew(f"{self._prefix}.buckets", n_buckets)
            buckets[:, kernels.EDGES :] = 0
            state = self._array("state")
            state[: blocks.FIRST], state[blocks.FIRST :] = 0, -1
            self._array("counts")[kernels.N_POSTINGS] = 0
        self._append(first, done)

    def _horizon(self, steps: Steps) -> Horizon:
        """Return which messages are alive after some steps."""
        store = self._window.store
        return Horizon(int(store.state[FIRST]), store.keys, int(store.state[HORIZON]), steps.in_order)

    def _array(self, name: str) -> npt.NDArray[Any]:
        return self._arena[f"{self._prefix}.{name}"]


class TermLists(MessageLists):
    """The messages of a window by term."""

    def __init__(
        self,
        arena: Arena,
        window: SlidingWindow,
        params: BufferParams,
        prefix: str,
        *,
        append_messages: Callable[..., int],
        max_number: int = MAX_NUMBER,
    ) -> None:
        """Start or continue lists; `append_messages` is the kernel of a source of candidates."""
        super().__init__(arena, window, params, prefix, max_number=max_number)
        self._append_messages = append_messages
        if f"{prefix}.signatures" not in arena:
            arena.new(f"{prefix}.signatures", np.int64, 0)
        self.catch_up(int(window.store.state[FIRST]))

    @property
    def signatures(self) -> npt.NDArray[np.int64]:
        """A bit per term of each message, by number modulo the size, which is that of the window's rings."""
        return self._array("signatures")

    def catch_up(self, first: int) -> None:
        """Append the messages that were added to the window since the last call; `first` is the first live one."""
        store = self._window.store
        window, done, stop = store.arrays, int(self._array("counts")[kernels.LISTED]), int(store.state[NEXT])
        n_signed = done
        if len(self.signatures) != len(window.seqs):
            self._arena.renew(f"{self._prefix}.signatures", len(window.seqs))
            n_signed = first
        search.sign_messages(window, self.signatures, n_signed, stop)
        self._extend(first, int(store.of("n_terms", np.arange(done, stop)).sum()))

    def drop(self, steps: Steps) -> None:
        """Remove the messages that expired at some steps."""
        kernels.drop_messages(self.arrays, self._window.store.arrays, steps.leaving, self._horizon(steps))

    def _append_some(self, start: int, stop: int) -> int:
        window = self._window.store.arrays
        return int(self._append_messages(self._params, self.arrays, window, start, stop))


class PlaceLists(MessageLists):
    """The messages of a window by the place that published them, given the array of rows with their places."""

    def __init__(
        self,
        arena: Arena,
        window: SlidingWindow,
        params: BufferParams,
        prefix: str,
        *,
        rows: str,
        max_number: int = MAX_NUMBER,
    ) -> None:
        super().__init__(arena, window, params, prefix, max_number=max_number)
        self._rows_name = rows

    @property
    def _rows(self) -> npt.NDArray[np.int64]:
        return self._arena[self._rows_name]

    def catch_up(self, first: int) -> None:
        """Append the messages whose rows were written since the last call."""
        self._extend(first, int(self._window.store.state[NEXT]) - int(self._array("counts")[kernels.LISTED]))

    def rebuild(self, first: int) -> None:
        """Build all lists again, since more places are known."""
        self._rebuild(first, int(self._array("counts")[kernels.LISTED]), n_buckets=len(self._array("buckets")))

    def drop(self, steps: Steps) -> None:
        """Remove the messages that expired at some steps."""
        social.drop_places(self.arrays, self._rows, steps.leaving, self._horizon(steps))

    def _append_some(self, start: int, stop: int) -> int:
        return int(social.append_places(self.arrays, self._rows, start, stop))


class SocialLists:
    """The messages of a window by term and by place, with a row per message.

    Places are those of the social graph, by number. A place that becomes known later may have messages in the window
    already, and a ring that doubles changes the position of all messages: rows are then written again.
    """

    def __init__(
        self,
        arena: Arena,
        window: SlidingWindow,
        params: BufferParams,
        prefix: str,
        *,
        graph: SocialGraph,
        max_number: int = MAX_NUMBER,
    ) -> None:
        self._arena, self._window, self._params, self._graph = arena, window, params, graph
        self._rows_name, self._state_name = f"{prefix}.rows", f"{prefix}.state"
        if self._state_name not in arena:
            with arena.together():
                arena.new(self._rows_name, np.int64, 0, columns=social.ROW)
                arena.new(self._state_name, np.int64, 2)
        self.terms = TermLists(
            arena, window, params, f"{prefix}.terms", append_messages=social.append_messages, max_number=max_number
        )
        self.places = PlaceLists(
            arena, window, params, f"{prefix}.places", rows=self._rows_name, max_number=max_number
        )
        self.catch_up(int(window.store.state[FIRST]))

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """What a search reads of each message, by number modulo their size; see the kernels."""
        return self._arena[self._rows_name]

    def catch_up(self, first: int) -> None:
        """Append the messages that were added to the window, or whose place became known, since the last call."""
        self.terms.catch_up(first)
        store, state = self._window.store, self._arena[self._state_name]
        n_rows, n_places, start = len(store.arrays.seqs), len(self._graph.places), int(state[social.NEXT_ROW])
        places_changed = n_places != state[social.N_PLACES]
        if len(self.rows) != n_rows or places_changed:
            self._arena.renew(self._rows_name, n_rows)
            state = self._arena[self._state_name]
            state[social.N_PLACES], start = n_places, first
        start, stop = max(start, first), int(store.state[NEXT])
        places = self._graph.number_places(store.places(np.arange(start, stop)))
        social.write_rows(self._params, store.arrays, self.terms.signatures, self.rows, start, places)
        state[social.NEXT_ROW] = stop
        if places_changed:
            self.places.rebuild(first)
        self.places.catch_up(first)

    def drop(self, steps: Steps) -> None:
        """Remove the messages that expired at some steps."""
        self.terms.drop(steps)
        self.places.drop(steps)
