"""What the papers' indexes of kind `topk` share: thresholds, term numbers, the terms of a message, and verification.

    match ── a message's terms, the rarest first ── candidates (each index in its own way) ── exact scores ── bars

Profiles of subscriptions are those of the engine, so that index and keeper hold one copy. What an index finds is
scored anew from there: sums along the way fall short wherever a list or group was skipped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import Arena, Table, TableArrays, column, kernel, mix, prefetch, table_get
from nearcast.index import scratch_pool
from nearcast.index.base import Matches, Work
from nearcast.model import MessageBatch, ScoringContext, SubscriptionBatch
from nearcast.model._kernels import blocks
from nearcast.model._kernels.profiles import ALPHA, LENGTH, RUN, ProfileArrays, X, Y, cosine, near
from nearcast.model.profiles import Profiles
from nearcast.model.subscription_columns import KeywordColumns

MARGIN = 1e-5
"""What rounding to float32 may cost a bound, several times over."""
LEAST = 1.0 / 1024
"""Where the paper divides by 1 - alpha, or by alpha: no less than this, which only loosens a bound."""
VISITED, CANDIDATES, VERIFIED = 0, 1, 2
"""Places in the counters."""
_ROOM = 1 << 12  # matches
_AT_ONCE = 1 << 14  # items, for which room is made at the least


class Columns(NamedTuple):
    """A slate or a batch: points and terms."""

    xs: NDArray[np.float64]
    ys: NDArray[np.float64]
    indptr: NDArray[np.int64]
    term_ids: NDArray[np.int64]
    idfs: NDArray[np.float64]
    units: NDArray[np.float64]


class Ground(NamedTuple):
    """What every index stands on."""

    on_sphere: bool
    max_distance: float
    profiles: ProfileArrays
    terms: TableArrays
    """Term number -> dense number."""
    thresholds: NDArray[np.float64]
    """float64 (n_slots,): NaN for a slot that is free."""
    run_numbers: NDArray[np.int32]
    """int32 (n,): the dense number of each term, parallel to the runs of profiles."""


class Scratch(NamedTuple):
    """Room for one message."""

    numbers: NDArray[np.int64]
    """int64 (n_terms,): dense numbers of the terms that somebody has, the rarest first."""
    weights: NDArray[np.float64]
    """float64 (n_terms,): the weight of each."""
    greatest: NDArray[np.float64]
    """float64 (n_terms + 1,): the greatest weight from each on (equation 4); 0 past the end."""
    sums: NDArray[np.float64]
    """float64 (n_terms + 1,): the sum of the weights from each on; 0 past the end."""
    places: NDArray[np.int64]
    """int64 (2 x n_terms,): places in the runs of profiles, for indexes that need them."""
    found: NDArray[np.int32]
    """int32 (n_slots,): candidates."""
    seen: NDArray[np.int64]
    """int64 (1 + n_slots,): the number of the message; then, by slot, the last message that met it."""


class Output(NamedTuple):
    """Where matches go."""

    slots: NDArray[np.int32]
    scores: NDArray[np.float64]
    ends: NDArray[np.int64]
    """int64 (n_rows,): where the matches of each row end."""
    work: NDArray[np.int64]
    """int64 (3,): visited, candidates, verified."""


@kernel
def by_falling_idf(idfs: NDArray[np.float64], first: int, stop: int, places: NDArray[np.int64]) -> None:
    """Write the places of terms by falling idf, of equal ones by number: the rarest first."""
    for i in range(first, stop):
        at = i - first
        while at > 0 and idfs[places[at - 1]] < idfs[i]:
            places[at] = places[at - 1]
            at -= 1
        places[at] = i


@kernel
def enter(terms: TableArrays, batch: Columns, row: int, scratch: Scratch) -> int:
    """Write down the terms of a message that somebody has, the rarest first; return how many there are."""
    first, stop = batch.indptr[row], batch.indptr[row + 1]
    by_falling_idf(batch.idfs, first, stop, scratch.places)
    n = 0
    for i in range(stop - first):
        number = table_get(terms, batch.term_ids[scratch.places[i]], -1)
        if number >= 0:
            scratch.numbers[n] = number
            scratch.weights[n] = batch.units[scratch.places[i]]
            n += 1
    scratch.greatest[n] = scratch.sums[n] = 0.0
    for i in range(n - 1, -1, -1):
        scratch.greatest[i] = max(scratch.greatest[i + 1], scratch.weights[i])
        scratch.sums[i] = scratch.sums[i + 1] + scratch.weights[i]
    return n


@kernel
def look_up(tags: NDArray[np.uint8], entries: NDArray[np.int64], key: int) -> int:
    """Return the value of a key, or -1: `table_get` for inner loops, which handing on tuples slows down."""
    last, mixed = tags.size - 1, mix(key)
    tag, slot = 128 | (mixed & 127), (mixed >> 7) & last
    while tags[slot] != 0:
        if tags[slot] == tag and entries[slot, 0] == key:
            return entries[slot, 1]  # type: ignore[no-any-return]
        slot = (slot + 1) & last
    return -1


@kernel
def verify(
    ground: Ground, batch: Columns, row: int, found: NDArray[np.int32], n_found: int, out: Output, total: int
) -> int:
    """Score candidates and write the matches; return how many there are in all, or -1 if they may not fit."""
    if total + n_found > out.slots.size:
        return -1
    x, y, first, stop = batch.xs[row], batch.ys[row], batch.indptr[row], batch.indptr[row + 1]
    term_ids, units, slots, scores, thresholds = batch.term_ids, batch.units, out.slots, out.scores, ground.thresholds
    points, heads, run_terms, run_units, _ = ground.profiles
    on_sphere, max_distance = ground.on_sphere, ground.max_distance
    for i in range(n_found):
        prefetch(heads, found[i])
        prefetch(points, found[i])
        prefetch(thresholds, found[i])
    for i in range(n_found):
        prefetch(run_terms, heads[found[i], RUN])
        prefetch(run_units, heads[found[i], RUN])
    for i in range(n_found):
        slot = found[i]
        run, alpha = heads[slot, RUN], points[slot, ALPHA]
        shared, text = cosine(
            run_terms, run_units, run, run + heads[slot, LENGTH], term_ids, units, units, first, stop
        )
        score = alpha * near(points[slot, X], points[slot, Y], x, y, on_sphere, max_distance) + (1.0 - alpha) * text
        if shared >= 0 and score >= thresholds[slot]:
            slots[total] = slot
            scores[total] = score
            total += 1
    out.work[CANDIDATES] += n_found
    out.work[VERIFIED] += n_found
    return total


@kernel
def threshold_of_bound(threshold: float) -> float:
    """Return a bar to hold bounds against; no score is outside of [0, 1]."""
    return min(max(threshold, -1.0), 2.0) - MARGIN


class Workspace(scratch_pool.Workspace):
    """Room to match."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = max(room, 1)
        self.scratch = self._scratch(8, 0)

    @staticmethod
    def _scratch(n_terms: int, n_slots: int) -> Scratch:
        return Scratch(
            np.zeros(n_terms, np.int64),
            np.zeros(n_terms),
            np.zeros(n_terms + 1),
            np.zeros(n_terms + 1),
            np.zeros(2 * n_terms, np.int64),
            np.zeros(n_slots, np.int32),
            np.zeros(1 + n_slots, np.int64),
        )

    def need(self, n_terms: int, n_slots: int) -> None:
        """Make room for a message of so many terms and for so many slots; what was seen is forgotten with it."""
        if n_terms > self.scratch.numbers.size or n_slots > self.scratch.found.size:
            terms = max(2 * n_terms, self.scratch.numbers.size)
            self.scratch = self._scratch(terms, max(n_slots, self.scratch.found.size))

    @property
    def nbytes(self) -> int:
        """Bytes of the room to work."""
        return sum(array.nbytes for array in self.scratch)


class BaselineIndex(ABC):
    """One of the papers' indexes, behind the protocol: how it posts, withdraws, moves bars and finds is its own."""

    def __init__(self, scoring: ScoringContext, arena: Arena, *, room: int = _ROOM) -> None:
        self._scoring, self._scratch_pool = scoring, scratch_pool.ScratchPool(lambda: Workspace(room))
        self._profiles, self._arena = Profiles(arena), Arena()
        self._terms = Table(self._arena, "terms")
        self._arena.new("ground.thresholds", np.float64, 0, np.nan)
        self._arena.new("ground.run_numbers", np.int32, 0)

    @property
    def work(self) -> Work:
        """How much was done so far."""
        return self._scratch_pool.work

    @property
    def nbytes(self) -> int:
        """Bytes of everything, profiles and room to work included."""
        return self._arena.nbytes + self._profiles.nbytes + self._scratch_pool.nbytes

    def insert(self, slots: NDArray[np.int32], subscription_batch: SubscriptionBatch) -> None:
        """Take in subscriptions under slots that are free, their bars open."""
        subscription_columns = subscription_batch.columns
        assert isinstance(subscription_columns, KeywordColumns)
        if not len(slots):
            return
        slots = column(slots, np.int32)
        self._profiles.insert(slots, subscription_columns)
        self._arena.grow("ground.thresholds", int(slots.max()) + 1)[slots] = -np.inf
        self._arena.grow("ground.run_numbers", self._profiles.arrays.run_terms.size)
        columns = _columns(subscription_columns)
        runs = self._profiles.arrays.heads[slots, 0].astype(np.int64)
        first, stop = int(columns.indptr[0]), int(columns.indptr[-1])
        places = np.repeat(runs - columns.indptr[:-1], np.diff(columns.indptr)) + np.arange(first, stop)
        self._arena["ground.run_numbers"][places] = self._number(columns.term_ids[first:stop])
        self._post(slots, columns, places)

    def delete(self, slots: NDArray[np.int32]) -> None:
        """Forget the subscriptions of some slots; their profiles must still be there."""
        slots = self._held(slots)
        if slots.size:
            self._withdraw(slots)
            self._arena["ground.thresholds"][slots] = np.nan
            self._profiles.delete(slots)

    def set_thresholds(self, slots: NDArray[np.int32], thresholds: NDArray[np.float64]) -> None:
        """Say which score messages have to reach from now on."""
        slots, thresholds = column(slots, np.int32), column(thresholds, np.float64)
        held = ~np.isnan(self._arena["ground.thresholds"][slots])
        slots, thresholds = slots[held], thresholds[held]
        if slots.size:
            self._move(slots, thresholds)

    def match(self, batch: MessageBatch, start: int, stop: int) -> Matches:
        """Return the pairs that share a term and reach the bar that was set."""
        columns, n_rows = _columns(batch), max(stop - start, 0)
        with self._scratch_pool.take() as workspace:
            if n_rows:
                most = int(np.diff(columns.indptr[start : stop + 1]).max())
                workspace.need(most, self._arena["ground.thresholds"].size)
            out = Output(np.empty(workspace.room, np.int32), np.empty(workspace.room), np.zeros(n_rows, np.int64),
                         np.zeros(3, np.int64))  # fmt: skip
            row = start
            while row < stop:
                row = self._match_rows(columns, row, stop, start, workspace.scratch, out)
                if row < stop:
                    workspace.room *= 2
                    out = out._replace(
                        slots=np.resize(out.slots, workspace.room), scores=np.resize(out.scores, workspace.room)
                    )
            n = int(out.ends[-1]) if n_rows else 0
            visited, candidates, verified = out.work.tolist()
            workspace.count(visited=visited, candidates=candidates, verified=verified, matched=n)
        rows = start + np.repeat(np.arange(n_rows, dtype=np.int64), np.diff(out.ends, prepend=0))
        return Matches(rows, out.slots[:n].copy(), out.scores[:n].copy())

    @abstractmethod
    def _post(self, slots: NDArray[np.int32], columns: Columns, places: NDArray[np.int64]) -> None:
        """Add subscriptions; `places` are those of their terms in the runs of profiles."""

    @abstractmethod
    def _withdraw(self, slots: NDArray[np.int32]) -> None:
        """Remove subscriptions."""

    @abstractmethod
    def _move(self, slots: NDArray[np.int32], thresholds: NDArray[np.float64]) -> None:
        """Follow thresholds that have changed."""

    @abstractmethod
    def _match_rows(self, batch: Columns, row: int, stop: int, first: int, scratch: Scratch, out: Output) -> int:
        """Match messages from `row` on; return the one whose matches do not fit, or `stop`."""

    def _ground(self) -> Ground:
        space = self._scoring.space
        return Ground(
            space.metric == "haversine",
            space.max_distance,
            self._profiles.arrays,
            self._terms.arrays,
            self._arena["ground.thresholds"],
            self._arena["ground.run_numbers"],
        )

    def _new_pool(self, prefix: str, kind: Any, dtypes: dict[str, Any]) -> None:
        """Make the arrays of a structure, empty; a pair as dtype is a dtype and a number of columns."""
        for field in kind._fields:
            dtype, columns = dtypes[field] if isinstance(dtypes[field], tuple) else (dtypes[field], None)
            self._arena.new(f"{prefix}.{field}", dtype, 0, columns=columns)

    def _new_state(self, name: str) -> None:
        self._arena.new(name, np.int64, blocks.STATE)[blocks.FIRST :] = -1

    def _grow(self, prefix: str, kind: Any, used: int, needed: int) -> None:
        """Make room in a structure of which some is used for what is needed, and more."""
        if needed:
            names = [f"{prefix}.{field}" for field in kind._fields]
            self._arena.grow_all(names, used + max(needed, _AT_ONCE))

    def _held(self, slots: NDArray[np.int32]) -> NDArray[np.int32]:
        slots = column(slots, np.int32)
        held: NDArray[np.int32] = slots[~np.isnan(self._arena["ground.thresholds"][slots])]
        return held

    def _number(self, ids: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return dense numbers of terms, and give new ones the next."""
        distinct, inverse = np.unique(ids, return_inverse=True)
        numbers = self._terms.get_many(distinct)
        new = np.flatnonzero(numbers < 0)
        numbers[new] = np.arange(len(self._terms), len(self._terms) + len(new))
        self._terms.put_many(distinct[new], numbers[new])
        return numbers[inverse].astype(np.int32)


def _columns(source: KeywordColumns | MessageBatch) -> Columns:
    return Columns(
        column(source.xs, np.float64),
        column(source.ys, np.float64),
        column(source.term_indptr, np.int64),
        column(source.term_ids, np.int64),
        column(source.idfs, np.float64),
        column(source.units, np.float64),
    )
