"""Baseline 1, without an index: a message is scored for every subscription (geo-social, section 4).

    message ── social scores of its place ── slot 0, slot 1, slot 2, ... ── slots whose threshold it reaches

Cost: one score, a few hundred nanoseconds, per subscription.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel
from nearcast.index import scratch_pool
from nearcast.index._kernels.shared.output import VISITED, MatchOutput
from nearcast.index._kernels.social.layout import THRESHOLD, SocialColumns
from nearcast_baselines.social.base import (
    BaselineIndex,
    IndexContext,
    UserScores,
    clear_user_scores,
    new_user_scores,
    score_users,
    verify,
)


class Scratch(NamedTuple):
    """Scratch arrays of one message; the first four are those of `UserScores`."""

    socials: NDArray[np.float64]
    met: NDArray[np.int32]
    counts: NDArray[np.int32]
    others: NDArray[np.int32]
    held_slots: NDArray[np.int32]
    """int32 (n,): the slots of all subscriptions."""


@kernel
def match_rows(
    context: IndexContext,
    batch: SocialColumns,
    start: int,
    stop: int,
    first: int,
    user_scores: UserScores,
    held_slots: NDArray[np.int32],
    out: MatchOutput,
) -> int:
    """Score messages from `start` on for all subscriptions; return where it stopped, see `BaselineIndex`."""
    total = int(out.ends[start - first - 1]) if start > first else 0
    for row in range(start, stop):
        n_met = score_users(context.graph, batch.places[row], user_scores)
        total = verify(context, batch, row, user_scores.socials, held_slots, held_slots.size, out, total)
        clear_user_scores(user_scores, n_met)
        if total < 0:
            return row
        out.work[VISITED] += held_slots.size
        out.ends[row - first] = total
    return stop


class SubscriptionScan(BaselineIndex):
    """Scores every subscription for every message."""

    def _scratch(self) -> Scratch:
        return Scratch(*new_user_scores(0), np.zeros(0, np.int32))

    def _prepare(self, workspace: scratch_pool.OutputWorkspace, n_terms: int) -> None:
        held_slots = np.flatnonzero(~np.isnan(self._sites[:, THRESHOLD])).astype(np.int32)
        workspace.scratch = workspace.scratch._replace(held_slots=held_slots)

    def _match_rows(
        self, batch: SocialColumns, row: int, stop: int, first: int, scratch: Scratch, out: MatchOutput
    ) -> int:
        return int(
            match_rows(self._context(), batch, row, stop, first, UserScores(*scratch[:4]), scratch.held_slots, out)
        )
