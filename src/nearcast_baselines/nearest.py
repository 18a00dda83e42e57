"""The index of DkM-SKS (section 4.3), over flat arrays.

    grid        term and cell ──> subscriptions with the term whose ball B(s) overlaps the cell
    inverted    the same with a single cell: an inverted file alone (section 3.1)

A message looks up its terms in its cell, and measures the distance to each subscription there. A subscription without
k results has no ball: the paper puts it into every cell.

Kinder than the paper: a subscription in more than MOST_CELLS cells, or without a ball, stands once, on a list of its
term that every message with the term reads. The messages read the same postings, and the cells of a million balls
would not fit into memory. A ball that shrinks is posted again once it overlaps half as many cells; its old postings
carry an older version, and are removed when a message reads past them, as with deletions. The difference in latitude
alone rules out most subscriptions that are far away.

Cost: a cache miss or two for every subscription that shares a term, in the cell or on the list of the term.
"""

from __future__ import annotations

from functools import partial
from math import asin, cos, degrees, inf, isnan, pi, radians, sin
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast._jit import (
    Arena,
    PostingArrays,
    Postings,
    Table,
    TableArrays,
    column,
    kernel,
    postings_first,
    postings_next,
    postings_remove_at,
    table_get,
)
from nearcast.index import scratch_pool
from nearcast.index.base import Matches, Work
from nearcast.model import MessageBatch, ScoringContext, SubscriptionBatch
from nearcast.model._kernels.profiles import LENGTH, RUN, ProfileArrays, X, Y, euclidean, haversine
from nearcast.model.profiles import Profiles
from nearcast.model.subscription_columns import KeywordColumns
from nearcast.space.metric import EARTH_RADIUS_M

CELLS = 64
"""Along each axis."""
MOST_CELLS = 16
_CELL_BITS = 13
_LOW = 0xFFFFFFFF
_VISITED, _CANDIDATES, _VERIFIED, _FILLED, _MET = range(5)
_ROOM = 1 << 12  # matches
_MOST_MET = 1 << 12
_A_DEGREE = EARTH_RADIUS_M * pi / 180.0 * (1.0 - 1e-9)  # never overestimates


class World(NamedTuple):
    """Where cells are."""

    on_sphere: bool
    cells: int
    x0: float
    y0: float
    """Half of the least coordinates of the bounds."""
    a_half_x: float
    a_half_y: float
    """Cells in half a unit."""


class Balls(NamedTuple):
    """By slot."""

    thresholds: npt.NDArray[np.float64]
    """float64 (n_slots,): radius; infinite without one, NaN for a free slot."""
    ranges: npt.NDArray[np.int32]
    """int32 (n_slots, 4): the first and last cell along x, then y, under which it is posted; -1 for everywhere."""
    versions: npt.NDArray[np.int32]
    """int32 (n_slots,): entries with another one are stale."""


class Lists(NamedTuple):
    """The inverted lists of all cells."""

    terms: TableArrays
    """Term id -> number."""
    rows: TableArrays
    """Number and cell -> list; cell 0 is everywhere."""
    postings: PostingArrays
    """Items are a slot, and above it the version."""


class Messages(NamedTuple):
    """Messages to match."""

    xs: npt.NDArray[np.float64]
    ys: npt.NDArray[np.float64]
    term_indptr: npt.NDArray[np.int64]
    term_ids: npt.NDArray[np.int64]


class Found(NamedTuple):
    """Where matching writes."""

    slots: npt.NDArray[np.int32]
    scores: npt.NDArray[np.float64]
    counts: npt.NDArray[np.int64]
    """int64 (rows,): how many of them each row has."""
    met: npt.NDArray[np.int64]
    """int64 (room,): lists on which stale entries were met; those that find no room will be met again."""
    work: npt.NDArray[np.int64]
    """int64 (5,): visited, candidates, verified, how many matches there are, how many lists were met."""


@kernel
def _cell(half_value: float, half_low: float, a_half: float, cells: int) -> int:
    return int(min(max((half_value - half_low) * a_half, 0.0), cells - 1.0))


@kernel
def _cell_of(world: World, x: float, y: float) -> int:
    """Return the cell of a point, from 1 on."""
    across = _cell(x * 0.5, world.x0, world.a_half_x, world.cells)
    return 1 + across + world.cells * _cell(y * 0.5, world.y0, world.a_half_y, world.cells)


@kernel
def _extent(on_sphere: bool, x: float, y: float, radius: float) -> tuple[float, float]:
    """Return how far a ball reaches along x and y; never underestimates, and boxes do not wrap: see `Space.reach`."""
    if not on_sphere:
        reach = radius * (1.0 + 1e-12) + 1e-12 * max(abs(x), abs(y)) + 1e-150
        return reach, reach
    angle = radius / EARTH_RADIUS_M + 1e-9
    dx, dy = 360.0, degrees(angle)
    if angle < pi / 2 and abs(y) + dy < 90.0:
        dx = degrees(asin(min(1.0, sin(angle) / cos(radians(y))))) + 1e-9
    return (360.0 if x - dx < -180.0 or x + dx > 180.0 else dx), dy


@kernel
def _set_thresholds(
    world: World,
    profiles: ProfileArrays,
    balls: Balls,
    slots: npt.NDArray[np.int32],
    thresholds: npt.NDArray[np.float64],
    moved: npt.NDArray[np.int32],
) -> int:
    """Change bars; write the slots that are to be posted anew, with their ranges, and return how many there are."""
    n, span = 0, np.empty(4, np.int32)
    for i in range(slots.size):
        slot, threshold = slots[i], thresholds[i] if thresholds[i] < inf else inf
        if isnan(balls.thresholds[slot]):
            continue
        balls.thresholds[slot] = threshold
        x, y = float(profiles.points[slot, X]), float(profiles.points[slot, Y])
        dx, dy = _extent(world.on_sphere, x, y, max(float(threshold), 0.0))
        for side in range(2):
            sign = 2.0 * side - 1.0
            span[side] = _cell(x * 0.5 + sign * dx * 0.5, world.x0, world.a_half_x, world.cells)
            span[2 + side] = _cell(y * 0.5 + sign * dy * 0.5, world.y0, world.a_half_y, world.cells)
        n_cells = (span[1] - span[0] + 1) * (span[3] - span[2] + 1)
        before, held = balls.ranges[slot], MOST_CELLS + 1
        if before[0] >= 0:
            held = (before[1] - before[0] + 1) * (before[3] - before[2] + 1)
        grows = before[0] >= 0 and (
            span[0] < before[0] or span[1] > before[1] or span[2] < before[2] or span[3] > before[3]
        )
        is_wide = n_cells > MOST_CELLS or n_cells == world.cells * world.cells
        if grows or (not is_wide and (held > MOST_CELLS or 2 * n_cells <= held)):
            for side in range(4):
                balls.ranges[slot, side] = -1 if is_wide else span[side]
            moved[n] = slot
            n += 1
    return n


@kernel
def _count_keys(balls: Balls, heads: npt.NDArray[np.int32], slots: npt.NDArray[np.int32]) -> int:
    """Return how many entries subscriptions have."""
    n = 0
    for slot in slots:
        span = balls.ranges[slot]
        n += heads[slot, LENGTH] * ((span[1] - span[0] + 1) * (span[3] - span[2] + 1) if span[0] >= 0 else 1)
    return n


@kernel
def _write_keys(
    world: World,
    profiles: ProfileArrays,
    balls: Balls,
    terms: TableArrays,
    slots: npt.NDArray[np.int32],
    keys: npt.NDArray[np.int64],
    items: npt.NDArray[np.int64],
) -> None:
    """Write, for each term and cell of subscriptions, under which key they stand and as what, in a new version."""
    n = 0
    for slot in slots:
        balls.versions[slot] += 1
        item = int(slot) | (int(balls.versions[slot]) << 32)
        span, run = balls.ranges[slot], profiles.heads[slot, RUN]
        for i in range(run, run + profiles.heads[slot, LENGTH]):
            key = table_get(terms, profiles.run_terms[i], -1) << _CELL_BITS
            if span[0] < 0:
                keys[n], items[n] = key, item
                n += 1
                continue
            for y in range(span[2], span[3] + 1):
                for x in range(span[0], span[1] + 1):
                    keys[n], items[n] = key | (1 + x + world.cells * y), item
                    n += 1


@kernel
def _first_shared(profiles: ProfileArrays, slot: int, message: npt.NDArray[np.int64]) -> int:
    """Return the first term that a subscription shares with a message, both ascending; there is one."""
    at, other = profiles.heads[slot, RUN], 0
    while profiles.run_terms[at] != message[other]:
        if profiles.run_terms[at] < message[other]:
            at += 1
        else:
            other += 1
    return int(message[other])


@kernel
def _scan(
    world: World,
    profiles: ProfileArrays,
    balls: Balls,
    postings: PostingArrays,
    row: int,
    point: tuple[float, float],
    message: npt.NDArray[np.int64],
    term: int,
    found: Found,
) -> None:
    """Measure the subscriptions of a list, and note it if some entries are stale."""
    work, thresholds, points, n_stale = found.work, balls.thresholds, profiles.points, 0
    x, y = point
    unit = _A_DEGREE if world.on_sphere else 1.0
    chunk, n = postings_first(postings, row)
    while n > 0:
        work[_VISITED] += n
        for place in range(n):
            item = postings.items[chunk, place]
            slot = item & _LOW
            if balls.versions[slot] != item >> 32:
                n_stale += 1
                continue
            work[_CANDIDATES] += 1
            threshold = thresholds[slot]
            ax, ay = float(points[slot, X]), float(points[slot, Y])  # uncompiled: may become infinite
            if abs(ay - y) * unit > threshold:
                continue
            work[_VERIFIED] += 1
            score = haversine(ax, ay, x, y) if world.on_sphere else euclidean(ax, ay, x, y)
            if (score < threshold or threshold == inf) and _first_shared(profiles, slot, message) == term:
                found.slots[work[_FILLED]] = slot
                found.scores[work[_FILLED]] = score
                work[_FILLED] += 1
        chunk, n = postings_next(postings, row, chunk)
    if n_stale > 0 and work[_MET] < found.met.size:
        found.met[work[_MET]] = row
        work[_MET] += 1


@kernel
def _match(
    world: World,
    profiles: ProfileArrays,
    balls: Balls,
    lists: Lists,
    messages: Messages,
    start: int,
    stop: int,
    found: Found,
) -> int:
    """Match messages from row `start` on; return the row that may not find room, or `stop`."""
    work, before = found.work, np.empty(5, np.int64)
    for row in range(start, stop):
        before[:] = work
        x, y = float(messages.xs[row]), float(messages.ys[row])
        cell = _cell_of(world, x, y)
        message = messages.term_ids[messages.term_indptr[row] : messages.term_indptr[row + 1]]
        for term in message:
            number = table_get(lists.terms, term, -1)
            if number < 0:
                continue
            for where in (0, cell):
                found_row = table_get(lists.rows, (number << _CELL_BITS) | where, -1)
                if found_row < 0:
                    continue
                if work[_FILLED] + lists.postings.lengths[found_row] > found.slots.size:
                    work[:] = before
                    return row
                _scan(world, profiles, balls, lists.postings, found_row, (x, y), message, term, found)
        found.counts[row] = work[_FILLED] - before[_FILLED]
    return stop


@kernel
def _sweep(postings: PostingArrays, versions: npt.NDArray[np.int32], rows: npt.NDArray[np.int64]) -> None:
    """Drop what is stale from some lists."""
    for row in rows:
        chunk, n = postings_first(postings, row)
        while n > 0:
            place = 0
            while place < n:
                item = postings.items[chunk, place]
                if versions[item & _LOW] != item >> 32:
                    n = postings_remove_at(postings, row, chunk, place)
                else:
                    place += 1
            if n > 0:
                chunk, n = postings_next(postings, row, chunk)


class Workspace(scratch_pool.Workspace):
    """Room to match."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.slots, self.scores = np.empty(room, np.int32), np.empty(room)
        self.met = np.empty(_MOST_MET, np.int64)


class Grid:
    """Balls in a uniform grid of inverted lists; with a single cell, an inverted file."""

    def __init__(
        self, scoring: ScoringContext, arena: Arena | None = None, *, cells: int = CELLS, room: int = _ROOM
    ) -> None:
        self._scratch_pool = scratch_pool.ScratchPool(lambda: Workspace(room))
        self._met: set[int] = set()  # lists
        self._world = _world(scoring, cells)
        self._profiles = Profiles(Arena() if arena is None else arena)
        self._arena = Arena()
        self._arena.new("balls.thresholds", np.float64, 0, np.nan)
        self._arena.new("balls.ranges", np.int32, 0, -1, columns=4)
        self._arena.new("balls.versions", np.int32, 0)
        self._terms, self._rows = Table(self._arena, "terms"), Table(self._arena, "rows")
        self._postings = Postings(self._arena, "postings", chunk_size=4)

    @property
    def work(self) -> Work:
        """How much was done so far."""
        return self._scratch_pool.work

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return self._arena.nbytes + self._profiles.nbytes

    def insert(self, slots: npt.NDArray[np.int32], subscription_batch: SubscriptionBatch) -> None:
        """Take in subscriptions under slots that are free, without a ball."""
        assert isinstance(subscription_batch.columns, KeywordColumns)
        if len(slots):
            slots = column(slots, np.int32)
            self._profiles.insert(slots, subscription_batch.columns)
            self._arena.grow_all([f"balls.{name}" for name in Balls._fields], int(slots.max()) + 1)
            self._arena["balls.thresholds"][slots] = np.inf
            self._arena["balls.ranges"][slots] = -1
            _number(self._terms, column(subscription_batch.columns.term_ids, np.int64))
            self._post(slots)

    def delete(self, slots: npt.NDArray[np.int32]) -> None:
        """Let the entries of some slots become stale."""
        here = column(slots, np.int32)
        here = here[~np.isnan(self._arena["balls.thresholds"][here])]
        self._clean()
        self._arena["balls.versions"][here] += 1
        self._arena["balls.thresholds"][here] = np.nan
        self._profiles.delete(here)

    def set_thresholds(self, slots: npt.NDArray[np.int32], thresholds: npt.NDArray[np.float64]) -> None:
        """Set the radius of balls; those that overlap far fewer cells are posted anew."""
        self._clean()
        moved = np.empty(len(slots), np.int32)
        slots, thresholds = column(slots, np.int32), column(thresholds, np.float64)
        n = _set_thresholds(self._world, self._profiles.arrays, self._balls, slots, thresholds, moved)
        self._post(moved[:n])

    def match(self, batch: MessageBatch, start: int, stop: int) -> Matches:
        """Return the pairs that share a term and are nearer than the bar that was set."""
        lists = Lists(self._terms.arrays, self._rows.arrays, self._postings.arrays)
        messages = Messages(
            column(batch.xs, np.float64),
            column(batch.ys, np.float64),
            column(batch.term_indptr, np.int64),
            column(batch.term_ids, np.int64),
        )
        ground = self._world, self._profiles.arrays, self._balls, lists, messages
        with self._scratch_pool.take() as workspace:
            found = Found(
                workspace.slots, workspace.scores, np.empty(stop, np.int64), workspace.met, np.zeros(5, np.int64)
            )
            row = _match(*ground, start, stop, found)
            while row < stop:
                workspace.slots = np.concatenate([found.slots, np.empty_like(found.slots)])
                workspace.scores = np.concatenate([found.scores, np.empty_like(found.scores)])
                found = found._replace(slots=workspace.slots, scores=workspace.scores)
                row = _match(*ground, row, stop, found)
            visited, candidates, verified, n, n_met = found.work.tolist()
            workspace.count(visited=visited, candidates=candidates, verified=verified, matched=n)
            if n_met:
                self._met.update(found.met[:n_met].tolist())  # one step for all threads
            rows = np.repeat(np.arange(start, stop), found.counts[start:stop])
            return Matches(rows, found.slots[:n].copy(), found.scores[:n].copy())

    @property
    def _balls(self) -> Balls:
        return self._arena.bundle("balls", Balls)

    def _post(self, slots: npt.NDArray[np.int32]) -> None:
        """Post subscriptions under the cells of their ranges; what they were posted as before is stale."""
        if not len(slots):
            return
        profiles, balls = self._profiles.arrays, self._balls
        n = _count_keys(balls, profiles.heads, slots)
        keys, items = np.empty(n, np.int64), np.empty(n, np.int64)
        _write_keys(self._world, profiles, balls, self._terms.arrays, slots, keys, items)
        self._postings.append_many(_number(self._rows, keys), items)

    def _clean(self) -> None:
        """Drop stale entries from the lists on which messages met them."""
        if self._met:
            _sweep(self._postings.arrays, self._arena["balls.versions"], column(sorted(self._met), np.int64))
            self._met.clear()


Inverted = partial(Grid, cells=1)


def _world(scoring: ScoringContext, cells: int) -> World:
    bounds = scoring.space.bounds
    halves = np.array([bounds.xmax / 2 - bounds.xmin / 2, bounds.ymax / 2 - bounds.ymin / 2])
    with np.errstate(divide="ignore", over="ignore"):
        a_half = np.minimum(cells / halves, np.finfo(np.float64).max).tolist()
    return World(scoring.space.metric == "haversine", cells, bounds.xmin / 2, bounds.ymin / 2, *a_half)


def _number(table: Table, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the values of keys, and give new keys the next ones."""
    distinct, inverse = np.unique(keys, return_inverse=True)
    values = table.get_many(distinct)
    new = np.flatnonzero(values < 0)
    values[new] = np.arange(len(table), len(table) + len(new))
    table.put_many(distinct[new], values[new])
    return values[inverse]
