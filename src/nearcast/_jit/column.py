"""What may a kernel be handed?

A plain, contiguous, writable array of exactly one dtype. Everything else (a list, a slice, a read-only array from
Arrow, another dtype) would be one more specialisation to compile, or an error in the middle of a batch, so it is made
so here, once, at the edge. Cost: nothing if it is so already, one copy otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from nearcast.errors import require

__all__ = ["column"]


def column(values: ArrayLike, dtype: DTypeLike) -> NDArray[Any]:
    """Return `values` as a column that kernels take; casts only within a kind, so 1.5 never becomes 1.

    >>> column([3, 1, 2], np.int64)
    array([3, 1, 2])
    >>> column(np.array([0.5]), np.int64)
    Traceback (most recent call last):
        ...
    TypeError: Cannot cast array data from dtype('float64') to dtype('int64') according to the rule 'same_kind'
    """
    array = np.asarray(values)
    require(array.ndim == 1, "column", "must have one dimension", array.ndim)
    if array.size == 0:
        return np.empty(0, dtype)
    array = array.astype(dtype, casting="same_kind", copy=False)
    return np.require(array, requirements=["C", "W"])
