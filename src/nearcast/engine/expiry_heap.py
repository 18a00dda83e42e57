"""What expires by a time of its own: a heap of times, the earliest first, in an arena.

The value of an entry is the seq of a message, or the slot of a subscription. An entry is never changed. What has gone
before its time stays until the time comes, or until there are twice as many entries as the last time; then the owner
of the heap is asked what is left.

Cost: 16 bytes per entry, and tens of nanoseconds to add or remove one; while nothing expires, one comparison.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast._jit import Arena, column
from nearcast.engine._kernels import expiry_heap as kernels
from nearcast.model import NEVER

Longs = npt.NDArray[np.int64]

_COUNT, _LEFT = 0, 1  # positions in the state
_LEAST = 1 << 10  # fewer entries than this are not worth a search for those that are gone
_AT_ONCE = 1 << 10


class Due(NamedTuple):
    """Entries whose time has come, in the order of time."""

    times_us: Longs
    values: Longs


class ExpiryHeap:
    """Times and values, in an arena; an arena that holds them already is continued.

    >>> heap = ExpiryHeap(Arena(), "expiries")
    >>> heap.push(np.array([30, 10, 20]), np.array([7, 8, 9]))
    >>> heap.first_us, heap.pop(20).values.tolist(), heap.first_us
    (10, [8, 9], 30)
    """

    def __init__(self, arena: Arena, prefix: str) -> None:
        self._arena, self._prefix = arena, prefix
        if f"{prefix}.state" not in arena:
            with arena.together():
                arena.new(f"{prefix}.times", np.int64, 1, NEVER)
                arena.new(f"{prefix}.values", np.int64, 1)
                arena.new(f"{prefix}.state", np.int64, 2)

    def __len__(self) -> int:
        return int(self._arena[f"{self._prefix}.state"][_COUNT])

    @property
    def first_us(self) -> int:
        """The earliest time, NEVER if there is none."""
        return int(self._arena[f"{self._prefix}.times"][0]) if len(self) else NEVER

    @property
    def may_be_dropped(self) -> bool:
        """True if there are twice as many entries as when some were last dropped."""
        state = self._arena[f"{self._prefix}.state"]
        return bool(state[_COUNT] >= max(_LEAST, 2 * int(state[_LEFT])))

    @property
    def entries(self) -> Due:
        """All entries, in no order."""
        times, values, _ = self._arrays
        return Due(times[: len(self)].copy(), values[: len(self)].copy())

    def push(self, times_us: Longs, values: Longs) -> None:
        """Add entries."""
        room = len(self) + len(times_us)
        self._arena.grow_all([f"{self._prefix}.{name}" for name in ("times", "values")], room)
        kernels.push(self._arrays, column(times_us, np.int64), column(values, np.int64))

    def pop(self, until_us: int) -> Due:
        """Remove and return the entries up to a time."""
        parts: list[tuple[Longs, Longs]] = []
        while self.first_us <= until_us:
            times, values = np.empty(_AT_ONCE, np.int64), np.empty(_AT_ONCE, np.int64)
            n = kernels.pop(self._arrays, until_us, times, values)
            parts.append((times[:n], values[:n]))
        none = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        return Due(*(np.concatenate(columns) for columns in zip(none, *parts, strict=True)))

    def keep(self, are_left: npt.NDArray[np.bool_]) -> None:
        """Drop all but some of the entries, given in their order."""
        times, values = self.entries
        state = self._arena[f"{self._prefix}.state"]
        state[_COUNT] = 0
        self.push(times[are_left], values[are_left])
        state[_LEFT] = len(self)

    @property
    def _arrays(self) -> kernels.HeapArrays:
        return self._arena.bundle(self._prefix, kernels.HeapArrays)
