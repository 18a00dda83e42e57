"""Kernels of `nearcast.text.vocabulary`: weights of the terms of many rows.

    directory   leading bits of a term id -> position of the first id with these bits; ids are sorted

Ids are hashes, so each entry of the directory leads to a handful of ids.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch

_SIGN = np.uint64(1 << 63)
_AHEAD = 16  # entries are prefetched this many terms ahead


@kernel
def leading_bits(number: int, bits: int) -> int:
    """Return the leading bits of an id, in the order of signed ids."""
    return int((np.uint64(number) ^ _SIGN) >> np.uint64(64 - bits))


@kernel
def find_weights(
    directory: NDArray[np.int32],
    bits: int,
    known: NDArray[np.int64],
    weights: NDArray[np.float64],
    default: float,
    ids: NDArray[np.int64],
    out: NDArray[np.float64],
) -> None:
    """Write the weights of terms, given by id; unknown terms have the default."""
    last = ids.size - 1
    for i in range(ids.size):
        ahead = ids[min(i + 2 * _AHEAD, last)]
        prefetch(directory, leading_bits(ahead, bits))
        at = directory[leading_bits(ids[min(i + _AHEAD, last)], bits)]
        prefetch(known, at)
        prefetch(weights, at)
        bucket = leading_bits(ids[i], bits)
        out[i] = default
        for j in range(directory[bucket], directory[bucket + 1]):
            if known[j] == ids[i]:
                out[i] = weights[j]
                break


@kernel
def scale_rows(
    weights: NDArray[np.float64], counts: NDArray[np.int32], indptr: NDArray[np.int64], units: NDArray[np.float64]
) -> None:
    """Write weight times count of each term, each row scaled to length 1; sums run in the given order."""
    for row in range(indptr.size - 1):
        total = 0.0
        for i in range(indptr[row], indptr[row + 1]):
            units[i] = weights[i] * counts[i]
            total += units[i] * units[i]
        if total > 0.0:
            length = np.sqrt(total)
            for i in range(indptr[row], indptr[row + 1]):
                units[i] /= length


@kernel
def add_rows(values: NDArray[np.float64], indptr: NDArray[np.int64], totals: NDArray[np.float64]) -> None:
    """Write the sum of each row, added up in the given order."""
    for row in range(indptr.size - 1):
        total = 0.0
        for i in range(indptr[row], indptr[row + 1]):
            total += values[i]
        totals[row] = total
