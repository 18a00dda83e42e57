"""Rows of different lengths in one array: row i holds the items from `indptr[i]` to `indptr[i + 1]`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Longs = npt.NDArray[np.int64]


def starts(lengths: npt.ArrayLike) -> Longs:
    """Return where rows of some lengths begin, and where the last one ends.

    >>> starts([2, 0, 3]).tolist()
    [0, 2, 2, 5]
    """
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def positions(indptr: Longs, rows: Longs) -> tuple[Longs, Longs]:
    """Return the positions of the items of some rows, concatenated, and where each of these rows begins there.

    >>> [part.tolist() for part in positions(np.array([0, 2, 2, 5]), np.array([2, 0]))]
    [[2, 3, 4, 0, 1], [0, 3, 5]]
    """
    lengths = np.diff(indptr)[rows]
    after = starts(lengths)
    return np.repeat(indptr[rows] - after[:-1], lengths) + np.arange(after[-1]), after
