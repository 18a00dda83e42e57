"""Output of a match kernel: matches row by row, and the counters of the work done."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

VISITED, CANDIDATES, VERIFIED, MATCHED = 0, 1, 2, 3
"""Positions in `MatchOutput.work`, in the order of the fields of `nearcast.index.Work`."""


class MatchOutput(NamedTuple):
    """Arrays of the caller that a `match_rows` kernel fills, one message after the other.

    A kernel writes the matches of a message completely or not at all. It returns the first message whose matches do
    not fit; the caller enlarges the output and calls again from there.
    """

    slots: NDArray[np.int32]
    """int32 (room,): matched subscriptions."""
    scores: NDArray[np.float64]
    """float64 (room,): their scores; (0,) for kinds whose matches have no score."""
    ends: NDArray[np.int64]
    """int64 (n_rows,): end of the matches of each row, counted from the first row of the call."""
    work: NDArray[np.int64]
    """int64 (4,): visited, candidates, verified, matched; kernels leave `matched` to the caller."""
