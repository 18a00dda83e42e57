"""How do millions of slots become ids in a table? By short strings in records of sixteen bytes, one read each.

    records   slot -> | c o f f e e - 7 | . . . . . . . 8 |        fifteen bytes and the length; 255: too long

A table of updates names a subscription in every row, at random places among millions: a string of an Arrow column
costs three reads there, a record one. Records are made for those who are asked for, when the first large table is.
An id that is too long sends the whole table the slower way, through the roster.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.engine.roster import Roster, Slots
from nearcast.text.encode import WORTH_A_KERNEL, bytes_of, has_jit

Records = npt.NDArray[np.uint64]

MOST = (1 << 31) // 16
"""Records that surely fit a column of strings, whose offsets have 31 bits."""


class Names:
    """The ids of a roster as records."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._records = np.zeros((0, 2), dtype=np.uint64)
        self._pending: list[Slots] = []

    def seated(self, slots: Slots) -> None:
        """Note that slots have someone new."""
        self._pending.append(slots)

    def records(self) -> Records:
        """Return the records of all slots."""
        from nearcast.engine._kernels.names import write_records

        if self._pending:
            slots = self._roster.still(np.unique(np.concatenate(self._pending)))
            n = max(len(self._records), int(slots.max(initial=-1)) + 1)
            if n > len(self._records):
                grown = np.zeros((max(n, 2 * len(self._records)), 2), dtype=np.uint64)
                grown[: len(self._records)] = self._records
                self._records = grown
            if len(slots):
                write_records(*bytes_of(self._roster.names(slots)), slots, self._records)
            self._pending = []
        return self._records

    def of(self, slots: Slots) -> Records | None:
        """Return the records of some slots; None if these are too few to be worth it."""
        if len(slots) < WORTH_A_KERNEL or not has_jit():
            return None
        from nearcast.engine._kernels.names import copy_records

        copied = np.empty((len(slots), 2), dtype=np.uint64)
        copy_records(self.records(), slots, copied)
        return copied


def strings(records: Records, order: npt.NDArray[np.int64] | None) -> pa.Array | None:
    """Return records as a column of strings, in an order if one is given; None if one of them is too long."""
    from nearcast.engine._kernels.names import LONGEST, read_records

    n = len(records)
    offsets = np.zeros(n + 1, dtype=np.int32)
    words = np.empty((n * LONGEST) // 8 + 2, dtype=np.uint64)
    used = read_records(records, np.arange(n) if order is None else order, offsets, words)
    if used < 0:
        return None
    return pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(words).slice(0, used))
