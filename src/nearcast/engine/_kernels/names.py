"""Short strings as records of two words; see `nearcast.engine.names`.

The first word holds eight bytes, the second seven more and, on top, how many there are. What is not used is zero, so
strings are written one after the other by shifting words into place: no loop over bytes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel

LONGEST = 15
LONG = 255  # in the place of the length: the string does not fit

_TOP = np.uint64(56)
_BELOW_TOP = np.uint64((1 << 56) - 1)
_NOTHING = np.uint64(0)


@kernel
def write_records(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], slots: NDArray[np.int32], records: NDArray[np.uint64]
) -> None:
    """Write strings into the records of their slots."""
    for i in range(len(slots)):
        start, n = offsets[i], offsets[i + 1] - offsets[i]
        low, high = _NOTHING, _NOTHING
        if n > LONGEST:
            n = LONG
        else:
            for j in range(min(n, 8)):
                low |= np.uint64(data[start + j]) << np.uint64(8 * j)
            for j in range(8, n):
                high |= np.uint64(data[start + j]) << np.uint64(8 * (j - 8))
        records[slots[i], 0] = low
        records[slots[i], 1] = high | np.uint64(n) << _TOP


@kernel
def read_records(
    records: NDArray[np.uint64], order: NDArray[np.int64], offsets: NDArray[np.int32], words: NDArray[np.uint64]
) -> int:
    """Write the strings of records one after the other; return the bytes written, or -1 if one is too long."""
    total = 0
    pending, n_pending, at = _NOTHING, 0, 0  # bytes that do not fill a word yet
    for i in range(len(order)):
        low, high = records[order[i], 0], records[order[i], 1]
        n: int = np.int64(high >> _TOP)  # type: ignore[assignment]
        if n == LONG:
            return -1
        total += n
        offsets[i + 1] = total
        for part in range(2):
            word = low if part == 0 else high & _BELOW_TOP
            m = min(n, 8) if part == 0 else n - 8
            if m <= 0:
                break
            pending |= word << np.uint64(8 * n_pending)
            if n_pending + m >= 8:
                words[at] = pending
                at += 1
                pending = word >> np.uint64(8 * (8 - n_pending)) if n_pending > 0 else _NOTHING
                n_pending -= 8
            n_pending += m
    words[at] = pending
    return total


@kernel
def copy_records(records: NDArray[np.uint64], slots: NDArray[np.int32], out: NDArray[np.uint64]) -> None:
    """Copy the records of some slots."""
    for i in range(len(slots)):
        out[i, 0] = records[slots[i], 0]
        out[i, 1] = records[slots[i], 1]
