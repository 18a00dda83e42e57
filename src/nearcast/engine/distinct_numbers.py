"""Distinct numbers without a sort, where they lie close together."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Longs = npt.NDArray[np.int64]

_SPREAD = 1 << 20  # numbers that span more than this, and eight times their count, are sorted


def distinct(numbers: npt.NDArray[np.integer]) -> tuple[Longs, Longs]:
    """Return the distinct ones of small numbers, ascending, and the row of each among them.

    >>> [column.tolist() for column in distinct(np.array([7, 2, 7]))]
    [[2, 7], [1, 0, 1]]
    """
    are_used = np.zeros(int(numbers.max(initial=-1)) + 1, np.bool_)
    are_used[numbers] = True
    row_of = np.cumsum(are_used) - 1
    return np.flatnonzero(are_used), row_of[numbers]


def distinct_seqs(seqs: Longs) -> tuple[Longs, Longs]:
    """Return the distinct seqs, ascending, and the row of each among them.

    >>> [column.tolist() for column in distinct_seqs(np.array([-3, 1 << 40, -3]))]
    [[-3, 1099511627776], [0, 1, 0]]
    """
    if not len(seqs):
        return seqs, np.zeros(0, np.int64)
    least, most = int(seqs.min()), int(seqs.max())
    if most - least > max(_SPREAD, 8 * len(seqs)):
        once, rows = np.unique(seqs, return_inverse=True)
        return once, rows.reshape(-1).astype(np.int64)
    once, rows = distinct(seqs - least)
    return once + least, rows
