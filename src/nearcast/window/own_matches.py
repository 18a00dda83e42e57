"""The matches of one part of the results."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nearcast._jit import column
from nearcast.model import Matches
from nearcast.window._kernels.parts import MatchColumns, select_matches

_ALL = np.zeros(0, np.float32)


def own_matches(found: Matches, part: int, n_parts: int, thresholds: npt.NDArray[np.float32] = _ALL) -> Matches:
    """Return the matches that belong to a part and reach the thresholds of their slots, if these are given."""
    n = len(found.slots)
    given = MatchColumns(
        column(found.rows, np.int64), column(found.slots, np.int32), column(found.scores, np.float64)
    )
    own = MatchColumns(np.empty(n, np.int64), np.empty(n, np.int32), np.empty(n))
    n_own = select_matches(given, part, n_parts, thresholds, own)
    return Matches(own.rows[:n_own], own.slots[:n_own], own.scores[:n_own])
