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

Cost: an arrival or expiry takes a few hundred nanoseconds per subscription whose buffer it changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast._jit import Arena
from nearcast.errors import InvalidInput, is_finite, require
from nearcast.model import BEST_IN_WINDOW, Matches, MessageBatch, ScoringContext, SubscriptionBatch
from nearcast.model._kernels import blocks
from nearcast.model.profiles import Profiles
from nearcast.model.subscription_columns import KeywordColumns
from nearcast.space import Box
from nearcast.space.metric import EARTH_RADIUS_M
from nearcast.window._kernels import buffers as kernels
from nearcast.window._kernels import params as layout
from nearcast.window._kernels import search
from nearcast.window._kernels.horizon import Horizon
from nearcast.window.best_results import BestResults
from nearcast.window.candidates import CANDIDATE_SOURCES
from nearcast.window.lists import MAX_NUMBER
from nearcast.window.result_store import Changes, Find, Results, ThresholdChanges
from nearcast.window.sliding import SlidingWindow, Steps
from nearcast.window.store import FIRST, HORIZON, NEXT


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

_PREFIX = "buffers"
_ROOM = 1 << 12
_N_QUEUED = 32  # subscriptions whose buffers are prefetched before the first of them is needed
_EPSILON = 2.0**-20  # more than rounding to 32 bits changes a score
_BASE = 2  # position in the counts
_N_LINES = 33  # lines of longitude and of latitude that measure the bounds


class BufferedResults(BestResults):
    """Stores the k best messages of the window, and some more."""

    policy = BEST_IN_WINDOW

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
        self._window, self._arena = window, arena
        self._params = _make_params(scoring, window, _choose_policy(policy, factor))
        self._profiles = Profiles(arena)
        if f"{_PREFIX}.state" not in arena:
            with arena.together():
                arena.new(f"{_PREFIX}.heads", np.int32, 0, columns=8)
                arena.new(f"{_PREFIX}.scores", np.float64, 0)
                arena.new(f"{_PREFIX}.numbers", np.int32, 0)
                arena.new(f"{_PREFIX}.queues", np.int32, 0, kernels.NONE)
                arena.new(f"{_PREFIX}.thresholds", np.float32, 0, -np.inf)
                arena.new(f"{_PREFIX}.counts", np.int64, 8)
                arena.new(f"{_PREFIX}.state", np.int64, blocks.STATE)[blocks.FIRST :] = -1
        self._source = CANDIDATE_SOURCES[kind](arena, window, self._params, scoring, max_number=max_number)
        self._scratch = _make_scratch(_ROOM)
        self._change_buffer = _make_changes(_ROOM)
        self._pending = _make_pending(0, _ROOM)
        self._moved: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self._fit_queues(int(window.store.state[FIRST]))

    @property
    def searches(self) -> int:
        """The number of searches because a buffer ran short."""
        return int(self._array("counts")[0])

    @property
    def sizes(self) -> npt.NDArray[np.int32]:
        """The number of messages in each buffer."""
        heads = self._array("heads")
        sizes: npt.NDArray[np.int32] = heads[heads[:, kernels.RESULT_SIZE] > 0, kernels.SIZE]
        return sizes

    def prepare(self, subscriptions: SubscriptionBatch) -> None:
        """Make the lists of the window that searches for subscriptions read."""
        self._source.prepare(subscriptions)

    def insert(self, slots: npt.NDArray[np.int32], subscriptions: SubscriptionBatch) -> Results:
        """Insert subscriptions and return the best of the window for each."""
        if not len(slots):
            return Results.none()
        columns = subscriptions.columns
        assert isinstance(columns, KeywordColumns)
        self._follow_base()
        self._profiles.insert(slots, columns)
        self._arena.grow_all([f"{_PREFIX}.{name}" for name in ("heads", "thresholds")], int(slots.max()) + 1)
        self._source.insert(slots, columns)
        self._source.prepare(subscriptions)
        self._source.insert_keys(slots, subscriptions)
        self._change_buffer.cursor[:] = 0
        self._fit_terms(slots)
        now, horizon = int(self._window.store.state[NEXT]) - 1, self._horizon(in_order=self._window.in_order)
        done = 0
        while True:
            done, code = self._source.begin(self._context(), slots, done, now, horizon, self._change_buffer)
            if code == kernels.DONE:
                break
            self._grow(code)
        self._array("thresholds")[slots] = self._thetas[slots]
        self._moved = np.concatenate([self._moved, slots])
        return self._first_results()

    def delete(self, slots: npt.NDArray[np.int32]) -> Results:
        """Delete subscriptions and return their last results."""
        results = self.held(slots)
        kernels.end(self._buffers, self._base, np.ascontiguousarray(slots))
        self._profiles.delete(slots)
        self._source.delete_keys(slots)
        return results

    def restore(self, saved: Sequence[Results]) -> None:
        """Do nothing: results follow from the window."""

    def publish(self, batch: MessageBatch, steps: Steps, find: Find) -> Changes:
        """Publish a batch, which the lists of the window hold: call the index, and update buffers step by step."""
        self._follow_base()
        self._fit_queues(steps.before)
        rows, slots, scores = self._filter(find(0, len(batch)))
        first_number = int(steps.numbers[0]) if len(steps.numbers) else int(self._window.store.state[NEXT])
        batch_steps = kernels.BatchSteps(
            first_number, steps.row_steps, steps.horizons, steps.leaving, steps.leaving_steps,
            rows, slots, scores, steps.in_order,
        )  # fmt: skip
        cursor = self._change_buffer.cursor
        cursor[:] = 0
        cursor[kernels.FIRST_ALIVE], cursor[kernels.NOW] = steps.before, first_number - 1
        cursor[kernels.FIRST_ROW], cursor[kernels.ARRIVING] = first_number, kernels.NONE
        self._pending = _make_pending(len(batch), max(2 * len(batch), len(self._pending.slots)))
        self._pending = self._pending._replace(thresholds=self._array("thresholds"))
        while True:
            code = self._source.publish(self._context(), batch_steps, self._change_buffer, self._pending)
            if code == kernels.DONE:
                break
            self._grow(code)
        self._array("counts")[:2] += cursor[[kernels.N_SEARCHED, kernels.N_SWEPT]]
        moved = np.unique(self._pending.moved[: cursor[kernels.N_MOVED]])
        self._array("thresholds")[moved] = self._thetas[moved]
        self._moved = np.concatenate([self._moved, moved])
        return self._changes()

    def _filter(self, found: Matches) -> Matches:
        """Drop matches below the thresholds: a search in the middle of the batch may find them."""
        reach = found.scores >= self._array("thresholds")[found.slots]
        return found if reach.all() else Matches(found.rows[reach], found.slots[reach], found.scores[reach])

    def take_threshold_changes(self) -> ThresholdChanges:
        """Return the thresholds that have changed since the last call."""
        slots, self._moved = np.unique(self._moved), np.zeros(0, np.int32)
        in_use = self._array("heads")[slots, kernels.RESULT_SIZE] > 0
        return ThresholdChanges(slots[in_use], self._thetas[slots[in_use]].astype(np.float64))

    def result_size(self, slot: int) -> int:
        """Return k of a subscription."""
        return int(self._array("heads")[slot, kernels.RESULT_SIZE])

    def held(self, slots: npt.NDArray[np.int32]) -> Results:
        """Return the results of some subscriptions."""
        heads = self._array("heads")[slots]
        lengths = np.minimum(heads[:, kernels.SIZE], heads[:, kernels.RESULT_SIZE]).astype(np.int64)
        ends = np.cumsum(lengths)
        at = np.repeat(heads[:, kernels.START] - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)
        numbers = self._array("numbers")[at].astype(np.int64) + self._base
        store = self._window.store
        return Results(
            np.repeat(slots, lengths), store.of("seqs", numbers), self._array("scores")[at], store.ids(numbers)
        )

    def _first_results(self) -> Results:
        changes, store = self._change_buffer, self._window.store
        n = int(changes.cursor[kernels.N_OUT])
        numbers = changes.numbers[:n].copy()
        return Results(
            changes.slots[:n].copy(), store.of("seqs", numbers), changes.scores[:n].copy(), store.ids(numbers)
        )

    def _changes(self) -> Changes:
        changes, cursor = self._change_buffer, self._change_buffer.cursor
        n = int(cursor[kernels.N_OUT])
        return Changes(
            changes.steps[:n].copy(),
            changes.slots[:n].copy(),
            changes.enters[:n].copy(),
            changes.scores[:n].copy(),
            self._window.store.ids(changes.numbers[:n]),
            self._window.store.of("seqs", changes.numbers[:n]),
            None,
            int(cursor[kernels.N_ENTERED]),
        )

    @property
    def _buffers(self) -> kernels.BufferArrays:
        heads, queues = self._array("heads"), self._array("queues")
        scores, numbers, state = (self._array(name) for name in ("scores", "numbers", "state"))
        return kernels.BufferArrays(heads, heads.view(np.float32), scores, numbers, queues, state)

    @property
    def _thetas(self) -> npt.NDArray[np.float32]:
        return self._array("heads").view(np.float32)[:, kernels.THETA]

    @property
    def _keys(self) -> npt.NDArray[np.int64]:
        return self._window.store.keys

    def _horizon(self, *, in_order: bool) -> Horizon:
        state = self._window.store.state
        return Horizon(int(state[FIRST]), self._keys, int(state[HORIZON]), in_order)

    def _context(self) -> kernels.BufferContext:
        source = self._source.arrays(self._profiles.arrays, self._scratch)
        return kernels.BufferContext(self._buffers, self._keys, source)

    def _fit_terms(self, slots: npt.NDArray[np.int32]) -> None:
        """Make the scratch large enough for the terms of subscriptions."""
        most = int(self._profiles.arrays.heads[slots, 1].max())
        if len(self._scratch.order) < most:
            self._scratch = self._scratch._replace(
                order=np.zeros(2 * most, np.int64), bits=np.zeros(2 * most, np.int64)
            )

    def _grow(self, code: int) -> None:
        """Enlarge the array that was too small."""
        if code == kernels.POOL:
            state = self._array("state")
            needed = int(state[blocks.USED] + state[blocks.NEEDED])
            self._arena.grow_all([f"{_PREFIX}.{name}" for name in ("scores", "numbers")], needed)
        elif code == kernels.OUT:
            self._change_buffer = _make_changes(2 * len(self._change_buffer.steps), self._change_buffer)
        elif code == kernels.SCRATCH:
            larger = _make_scratch(2 * len(self._scratch.bounds))
            self._scratch = larger._replace(
                order=self._scratch.order, bits=self._scratch.bits, counts=self._scratch.counts
            )
        else:
            larger_pending = _make_pending(0, 2 * len(self._pending.slots))
            for name in ("links", "slots", "scores", "moved"):
                getattr(larger_pending, name)[: len(self._pending.slots)] = getattr(self._pending, name)
            self._pending = larger_pending._replace(heads=self._pending.heads, thresholds=self._pending.thresholds)

    def _fit_queues(self, first: int) -> None:
        """Make the ring of queues as large as those of the window; messages before the first have no queue."""
        before, size = self._array("queues"), len(self._window.store.arrays.seqs)
        if len(before) == size:
            return
        after = self._arena.renew(f"{_PREFIX}.queues", size)
        if len(before):
            numbers = np.arange(first, min(first + len(before), int(self._window.store.state[NEXT])))
            after[numbers & (size - 1)] = before[numbers & (len(before) - 1)]

    @property
    def _base(self) -> int:
        """The number that those in buffers are relative to."""
        return int(self._array("counts")[_BASE])

    def _follow_base(self) -> None:
        """Make numbers relative to the base of the lists, which may have moved."""
        by = self._source.base - self._base
        if by:
            kernels.move_numbers(self._buffers, by)
            self._array("counts")[_BASE] += by

    def _array(self, name: str) -> npt.NDArray[Any]:
        return self._arena[f"{_PREFIX}.{name}"]


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


def _make_scratch(n: int) -> search.SearchScratch:
    return search.SearchScratch(
        bounds=np.zeros(n, np.float32),
        numbers=np.zeros(n, np.int64),
        firsts=np.zeros(n, np.int16),
        bins=np.zeros(search.N_BINS, np.int32),
        query=np.zeros(16, np.float32),
        values=np.zeros(search.PIECE, np.float32),
        scores=np.zeros(n + 1),
        found=np.zeros(n + 1, np.int64),
        pending=np.zeros(n, np.int64),
        chosen=np.zeros(n, np.int64),
        order=np.zeros(16, np.int64),
        bits=np.zeros(16, np.int64),
        queued=np.zeros(_N_QUEUED, np.int32),
        counts=np.zeros(8, np.int64),
    )


def _make_changes(n: int, before: kernels.ChangeBuffer | None = None) -> kernels.ChangeBuffer:
    made = kernels.ChangeBuffer(
        np.zeros(n, np.int64),
        np.zeros(n, np.int32),
        np.zeros(n, np.bool_),
        np.zeros(n),
        np.zeros(n, np.int64),
        np.zeros(kernels.CURSOR, np.int64) if before is None else before.cursor,
    )
    if before is not None:
        for name in ("steps", "slots", "enters", "scores", "numbers"):
            getattr(made, name)[: len(before.steps)] = getattr(before, name)
    return made


def _make_pending(n_rows: int, n: int) -> kernels.PendingArrivals:
    return kernels.PendingArrivals(
        np.full(n_rows, -1, np.int32),
        np.zeros(n, np.int32),
        np.zeros(n, np.int32),
        np.zeros(n),
        np.zeros(n, np.int32),
        np.zeros(0, np.float32),
    )
