"""Columns as kernels take them: plain, contiguous, writable arrays of exactly one dtype.

Anything else (a list, a slice, a read-only array from Arrow, another dtype) would be one more specialisation to
compile, or an error in the middle of a batch, so it is converted here, once. Cost: none if it is such an array
already, else one copy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from nearcast.errors import require

__all__ = ["column", "same_length"]


def column(values: ArrayLike, dtype: DTypeLike) -> NDArray[Any]:
    """Return `values` as a column for kernels; integers keep their values and are never made from floats.

    >>> column([3, 1, 2], np.int32)
    array([3, 1, 2], dtype=int32)
    >>> column([3, 2**40], np.int32)
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: column must fit int32; got [1099511627776]
    """
    array = np.asarray(values)
    require(array.ndim == 1, "column", "must have one dimension", array.ndim)
    if array.size == 0:
        return np.empty(0, dtype)
    cast = array.astype(dtype, casting="same_kind", copy=False)
    if cast.dtype.kind in "iu" and not np.can_cast(array.dtype, cast.dtype):
        changed = array[cast != array]
        require(changed.size == 0, "column", f"must fit {cast.dtype}", changed[:1].tolist())
    return np.require(cast, requirements=["C", "W"])


def same_length(**columns: NDArray[Any]) -> None:
    """Raise `InvalidInput` if columns differ in length: a kernel would read past the end of the shorter one.

    >>> same_length(keys=np.zeros(3), values=np.zeros(2))
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: keys, values must have one length; got [3, 2]
    """
    lengths = [column.size for column in columns.values()]
    require(len(set(lengths)) == 1, ", ".join(columns), "must have one length", lengths)
