"""How much do the terms of many rows say? See `nearcast.text.vocabulary`.

    directory   leading bits of a term's number -> where those that begin so stand among all, which are sorted

Numbers are hashes, so each entry leads to a handful.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch

_SIGN = np.uint64(1 << 63)
_AHEAD = 16  # terms whose entries are on their way


@kernel
def leading_bits(number: int, bits: int) -> int:
    """Return the first bits of a number, such that they are in order where numbers are."""
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
    """Write the weights of terms, given by number; those that are not known have the default."""
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
    """Write weight times count of each term, in a vector of length 1 a row; added up in the order given."""
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
    """Write the sum of each row, added up one by one in the order given."""
    for row in range(indptr.size - 1):
        total = 0.0
        for i in range(indptr[row], indptr[row + 1]):
            total += values[i]
        totals[row] = total
