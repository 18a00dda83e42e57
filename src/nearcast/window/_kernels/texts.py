"""Copies of the texts of many messages; see `nearcast.window.store`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch

_AHEAD = 16  # messages whose texts are prefetched


@kernel
def measure_texts(sizes: NDArray[np.int32], numbers: NDArray[np.int64], offsets: NDArray[np.int32]) -> int:
    """Write the offsets of texts, given twice their sizes plus a flag; return the number of flags."""
    total, n_odd, mask = 0, 0, sizes.size - 1
    for i in range(numbers.size):
        prefetch(sizes, numbers[min(i + _AHEAD, numbers.size - 1)] & mask)
        size = sizes[numbers[i] & mask]
        total += size >> 1
        n_odd += size & 1
        offsets[i + 1] = total
    return n_odd


@kernel
def copy_texts(
    lane: NDArray[np.uint8],
    starts: NDArray[np.int64],
    numbers: NDArray[np.int64],
    offsets: NDArray[np.int32],
    out: NDArray[np.uint8],
) -> None:
    """Copy the bytes of texts, given their positions in a lane, to their offsets."""
    mask, around, last = starts.size - 1, lane.size - 1, numbers.size - 1
    for i in range(numbers.size):
        prefetch(starts, numbers[min(i + 2 * _AHEAD, last)] & mask)
        prefetch(lane, starts[numbers[min(i + _AHEAD, last)] & mask] & around)
        start, at = starts[numbers[i] & mask] & around, offsets[i]
        for j in range(offsets[i + 1] - at):
            out[at + j] = lane[start + j]
