"""The matches of one part of the results."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nearcast._jit import column
from nearcast.model import Matches
from nearcast.window._kernels.parts import MatchColumns, select_matches

_ALL = np.zeros(0, np.float32)


def own_matches(
    found: Matches, part: int, n_parts: int, thresholds: npt.NDArray[np.float32] = _ALL
) -> Matches:
    """Return the matches that belong to a part and reach the thresholds of their slots, if these are given."""
    n = len(found.slots)
    out = MatchColumns(np.empty(n, np.int64), np.empty(n, np.int32), np.empty(n, np.float64))
    columns = zip(found, (np.int64, np.int32, np.float64), strict=True)
    own = MatchColumns(*(column(values, kind) for values, kind in columns))
    n_own = select_matches(own, part, n_parts, thresholds, out)
    return Matches(*(values[:n_own] for values in out))
