"""The common part of the paper's indexes of kind `social`: points and thresholds, social scores, verification.

    match ── social scores of the place ── candidates, found by each index in its way ── exact scores ── thresholds

Profiles of subscriptions are those of the engine, so that the index and the result store share one copy. Faster than
the paper: the social scores of a message are computed for all users at once from the current graph, not pair by pair.

Cost: for the social scores, a step for each user of each place of each user of the place, tens of thousands; then the
candidates, a few hundred nanoseconds each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast._jit import Arena, Postings, column, kernel, prefetch
from nearcast.index import scratch_pool
from nearcast.index._kernels.shared.output import CANDIDATES, VERIFIED, MatchOutput
from nearcast.index._kernels.shared.projection import Projection, project, to_frame
from nearcast.index._kernels.social import remove_items
from nearcast.index._kernels.social.layout import (
    N_TERMS,
    SITE,
    THRESHOLD,
    USER,
    SocialColumns,
    X,
    Y,
    Z,
)
from nearcast.index._kernels.social.match import n_shared_terms
from nearcast.index.base import Matches, Work
from nearcast.model import MessageBatch, ScoringContext, SubscriptionBatch
from nearcast.model._kernels.profiles import LENGTH, RUN, ProfileArrays, near
from nearcast.model._kernels.profiles import X as PROFILE_X
from nearcast.model._kernels.profiles import Y as PROFILE_Y
from nearcast.model.profiles import Profiles
from nearcast.model.subscription_columns import KeywordColumns
from nearcast.social._kernels.graph import GraphArrays

PREFIX = "baseline"
"""Prefix of the names in the arena, which a result store may look up."""
_ROOM = 1 << 12  # matches
_AHEAD = 8  # candidates that are prefetched


class IndexContext(NamedTuple):
    """Arrays that every index uses."""

    projection: Projection
    profiles: ProfileArrays
    graph: GraphArrays
    sites: NDArray[np.float64]
    """float64 (n_slots, SITE): point in the frame, threshold (NaN for a free slot), number of terms, user."""


class UserScores(NamedTuple):
    """Social scores of all users for one place, with scratch arrays."""

    socials: NDArray[np.float64]
    """float64 (n_users,): social scores; 0 between messages."""
    met: NDArray[np.int32]
    """int32 (n_users,): users whose score is not 0."""
    counts: NDArray[np.int32]
    """int32 (n_users,): number of places shared with the visitor at hand; 0 between visitors."""
    others: NDArray[np.int32]
    """int32 (n_users,): users who share one."""


@kernel
def score_users(graph: GraphArrays, place: int, user_scores: UserScores) -> int:
    """Write the social scores of a place above 0, and the users who have them; return how many there are.

    The scores equal those of the reference bit by bit.
    """
    user_indptr, user_places = graph.user_indptr, graph.user_places
    place_indptr, place_users = graph.place_indptr, graph.place_users
    socials, met, counts, others = user_scores.socials, user_scores.met, user_scores.counts, user_scores.others
    n = 0
    if place < 0:
        return 0
    for i in range(place_indptr[place], place_indptr[place + 1]):
        visitor, n_others = place_users[i], 0
        first, last = user_indptr[visitor], user_indptr[visitor + 1]
        for at in range(first, last):
            for j in range(place_indptr[user_places[at]], place_indptr[user_places[at] + 1]):
                other = place_users[j]
                if counts[other] == 0:
                    others[n_others] = other
                    n_others += 1
                counts[other] += 1
        for j in range(n_others):
            other = others[j]
            score = 2.0 * counts[other] / (last - first + user_indptr[other + 1] - user_indptr[other])
            counts[other] = 0
            if socials[other] == 0.0:
                met[n] = other
                n += 1
            socials[other] = max(socials[other], score)
    return n


@kernel
def clear_user_scores(user_scores: UserScores, n_met: int) -> None:
    """Set all social scores to 0 again."""
    for i in range(n_met):
        user_scores.socials[user_scores.met[i]] = 0.0


@kernel
def place_sites(context: IndexContext, slots: NDArray[np.int32], users: NDArray[np.int64]) -> None:
    """Write points, numbers of terms and users of subscriptions whose profiles exist; thresholds are open."""
    sites, profiles = context.sites, context.profiles
    for i in range(slots.size):
        slot = slots[i]
        x, y, z = to_frame(context.projection, profiles.points[slot, PROFILE_X], profiles.points[slot, PROFILE_Y])
        sites[slot, X], sites[slot, Y], sites[slot, Z], sites[slot, THRESHOLD] = x, y, z, -np.inf
        sites[slot, N_TERMS], sites[slot, USER] = profiles.heads[slot, LENGTH], users[i]


@kernel
def verify(
    context: IndexContext,
    batch: SocialColumns,
    row: int,
    socials: NDArray[np.float64],
    found: NDArray[np.int32],
    n_found: int,
    out: MatchOutput,
    total: int,
) -> int:
    """Score candidates and write the matches; return how many there are in all, or -1 if they do not fit."""
    points, heads, run_terms = context.profiles.points, context.profiles.heads, context.profiles.run_terms
    sites, term_ids, slots, scores = context.sites, batch.term_ids, out.slots, out.scores
    start, stop, x, y = batch.indptr[row], batch.indptr[row + 1], batch.xs[row], batch.ys[row]
    on_sphere, max_distance, n_terms = context.projection.on_sphere, context.projection.max_distance, stop - start
    for i in range(n_found):
        if i + _AHEAD < n_found:
            prefetch(heads, found[i + _AHEAD])
            prefetch(points, found[i + _AHEAD])
            prefetch(sites, found[i + _AHEAD])
        if i + _AHEAD // 2 < n_found:
            prefetch(run_terms, heads[found[i + _AHEAD // 2], RUN])
        slot = found[i]
        run, n_own = heads[slot, RUN], heads[slot, LENGTH]
        text = 2.0 * n_shared_terms(run_terms, run, run + n_own, term_ids, start, stop, 0) / (n_own + n_terms)
        nearness = near(points[slot, PROFILE_X], points[slot, PROFILE_Y], x, y, on_sphere, max_distance)
        score = nearness + text + socials[int(sites[slot, USER])]
        if score >= sites[slot, THRESHOLD]:
            if total == slots.size:
                return -1
            slots[total], scores[total] = slot, score
            total += 1
    out.work[CANDIDATES] += n_found
    out.work[VERIFIED] += n_found
    return total


class BaselineIndex(ABC):
    """Base class of the paper's indexes; subclasses find the candidates."""

    def __init__(self, scoring: ScoringContext, arena: Arena | None = None, *, room: int = _ROOM) -> None:
        self._scoring, self._projection = scoring, project(scoring.space)
        self._scratch_pool = scratch_pool.ScratchPool(lambda: scratch_pool.OutputWorkspace(self._scratch(), room))
        self._arena = Arena() if arena is None else arena
        for name in self._arena.names:
            if name.startswith(f"{PREFIX}."):  # a baseline never continues from saved arrays
                self._arena.drop(name)
        self._profiles = Profiles(self._arena)
        self._arena.new(f"{PREFIX}.sites", np.float64, 0, np.nan, columns=SITE)
        self._users = Postings(self._arena, f"{PREFIX}.users", chunk_size=2)

    @property
    def work(self) -> Work:
        """Work done so far."""
        return self._scratch_pool.work

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, including profiles and workspaces."""
        names = (name for name in self._arena.names if name.startswith(f"{PREFIX}."))
        return sum(self._arena[name].nbytes for name in names) + self._profiles.nbytes + self._scratch_pool.nbytes

    def insert(self, slots: NDArray[np.int32], subscriptions: SubscriptionBatch) -> None:
        """Insert subscriptions under free slots, with open thresholds."""
        columns, slots = subscriptions.columns, column(slots, np.int32)
        assert isinstance(columns, KeywordColumns)
        if slots.size == 0:
            return
        known = self._scoring.social.users
        users = np.array([known[user] for user in columns.users if user is not None], np.int64)
        self._profiles.insert(slots, columns)
        self._arena.grow(f"{PREFIX}.sites", int(slots.max()) + 1)
        place_sites(self._context(), slots, users)
        self._users.append_many(users, slots.astype(np.int64))
        self._post(slots, columns)

    def delete(self, slots: NDArray[np.int32]) -> None:
        """Delete the subscriptions of some slots; their profiles must still exist."""
        slots = self._held(slots)
        if slots.size == 0:
            return
        self._withdraw(slots)
        users = self._sites[slots, USER].astype(np.int64)
        remove_items(self._users.arrays, users, slots.astype(np.int64))
        self._sites[slots, THRESHOLD] = np.nan
        self._profiles.delete(slots)

    def set_thresholds(self, slots: NDArray[np.int32], thresholds: NDArray[np.float64]) -> None:
        """Set the scores that messages must reach."""
        slots, thresholds = column(slots, np.int32), column(thresholds, np.float64)
        held = ~np.isnan(self._sites[slots, THRESHOLD])
        slots, thresholds = slots[held], thresholds[held]
        if slots.size:
            self._sites[slots, THRESHOLD] = thresholds
            self._follow(slots)

    def match(self, batch: MessageBatch, start: int, stop: int) -> Matches:
        """Return the pairs that reach the threshold."""
        given = batch.places[start:stop]
        places = np.full(len(batch), -1, np.int32)
        places[start:stop] = self._scoring.social.number_places(
            given.to_pylist() if isinstance(given, pa.Array) else given
        )
        facets = np.zeros(len(batch), np.int64)
        columns = SocialColumns(batch.xs, batch.ys, batch.term_indptr, batch.term_ids, batch.idfs, places, facets)
        with self._scratch_pool.take() as workspace:
            if start < stop:
                workspace.need(len(self._scoring.social.users), *UserScores._fields)
                self._prepare(workspace, int(np.diff(batch.term_indptr[start : stop + 1]).max()))
            return workspace.collect(
                lambda row, out: self._match_rows(columns, row, stop, start, workspace.scratch, out), start, stop
            )

    @abstractmethod
    def _scratch(self) -> Any:
        """Return scratch arrays for one message; the first fields are those of `UserScores`."""

    def _post(self, slots: NDArray[np.int32], columns: KeywordColumns) -> None:  # noqa: B027 - optional
        """Add subscriptions whose sites are already stored."""

    def _withdraw(self, slots: NDArray[np.int32]) -> None:  # noqa: B027 - optional
        """Remove subscriptions whose sites are still stored."""

    def _follow(self, slots: NDArray[np.int32]) -> None:  # noqa: B027 - optional
        """Update the index after changes of thresholds."""

    def _prepare(self, workspace: scratch_pool.OutputWorkspace, n_terms: int) -> None:  # noqa: B027 - optional
        """Lengthen the scratch arrays for messages of up to `n_terms` terms."""

    @abstractmethod
    def _match_rows(
        self, batch: SocialColumns, row: int, stop: int, first: int, scratch: Any, out: MatchOutput
    ) -> int:
        """Match messages from `row` on; return the one whose matches do not fit, or `stop`."""

    @property
    def _sites(self) -> NDArray[np.float64]:
        return self._arena[f"{PREFIX}.sites"]

    def _context(self) -> IndexContext:
        return IndexContext(self._projection, self._profiles.arrays, self._scoring.social.arrays, self._sites)

    def _held(self, slots: NDArray[np.int32]) -> NDArray[np.int32]:
        slots = column(slots, np.int32)
        held: NDArray[np.int32] = slots[~np.isnan(self._sites[slots, THRESHOLD])]
        return held


def new_user_scores(n: int) -> UserScores:
    """Return scratch arrays for `n` users."""
    return UserScores(np.zeros(n), np.zeros(n, np.int32), np.zeros(n, np.int32), np.zeros(n, np.int32))
