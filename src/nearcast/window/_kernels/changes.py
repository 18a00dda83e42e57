"""Changes of results in columns: each message named once, and the parts of several threads merged by step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch

_NONE = -1
_AHEAD = 16  # changes whose message is prefetched


class ChangeColumns(NamedTuple):
    """Changes in the order of their steps."""

    steps: NDArray[np.int64]
    slots: NDArray[np.int32]
    enters: NDArray[np.bool_]
    scores: NDArray[np.float64]
    rows: NDArray[np.int64]
    """int64: the row of the message of each change among those that all changes name."""


@kernel
def name_once(
    numbers: NDArray[np.int64], places: NDArray[np.int32], rows: NDArray[np.int64], named: NDArray[np.int64]
) -> int:
    """Write each number that occurs once, in the order of first occurrence, and the row of each there.

    `places` holds NONE everywhere, before and after; two numbers that occur differ modulo its size, a power of two.
    Return how many differ.
    """
    n, mask, last = 0, places.size - 1, numbers.size - 1
    for i in range(numbers.size):
        prefetch(places, numbers[min(i + _AHEAD, last)] & mask)
        place = numbers[i] & mask
        if places[place] == _NONE:
            places[place] = n
            named[n] = numbers[i]
            n += 1
        rows[i] = places[place]
    for i in range(n):
        places[named[i] & mask] = _NONE
    return n


@kernel
def count_steps(steps: NDArray[np.int64], first: int, counts: NDArray[np.int64]) -> None:
    """Add the number of changes at each step from the first one on."""
    for step in steps:
        counts[step - first] += 1


@kernel
def put_changes(part: ChangeColumns, first: int, starts: NDArray[np.int64], out: ChangeColumns) -> None:
    """Write the changes of one part, those of each step, from the first one on, at its start, which advances."""
    for i in range(part.steps.size):
        step = part.steps[i]
        at = starts[step - first]
        starts[step - first] = at + 1
        out.steps[at], out.slots[at], out.enters[at] = step, part.slots[i], part.enters[i]
        out.scores[at], out.rows[at] = part.scores[i], part.rows[i]
