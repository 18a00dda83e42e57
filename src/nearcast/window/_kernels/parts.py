"""The parts into which results are divided, one for each thread."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch

_AHEAD = 16  # matches whose thresholds are prefetched


class MatchColumns(NamedTuple):
    """Matches, or room for them."""

    rows: NDArray[np.int64]
    slots: NDArray[np.int32]
    scores: NDArray[np.float64]


def part_of(slots: Any, n_parts: int) -> Any:
    """Return the part of some slots, or of one: neighbours, whose heads share a cache line, have the same."""
    return (slots >> 2) % n_parts


@kernel
def select_matches(
    found: MatchColumns, part: int, n_parts: int, thresholds: NDArray[np.float32], out: MatchColumns
) -> int:
    """Write the matches of a part that reach the thresholds of their slots, if there are any; return their number."""
    n, last = 0, found.slots.size - 1
    for i in range(found.slots.size):
        slot = found.slots[i]
        if thresholds.size > 0:
            prefetch(thresholds, found.slots[min(i + _AHEAD, last)])
        out.rows[n], out.slots[n], out.scores[n] = found.rows[i], slot, found.scores[i]
        is_own = n_parts == 1 or part_of(slot, n_parts) == part
        n += is_own and (thresholds.size == 0 or found.scores[i] >= thresholds[slot])
    return n
