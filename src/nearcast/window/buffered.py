"""What are the k best of the window, at full speed? Buffers in an arena that reach below the k-th score.

    arrivals of a batch ── index, against theta ──┐
                                                  ├── step by step ── changes
    messages that leave ── queues ────────────────┘        │
                                                     a buffer ran short: search the window, weigh theta anew

Three policies say how far below the k-th score a buffer reaches: `cskyband` weighs what keeping costs against looking
again, `skyband` takes a factor of the k-th score, `kmax` keeps as many as fit into a factor of k. All are exact,
whatever the factor. See `_kernels.buffers`.

An index is asked once a batch, against the thetas as they are before it. A search in the middle of a batch may lower
a theta: it then looks at the messages that are yet to come as well, and notes those that the index was not asked for.

Cost: an arrival or expiry costs each subscription whose buffer it changes some hundred nanoseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast._jit import Arena
from nearcast.errors import InvalidInput, is_finite, require
from nearcast.model import Document, Matches, MessageBatch, ScoringContext, SubscriptionBatch
from nearcast.model._kernels import blocks
from nearcast.model.profiles import Profiles
from nearcast.model.subscription_columns import KeywordColumns
from nearcast.space import Box
from nearcast.space.metric import EARTH_RADIUS_M
from nearcast.window._kernels import buffers as kernels
from nearcast.window._kernels import params, search
from nearcast.window.lists import TermLists
from nearcast.window.result_store import Changes, Find, Moved, Results, ScoredMessage
from nearcast.window.sliding import SlidingWindow, Steps
from nearcast.window.social_window import SocialWindow
from nearcast.window.store import FIRST, HORIZON, NEXT


class Policy(NamedTuple):
    """How theta is chosen, and the factor that goes with it."""

    code: int
    factor: float = 0.0
    """Unless another is asked for."""
    within: tuple[float, float] | None = None
    """What else it may be; None for a policy that takes none."""


POLICIES = {
    "cskyband": Policy(params.COST_BASED),
    "skyband": Policy(params.FACTOR, 0.95, (0.0, 1.0)),
    "kmax": Policy(params.BOUNDED, 3.0, (1.0, 1000.0)),
}
"""Name -> policy: theta is weighed, a factor of the k-th score, or where as many messages as a factor of k are in."""

_PREFIX = "buffers"
_FAR = 1 << 30  # numbers past the base after which it is moved
_ROOM = 1 << 12
_LINE = 32  # subscriptions whose buffers are asked for before the first of them is needed
_EPSILON = 2.0**-20  # more than rounding to 32 bits costs a score
_LINES = 33  # of longitude and of latitude, by which the bounds are measured


class BufferedResults:
    """Keeps the k best of the window, and some more."""

    def __init__(
        self,
        scoring: ScoringContext,
        window: SlidingWindow,
        arena: Arena,
        *,
        kind: str = "topk",
        policy: str = "cskyband",
        factor: float | None = None,
        far: int = _FAR,
    ) -> None:
        self._window, self._arena, self._far = window, arena, far
        self._make_params = _make_params(scoring, window, _policy(policy, factor), is_social=kind == "social")
        self._profiles = Profiles(arena)
        if f"{_PREFIX}.state" not in arena:
            with arena.together():
                arena.new(f"{_PREFIX}.heads", np.int32, 0, columns=8)
                arena.new(f"{_PREFIX}.scores", np.float64, 0)
                arena.new(f"{_PREFIX}.numbers", np.int32, 0)
                arena.new(f"{_PREFIX}.queues", np.int32, 0, kernels.NOBODY)
                arena.new(f"{_PREFIX}.thresholds", np.float32, 0, -np.inf)
                arena.new(f"{_PREFIX}.counts", np.int64, 8)
                arena.new(f"{_PREFIX}.state", np.int64, blocks.STATE)[blocks.FIRST :] = -1
        self._lists = TermLists(arena, window, self._make_params)
        self._friends = SocialWindow(arena, window, self._make_params, scoring.social)
        self._scratch = _scratch(_ROOM)
        self._told = _told(_ROOM)
        self._later = _later(0, _ROOM)
        self._moved: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self._fit_queues(int(window.store.state[FIRST]))
        self._friends.catch_up(int(window.store.state[FIRST]), self._lists.signs)

    @property
    def searches(self) -> int:
        """How often the window was searched because a buffer ran short."""
        return int(self._array("counts")[0])

    @property
    def sizes(self) -> npt.NDArray[np.int32]:
        """How many messages each buffer holds."""
        heads = self._array("heads")
        sizes: npt.NDArray[np.int32] = heads[heads[:, kernels.ROOM_K] > 0, kernels.SIZE]
        return sizes

    def insert(self, slots: npt.NDArray[np.int32], subscription_batch: SubscriptionBatch) -> Results:
        """Take in subscriptions and return the best of the window for each."""
        if not len(slots):
            return Results.none()
        assert isinstance(subscription_batch.subscription_columns, KeywordColumns)
        self._profiles.insert(slots, subscription_batch.subscription_columns)
        self._arena.grow_all([f"{_PREFIX}.{name}" for name in ("heads", "thresholds")], int(slots.max()) + 1)
        state = self._window.store.state
        first, horizon, now = int(state[FIRST]), int(state[HORIZON]), int(state[NEXT]) - 1
        in_order = self._window.in_order
        self._friends.insert(slots, subscription_batch.subscription_columns)
        self._friends.catch_up(first, self._lists.signs)
        self._told.cursor[:] = 0
        self._need_terms(slots)
        done = 0
        while True:
            done, code = kernels.begin(self._context(), slots, done, now, first, horizon, in_order, self._told)
            if code == kernels.DONE:
                break
            self._make_room(code)
        self._array("thresholds")[slots] = self._thetas[slots]
        self._moved = np.concatenate([self._moved, slots])
        return self._told_results()

    def delete(self, slots: npt.NDArray[np.int32]) -> Results:
        """Forget subscriptions and return the results they had."""
        had = self.held(slots)
        kernels.end(self._buffers, self._lists.base, np.ascontiguousarray(slots))
        self._profiles.delete(slots)
        return had

    def restore(self, kept: Sequence[Results]) -> None:
        """Have them already: they are what the window says."""

    def publish(self, batch: MessageBatch, steps: Steps, find: Find) -> Changes:
        """Move on by a batch: search lists grow, the index is asked, buffers follow step by step."""
        self._move_base(steps.before)
        self._lists.catch_up(steps.before)
        self._friends.catch_up(steps.before, self._lists.signs)
        self._fit_queues(steps.before)
        rows, slots, scores = self._sift(find(0, len(batch)))
        first_number = int(steps.numbers[0]) if len(steps.numbers) else int(self._window.store.state[NEXT])
        happens = kernels.Batch(
            first_number, steps.of_rows, steps.horizons, steps.leaving, steps.leaving_steps,
            rows, slots, scores, steps.in_order,
        )  # fmt: skip
        cursor = self._told.cursor
        cursor[:] = 0
        cursor[kernels.ALIVE], cursor[kernels.NOW] = steps.before, first_number - 1
        cursor[kernels.FIRST_ROW], cursor[kernels.COMING] = first_number, kernels.NOBODY
        self._later = _later(len(batch), max(2 * len(batch), len(self._later.slots)))
        self._later = self._later._replace(thresholds=self._array("thresholds"))
        code = kernels.publish(self._context(), happens, self._told, self._later)
        while code != kernels.DONE:
            self._make_room(code)
            code = kernels.publish(self._context(), happens, self._told, self._later)
        self._lists.drop(steps.leaving, self._keys, in_order=steps.in_order)
        self._friends.drop(steps.leaving, self._keys, in_order=steps.in_order)
        self._array("counts")[:2] += cursor[[kernels.N_SEARCHED, kernels.N_SWEPT]]
        moved = np.unique(self._later.moved[: cursor[kernels.N_MOVED]])
        self._array("thresholds")[moved] = self._thetas[moved]
        self._moved = np.concatenate([self._moved, moved])
        return self._told_changes()

    def _sift(self, found: Matches) -> Matches:
        """Drop what an index reports beyond the bars that it was told: a search may yet turn it up."""
        reach = found.scores >= self._array("thresholds")[found.slots]
        return found if reach.all() else Matches(found.rows[reach], found.slots[reach], found.scores[reach])

    def moved(self) -> Moved:
        """Return whose bars have changed since the last time, and what they are now."""
        slots, self._moved = np.unique(self._moved), np.zeros(0, np.int32)
        held = self._array("heads")[slots, kernels.ROOM_K] > 0
        return Moved(slots[held], self._thetas[slots[held]].astype(np.float64))

    def results(self, slot: int) -> list[ScoredMessage]:
        """Return a result, best first."""
        return self.held(np.array([slot], np.int32)).by_slot().get(slot, [])

    def would_enter(self, slot: int, document: Document, score: float) -> bool:
        """Tell whether a message is in a result or, published now, would come in."""
        held = self.results(slot)
        if any(kept.seq == document.seq for kept in held):
            return True
        return len(held) < self._k(slot) or (score, document.seq) > (held[-1].score, held[-1].seq)

    def threshold(self, slot: int) -> float | None:
        """Return the score of the worst of k results; None if there is room."""
        held = self.results(slot)
        return held[-1].score if len(held) == self._k(slot) else None

    def _k(self, slot: int) -> int:
        return int(self._array("heads")[slot, kernels.ROOM_K])

    def held(self, slots: npt.NDArray[np.int32]) -> Results:
        """Return some results."""
        heads = self._array("heads")[slots]
        lengths = np.minimum(heads[:, kernels.SIZE], heads[:, kernels.ROOM_K]).astype(np.int64)
        ends = np.cumsum(lengths)
        at = np.repeat(heads[:, kernels.START] - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)
        numbers = self._array("numbers")[at].astype(np.int64) + self._lists.base
        store = self._window.store
        return Results(
            np.repeat(slots, lengths), store.of("seqs", numbers), self._array("scores")[at], store.ids(numbers)
        )

    def _told_results(self) -> Results:
        n = int(self._told.cursor[kernels.N_OUT])
        numbers, store = self._told.numbers[:n].copy(), self._window.store
        return Results(
            self._told.slots[:n].copy(), store.of("seqs", numbers), self._told.scores[:n].copy(), store.ids(numbers)
        )

    def _told_changes(self) -> Changes:
        told, cursor = self._told, self._told.cursor
        n = int(cursor[kernels.N_OUT])
        return Changes(
            told.steps[:n].copy(),
            told.slots[:n].copy(),
            told.enters[:n].copy(),
            told.scores[:n].copy(),
            self._window.store.ids(told.numbers[:n]),
            self._window.store.of("seqs", told.numbers[:n]),
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
        window = self._window.store.arrays
        return window.ats if self._make_params.by_time else window.seqs

    def _context(self) -> kernels.BufferContext:
        return kernels.BufferContext(
            self._make_params,
            self._buffers,
            self._lists.arrays,
            self._window.store.arrays,
            self._profiles.arrays,
            self._friends.arrays,
            self._lists.signs,
            self._keys,
            self._scratch,
        )

    def _need_terms(self, slots: npt.NDArray[np.int32]) -> None:
        most = int(self._profiles.arrays.heads[slots, 1].max())
        if len(self._scratch.order) < most:
            self._scratch = self._scratch._replace(
                order=np.zeros(2 * most, np.int64), shared=np.zeros(2 * most, np.int64)
            )

    def _make_room(self, code: int) -> None:
        """Make larger what was too small."""
        if code == kernels.POOL:
            state = self._array("state")
            needed = int(state[blocks.USED] + state[blocks.NEEDED])
            self._arena.grow_all([f"{_PREFIX}.{name}" for name in ("scores", "numbers")], needed)
        elif code == kernels.OUT:
            self._told = _told(2 * len(self._told.steps), self._told)
        elif code == kernels.SCRATCH:
            room = _scratch(2 * len(self._scratch.bounds))
            self._scratch = room._replace(
                order=self._scratch.order, shared=self._scratch.shared, counts=self._scratch.counts
            )
        else:
            grown = _later(0, 2 * len(self._later.slots))
            for name in ("links", "slots", "scores", "moved"):
                getattr(grown, name)[: len(self._later.slots)] = getattr(self._later, name)
            self._later = grown._replace(heads=self._later.heads, thresholds=self._later.thresholds)

    def _fit_queues(self, first: int) -> None:
        """Let the queues have as many places as the window has; who is before the first has none."""
        before, size = self._array("queues"), len(self._window.store.arrays.seqs)
        if len(before) == size:
            return
        after = self._arena.renew(f"{_PREFIX}.queues", size)
        if len(before):
            numbers = np.arange(first, min(first + len(before), int(self._window.store.state[NEXT])))
            after[numbers & (size - 1)] = before[numbers & (len(before) - 1)]

    def _move_base(self, first: int) -> None:
        """Count numbers from the first on, before they grow too large."""
        by = first - self._lists.base
        if by > 0 and int(self._window.store.state[NEXT]) - self._lists.base > self._far:
            kernels.move_numbers(self._buffers, by)
            self._lists.move_base(by)
            self._friends.move_base(by)

    def _array(self, name: str) -> npt.NDArray[Any]:
        return self._arena[f"{_PREFIX}.{name}"]


def _policy(name: str, factor: float | None) -> Policy:
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


def _make_params(
    scoring: ScoringContext, window: SlidingWindow, policy: Policy, *, is_social: bool
) -> params.BufferParams:
    space = scoring.space
    on_sphere = space.metric == "haversine"
    near_a_unit = (EARTH_RADIUS_M if on_sphere else 1.0) / space.max_distance
    least, greatest = _cube(space.bounds, on_sphere)
    side = max(float((greatest - least).max()), 1e-9)
    return params.BufferParams(
        on_sphere=on_sphere,
        max_distance=space.max_distance,
        near_a_unit=near_a_unit,
        x0=float(least[0]),
        y0=float(least[1]),
        z0=float(least[2]),
        unit=side / params.SPOT_MASK,
        margin=_EPSILON + side / params.SPOT_MASK * near_a_unit,
        is_social=is_social,
        by_time=window.policy is not None and window.policy.needs_time,
        policy=policy.code,
        factor=policy.factor,
    )


def _cube(bounds: Box, on_sphere: bool) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return corners of the frame between which everything in the bounds lies."""
    if not on_sphere:
        return np.array([bounds.xmin, bounds.ymin, 0.0]), np.array([bounds.xmax, bounds.ymax, 0.0])
    lines = [np.linspace(*ends, _LINES) for ends in ((bounds.xmin, bounds.xmax), (bounds.ymin, bounds.ymax))]
    corners = np.array([params.to_frame(True, x, y) for x in lines[0] for y in lines[1]])
    # Between lines a coordinate bulges by no more than this: its second derivatives are at most 1.
    bulge = sum(np.radians(line[1] - line[0]) ** 2 for line in lines) / 8
    return corners.min(axis=0) - bulge, corners.max(axis=0) + bulge


def _scratch(n: int) -> search.SearchScratch:
    return search.SearchScratch(
        bounds=np.zeros(n, np.float32),
        numbers=np.zeros(n, np.int64),
        firsts=np.zeros(n, np.int16),
        bins=np.zeros(search.N_BINS, np.int32),
        query=np.zeros(16, np.float32),
        values=np.zeros(search.PIECE, np.float32),
        scores=np.zeros(n + 1),
        found=np.zeros(n + 1, np.int64),
        later=np.zeros(n, np.int64),
        chosen=np.zeros(n, np.int64),
        order=np.zeros(16, np.int64),
        shared=np.zeros(16, np.int64),
        line=np.zeros(_LINE, np.int32),
        counts=np.zeros(8, np.int64),
    )


def _told(n: int, before: kernels.ChangeBuffer | None = None) -> kernels.ChangeBuffer:
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


def _later(n_rows: int, n: int) -> kernels.Later:
    return kernels.Later(
        np.full(n_rows, -1, np.int32),
        np.zeros(n, np.int32),
        np.zeros(n, np.int32),
        np.zeros(n),
        np.zeros(n, np.int32),
        np.zeros(0, np.float32),
    )
