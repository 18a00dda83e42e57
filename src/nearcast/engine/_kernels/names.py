"""Short strings as records of sixteen bytes; see `nearcast.engine.names`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel

WIDTH = 16
LONGEST = WIDTH - 1
LONG = 255  # in the place of the length: the string does not fit


@kernel
def write_records(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], slots: NDArray[np.int32], records: NDArray[np.uint8]
) -> None:
    """Write strings into the records of their slots."""
    for i in range(len(slots)):
        start, n = offsets[i], offsets[i + 1] - offsets[i]
        slot = slots[i]
        if n > LONGEST:
            records[slot, LONGEST] = LONG
        else:
            for j in range(n):
                records[slot, j] = data[start + j]
            records[slot, LONGEST] = n


@kernel
def read_records(
    records: NDArray[np.uint8], order: NDArray[np.int64], offsets: NDArray[np.int32], data: NDArray[np.uint8]
) -> int:
    """Write the strings of records one after the other; return the bytes written, or -1 if one is too long."""
    at = 0
    for i in range(len(order)):
        record = records[order[i]]
        n = record[LONGEST]
        if n == LONG:
            return -1
        for j in range(n):
            data[at + j] = record[j]
        at += n
        offsets[i + 1] = at
    return at
