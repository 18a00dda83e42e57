"""Baseline 1, without an index: a message is scored for every subscription (geo-social, section 4).

    message ── social scores of its place ── slot 0, slot 1, slot 2, ... ── those whose bar is reached

Cost: a whole score, some hundred nanoseconds, for every subscription there is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel
from nearcast.index import scratch_pool
from nearcast.index._kernels.shared.output import VISITED, MatchOutput
from nearcast.index._kernels.social.layout import THRESHOLD, SocialColumns
from nearcast_baselines.social.ground import (
    BaselineIndex,
    Ground,
    SocialWindow,
    all_users_near,
    forget_users,
    friends_of,
    verify,
)


class Scratch(NamedTuple):
    """Room for one message; the first four are `SocialWindow`."""

    socials: NDArray[np.float64]
    met: NDArray[np.int32]
    counts: NDArray[np.int32]
    others: NDArray[np.int32]
    all_of_them: NDArray[np.int32]
    """int32 (n,): all subscriptions that there are."""


@kernel
def match_rows(
    ground: Ground,
    batch: SocialColumns,
    start: int,
    stop: int,
    first: int,
    friends: SocialWindow,
    all_of_them: NDArray[np.int32],
    out: MatchOutput,
) -> int:
    """Score messages from `start` on for all subscriptions; return where it stopped, see `BaselineIndex`."""
    total = int(out.ends[start - first - 1]) if start > first else 0
    for row in range(start, stop):
        n_met = all_users_near(ground.graph, batch.places[row], friends)
        total = verify(ground, batch, row, friends.socials, all_of_them, all_of_them.size, out, total)
        forget_users(friends, n_met)
        if total < 0:
            return row
        out.work[VISITED] += all_of_them.size
        out.ends[row - first] = total
    return stop


class UserScan(BaselineIndex):
    """Scores all subscriptions, compiled."""

    def _scratch(self) -> Scratch:
        return Scratch(*friends_of(0), np.zeros(0, np.int32))

    def _prepare(self, workspace: scratch_pool.OutputWorkspace, n_terms: int) -> None:
        all_of_them = np.flatnonzero(~np.isnan(self._sites[:, THRESHOLD])).astype(np.int32)
        workspace.scratch = workspace.scratch._replace(all_of_them=all_of_them)

    def _match_rows(
        self, batch: SocialColumns, row: int, stop: int, first: int, scratch: Scratch, out: MatchOutput
    ) -> int:
        return int(
            match_rows(self._ground(), batch, row, stop, first, SocialWindow(*scratch[:4]), scratch.all_of_them, out)
        )
