"""How do millions of slots become ids in a table? By short strings in records of sixteen bytes, one read each.

    records   slot -> | c o f f e e - 7 | . . . . . . . 8 |        fifteen bytes and the length; 255: too long

A table of updates names a subscription in every row, at random places among millions: a string of an Arrow column
costs three reads there, a record one. Records are made for those who are asked for, when the first large table is.
An id that is too long sends the whole table the slower way, through the roster.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.engine.roster import Roster, Slots
from nearcast.text.encode import WORTH_A_KERNEL, bytes_of, has_jit

Records = npt.NDArray[np.uint64]


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

    def of(self, slots: Slots) -> Records:
        """Return the records of some slots."""
        from nearcast.engine._kernels.names import copy_records

        copied = np.empty((len(slots), 2), dtype=np.uint64)
        copy_records(self.records(), slots, copied)
        return copied


def gather(parts: Sequence[tuple[Roster, Names, Slots]], order: npt.NDArray[np.int64] | None) -> pa.Array:
    """Return the ids of the slots of several rosters, one part after the other, in an order if one is given."""
    n = sum(len(slots) for _, _, slots in parts)
    if n >= WORTH_A_KERNEL and has_jit():
        strings = _by_records(parts, order, n)
        if strings is not None:
            return strings
    joined = pa.concat_arrays([roster.names(slots) for roster, _, slots in parts])
    return joined if order is None else joined.take(pa.array(order))


def _by_records(
    parts: Sequence[tuple[Roster, Names, Slots]], order: npt.NDArray[np.int64] | None, n: int
) -> pa.Array | None:
    from nearcast.engine._kernels.names import LONGEST, read_records

    if len(parts) == 1:
        records, places = parts[0][1].records(), parts[0][2].astype(np.int64)
    else:
        records = np.concatenate([names.of(slots) for _, names, slots in parts])
        places = np.arange(n, dtype=np.int64)
    if order is not None:
        places = places[order]
    offsets = np.zeros(n + 1, dtype=np.int32)
    words = np.empty((n * LONGEST) // 8 + 2, dtype=np.uint64)
    used = read_records(records, places, offsets, words)
    if used < 0:
        return None
    return pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(words).slice(0, used))
