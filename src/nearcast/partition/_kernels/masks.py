"""Kernels of `nearcast.partition.masks`: loops over the bits of masks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel

_ONE = np.uint64(1)
_LAST = np.uint64(63)


@kernel
def trailing_zeros(word: np.uint64) -> int:
    """Return the number of the lowest bit of a word that has one."""
    n = 0
    for width in (32, 16, 8, 4, 2, 1):
        if word & ((_ONE << np.uint64(width)) - _ONE) == 0:
            word >>= np.uint64(width)
            n += width
    return n


@kernel
def add_shards(masks: NDArray[np.uint64], rows: NDArray[np.int64], shards: NDArray[np.int64]) -> None:
    """Add a shard to the mask of each row; a negative shard is none."""
    for i in range(rows.size):
        shard = shards[i]
        if shard >= 0:
            masks[rows[i], shard >> 6] |= _ONE << (np.uint64(shard) & _LAST)


@kernel
def unite(
    indptr: NDArray[np.int64], items: NDArray[np.int64], of_items: NDArray[np.uint64], masks: NDArray[np.uint64]
) -> None:
    """Add to the mask of each row the masks of its items, given as rows of `of_items`."""
    n_words = masks.shape[1]
    for row in range(indptr.size - 1):
        mask = masks[row]
        for i in range(indptr[row], indptr[row + 1]):
            other = of_items[items[i]]
            for word in range(n_words):
                mask[word] |= other[word]


@kernel
def count_rows(masks: NDArray[np.uint64], counts: NDArray[np.int64]) -> None:
    """Add to the count of each shard the number of masks that hold it."""
    for row in range(masks.shape[0]):
        for word in range(masks.shape[1]):
            left = masks[row, word]
            while left != 0:
                counts[word * 64 + trailing_zeros(left)] += 1
                left &= left - _ONE


@kernel
def list_rows(masks: NDArray[np.uint64], ends: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
    """Write the rows of each shard, ascending, from where `ends` says on; it is moved to their end."""
    for row in range(masks.shape[0]):
        for word in range(masks.shape[1]):
            left = masks[row, word]
            while left != 0:
                shard = word * 64 + trailing_zeros(left)
                rows[ends[shard]] = row
                ends[shard] += 1
                left &= left - _ONE
