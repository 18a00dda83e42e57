"""Which expressions use one operator only, so that they are read column by column."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel

ALL, ANY = 1, 2
"""Words that are all needed; words of which one is."""

_SPACE, _A, _N, _D, _O, _R = 32, 65, 78, 68, 79, 82


@kernel
def _end_of_word(data: NDArray[np.uint8], at: int, stop: int) -> int:
    """Return where a word of small letters and digits that begins here ends; `at` if there is none."""
    while at < stop and ((97 <= data[at] <= 122) or (48 <= data[at] <= 57)):
        at += 1
    return at


@kernel
def classify_expressions(data: NDArray[np.uint8], offsets: NDArray[np.int64], kinds: NDArray[np.int8]) -> None:
    """Write ALL, ANY, or 0 for every other expression.

    Words are separated by one space, or by an operator between two.
    """
    for row in range(kinds.size):
        at, stop, n_all, n_any = offsets[row], offsets[row + 1], 0, 0
        kinds[row] = 0
        while True:
            end = _end_of_word(data, at, stop)
            if end == at:
                break
            if end == stop:
                kinds[row] = ALL if n_any == 0 else ANY if n_all == 0 else 0
                break
            if data[end] != _SPACE:
                break
            at = end + 1
            if (
                at + 3 < stop
                and data[at] == _A
                and data[at + 1] == _N
                and data[at + 2] == _D
                and data[at + 3] == _SPACE
            ):
                at += 4
                n_all += 1
            elif at + 2 < stop and data[at] == _O and data[at + 1] == _R and data[at + 2] == _SPACE:
                at += 3
                n_any += 1
            else:
                n_all += 1
