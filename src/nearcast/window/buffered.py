"""Buffered results: the k best of the window at full speed, as buffers in an arena that reach below the k-th score.

    arrivals of a batch ── index, against theta ──┐
                                                  ├── step by step ── changes
    expiring messages ──── queues ────────────────┘        │
                                                     a buffer runs short: search the window, choose theta again

Three policies determine how far below the k-th score a buffer reaches: `cskyband` compares the cost of holding
messages with that of a new search, `skyband` takes a factor of the k-th score, `kmax` holds as many messages as a
factor of k. All are exact, whatever the factor. See `_kernels.buffers`. Where a search finds its candidates depends
on the kind; see `candidates`.

The index is called once per batch, against the thetas as they are before it. A search in the middle of a batch may
lower a theta: it then also considers the messages that arrive later, and notes those that the index did not report.

The buffers are dealt out to as many parts as there are threads. Once the matches of a batch are known, no part needs
another: all read the same window, and each step changes a buffer by what is in it.

Cost: an arrival or expiry takes a few hundred nanoseconds per subscription whose buffer it changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast._jit import Arena, column
from nearcast.errors import InvalidInput, is_finite, require
from nearcast.model import BEST_IN_WINDOW, MessageBatch, ScoringContext, SubscriptionBatch
from nearcast.model.profiles import Profiles
from nearcast.model.subscription_columns import KeywordColumns
from nearcast.space import Box
from nearcast.space.metric import EARTH_RADIUS_M
from nearcast.window._kernels import buffers as kernels
from nearcast.window._kernels import params as layout
from nearcast.window.best_results import BestResults
from nearcast.window.buffer_part import PREFIX, BufferPart, Slots
from nearcast.window.candidates import CANDIDATE_SOURCES
from nearcast.window.lists import MAX_NUMBER
from nearcast.window.result_store import Changes, Find, Results, ThresholdChanges
from nearcast.window.sliding import SlidingWindow, Steps
from nearcast.worker_pool import SERIAL, WorkerPool


class BufferPolicy(NamedTuple):
    """How theta is chosen, and the factor for it."""

    code: int
    factor: float = 0.0
    """The default factor."""
    within: tuple[float, float] | None = None
    """The range of factors; None for a policy without a factor."""


POLICIES = {
    "cskyband": BufferPolicy(layout.COST_BASED),
    "skyband": BufferPolicy(layout.FACTOR, 0.95, (0.0, 1.0)),
    "kmax": BufferPolicy(layout.BOUNDED, 3.0, (1.0, 1000.0)),
}
"""Name to policy: theta is chosen by cost, is a factor of the k-th score, or holds a factor of k messages."""

_EPSILON = 2.0**-20  # more than rounding to 32 bits changes a score
_SEARCH_S, _MATCH_S = 2e-5, 3e-7  # seconds to search the window for a subscription, and to publish a match
_N_LINES = 33  # lines of longitude and of latitude that measure the bounds


class BufferedResults(BestResults):
    """Stores the k best messages of the window, and some more."""

    policy = BEST_IN_WINDOW
    matches_whole_batches = True

    def __init__(
        self,
        scoring: ScoringContext,
        window: SlidingWindow,
        arena: Arena,
        *,
        kind: str = "topk",
        policy: str = "cskyband",
        factor: float | None = None,
        max_number: int = MAX_NUMBER,
    ) -> None:
        self._window, self._arena, self._pool = window, arena, SERIAL
        params = _make_params(scoring, window, _choose_policy(policy, factor))
        self._make_source = partial(CANDIDATE_SOURCES[kind], arena, window, params, scoring, max_number=max_number)
        self._profiles, self._source = Profiles(arena), self._make_source()
        if f"{PREFIX}.heads" not in arena:
            with arena.together():
                arena.new(f"{PREFIX}.heads", np.int32, 0, columns=8)
                arena.new(f"{PREFIX}.thresholds", np.float32, 0, -np.inf)
        n_parts = sum(re.fullmatch(rf"{PREFIX}\.\d+\.state", name) is not None for name in arena.names)
        self._parts = self._make_parts(max(n_parts, 1))

    def _make_parts(self, n_parts: int) -> list[BufferPart]:
        window, arena = self._window, self._arena
        return [
            BufferPart(arena, number, n_parts, window=window, source=self._make_source()) for number in range(n_parts)
        ]

    def use(self, pool: WorkerPool) -> None:
        """Use the threads of a pool from now on, each for a part of the buffers; these move between parts."""
        self._pool = pool
        if pool.n_threads == len(self._parts):
            return
        slots = np.flatnonzero(self._heads[:, kernels.RESULT_SIZE] > 0).astype(np.int32)
        self._follow_base()
        owned = [slots[part.select(slots)] for part in self._parts]
        before = [part.drop() for part in self._parts]
        self._parts = self._make_parts(pool.n_threads)
        for own, arrays in zip(owned, before, strict=True):
            for part in self._parts:
                part.move(own[part.select(own)], arrays)

    @property
    def searches(self) -> int:
        """The number of searches because a buffer ran short."""
        return sum(part.searches for part in self._parts)

    @property
    def sizes(self) -> npt.NDArray[np.int32]:
        """The number of messages in each buffer."""
        heads = self._heads
        sizes: npt.NDArray[np.int32] = heads[heads[:, kernels.RESULT_SIZE] > 0, kernels.SIZE]
        return sizes

    def prepare(self, subscriptions: SubscriptionBatch) -> None:
        """Make the lists of the window that searches for subscriptions read."""
        self._source.prepare(subscriptions)

    def insert(self, slots: Slots, subscriptions: SubscriptionBatch) -> Results:
        """Insert subscriptions and return the best of the window for each."""
        if not len(slots):
            return Results.none()
        columns = subscriptions.columns
        assert isinstance(columns, KeywordColumns)
        self._follow_base()
        self._profiles.insert(slots, columns)
        self._arena.grow_all([f"{PREFIX}.{name}" for name in ("heads", "thresholds")], int(slots.max()) + 1)
        self._source.insert(slots, columns)
        self._source.prepare(subscriptions)
        self._source.insert_keys(slots, subscriptions)
        slots = column(slots, np.int32)
        return self._joined(lambda part, own: part.begin(own), slots)

    def _joined(self, work: Callable[[BufferPart, Slots], Results], slots: Slots) -> Results:
        """Return the results of some slots, for which each part does some work."""
        if len(self._parts) == 1:
            return work(self._parts[0], slots)
        pieces = [(part, slots[part.select(slots)]) for part in self._parts]
        return Results.joined(
            self._pool.for_work(_SEARCH_S * len(slots)).map(
                lambda piece: work(*piece), [p for p in pieces if len(p[1])]
            )
        )

    def delete(self, slots: Slots) -> Results:
        """Delete subscriptions and return their last results."""
        results = self.held(slots)
        for part in self._parts:
            part.end(slots[part.select(slots)])
        self._profiles.delete(slots)
        self._source.delete_keys(slots)
        return results

    def restore(self, saved: Sequence[Results]) -> None:
        """Do nothing: results follow from the window."""

    def publish(self, batch: MessageBatch, steps: Steps, find: Find) -> list[Changes]:
        """Publish a batch, which the lists of the window hold: call the index, and update buffers step by step."""
        self._follow_base()
        found = find(0, len(batch))
        return self._pool.for_work(_MATCH_S * len(found.slots)).map(
            lambda part: part.publish(len(batch), steps, found), self._parts
        )

    def take_threshold_changes(self) -> ThresholdChanges:
        """Return the thresholds that have changed since the last call."""
        slots = np.concatenate([part.take_moved() for part in self._parts])
        if not len(slots):
            return ThresholdChanges(slots, np.zeros(0))
        heads = self._heads[slots]
        in_use = heads[:, kernels.RESULT_SIZE] > 0
        return ThresholdChanges(slots[in_use], heads.view(np.float32)[in_use, kernels.THETA].astype(np.float64))

    def result_size(self, slot: int) -> int:
        """Return k of a subscription."""
        return int(self._heads[slot, kernels.RESULT_SIZE])

    def held(self, slots: Slots) -> Results:
        """Return the results of some subscriptions."""
        return self._joined(lambda part, own: part.held(own), slots)

    def _follow_base(self) -> None:
        for part in self._parts:
            part.follow_base()

    @property
    def _heads(self) -> npt.NDArray[np.int32]:
        return self._arena[f"{PREFIX}.heads"]


def _choose_policy(name: str, factor: float | None) -> BufferPolicy:
    require(name in POLICIES, "policy", f"must be one of {[*POLICIES]}", name, subject="buffers")
    policy, subject = POLICIES[name], f"buffers, policy {name!r}"
    if factor is None:
        return policy
    if policy.within is None:
        raise InvalidInput("factor", "must be None", factor, subject=subject)
    least, greatest = policy.within
    fits = is_finite(factor) and least <= factor <= greatest
    require(fits, "factor", f"must be in [{least:g}, {greatest:g}]", factor, subject=subject)
    return policy._replace(factor=float(factor))


def _make_params(scoring: ScoringContext, window: SlidingWindow, policy: BufferPolicy) -> layout.BufferParams:
    space = scoring.space
    on_sphere = space.metric == "haversine"
    near_per_unit = (EARTH_RADIUS_M if on_sphere else 1.0) / space.max_distance
    least, greatest = _cube(space.bounds, on_sphere)
    side = max(float((greatest - least).max()), 1e-9)
    return layout.BufferParams(
        on_sphere=on_sphere,
        max_distance=space.max_distance,
        near_per_unit=near_per_unit,
        x0=float(least[0]),
        y0=float(least[1]),
        z0=float(least[2]),
        unit=side / layout.SPOT_MASK,
        margin=_EPSILON + side / layout.SPOT_MASK * near_per_unit,
        by_time=window.policy is not None and window.policy.needs_time,
        policy=policy.code,
        factor=policy.factor,
    )


def _cube(bounds: Box, on_sphere: bool) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the corners of a box of the frame that encloses the bounds."""
    if not on_sphere:
        return np.array([bounds.xmin, bounds.ymin, 0.0]), np.array([bounds.xmax, bounds.ymax, 0.0])
    lines = [np.linspace(*ends, _N_LINES) for ends in ((bounds.xmin, bounds.xmax), (bounds.ymin, bounds.ymax))]
    corners = np.array([layout.to_frame(True, x, y) for x in lines[0] for y in lines[1]])
    # Between lines a coordinate deviates by no more than this: its second derivatives are at most 1.
    deviation = sum(np.radians(line[1] - line[0]) ** 2 for line in lines) / 8
    return corners.min(axis=0) - deviation, corners.max(axis=0) + deviation
