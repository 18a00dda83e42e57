"""The common part of the papers' indexes of kind `topk`: thresholds, term numbers, terms of a message, verification.

    match ── terms, rarest first ── candidates, found by each index in its way ── exact scores ── thresholds

Profiles of subscriptions are those of the engine, so that the index and the result store share one copy. Candidates
are scored from their profiles: sums over postings are incomplete wherever a list or group was skipped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import Arena, Table, TableArrays, column, kernel, mix, prefetch, table_get
from nearcast.index._kernels.shared.output import CANDIDATES, VERIFIED, MatchOutput
from nearcast.index._kernels.topk.layout import TopKColumns
from nearcast.index.base import Matches, Work
from nearcast.index.scratch_pool import OutputWorkspace, ScratchPool
from nearcast.model import MessageBatch, ScoringContext, SubscriptionBatch
from nearcast.model._kernels import blocks
from nearcast.model._kernels.profiles import ALPHA, LENGTH, RUN, ProfileArrays, X, Y, topk_score
from nearcast.model.profiles import Profiles
from nearcast.model.subscription_columns import KeywordColumns
from nearcast_baselines.dense_numbers import number_keys

MARGIN = 1e-5
"""Several times the greatest error of a bound through rounding to float32."""
LEAST = 1.0 / 1024
"""The least divisor where the paper divides by 1 - alpha or by alpha; it only loosens a bound."""
ROOM = 1 << 12
"""Matches for which an output has room at first."""
_MIN_GROWTH = 1 << 14  # items


class IndexContext(NamedTuple):
    """Arrays that every index uses."""

    on_sphere: bool
    max_distance: float
    profiles: ProfileArrays
    terms: TableArrays
    """Term id -> dense number."""
    thresholds: NDArray[np.float64]
    """float64 (n_slots,): NaN for a free slot."""
    run_numbers: NDArray[np.int32]
    """int32 (n,): the dense number of each term, parallel to the runs of profiles."""


class Scratch(NamedTuple):
    """Scratch arrays of one message."""

    numbers: NDArray[np.int64]
    """int64 (n_terms,): dense numbers of the terms that some subscription has, rarest first."""
    weights: NDArray[np.float64]
    """float64 (n_terms,): the weight of each."""
    greatest: NDArray[np.float64]
    """float64 (n_terms + 1,): the greatest weight from each on (equation 4); 0 past the end."""
    sums: NDArray[np.float64]
    """float64 (n_terms + 1,): the sum of the weights from each on; 0 past the end."""
    places: NDArray[np.int64]
    """int64 (2 x n_terms,): positions in the runs of profiles, for indexes that need them."""
    found: NDArray[np.int32]
    """int32 (n_slots,): candidates."""
    seen: NDArray[np.int64]
    """int64 (1 + n_slots,): the number of the message; then, by slot, the last message that found it."""


@kernel
def by_falling_idf(idfs: NDArray[np.float64], first: int, stop: int, places: NDArray[np.int64]) -> None:
    """Write the positions of terms by falling idf, ties by position."""
    for i in range(first, stop):
        at = i - first
        while at > 0 and idfs[places[at - 1]] < idfs[i]:
            places[at] = places[at - 1]
            at -= 1
        places[at] = i


@kernel
def enter(terms: TableArrays, batch: TopKColumns, row: int, scratch: Scratch) -> int:
    """Write the terms of a message that some subscription has, rarest first; return how many there are."""
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
    """Return the value of a key, or -1: `table_get` for inner loops, which passing a tuple slows down."""
    last, mixed = tags.size - 1, mix(key)
    tag, slot = 128 | (mixed & 127), (mixed >> 7) & last
    while tags[slot] != 0:
        if tags[slot] == tag and entries[slot, 0] == key:
            return entries[slot, 1]  # type: ignore[no-any-return]
        slot = (slot + 1) & last
    return -1


@kernel
def cosine(
    run_terms: NDArray[np.int64],
    run_units: NDArray[np.float64],
    run: int,
    run_stop: int,
    term_ids: NDArray[np.int64],
    units: NDArray[np.float64],
    start: int,
    stop: int,
) -> tuple[bool, float]:
    """Return whether a run and the terms of a message share a term, and the cosine of both.

    Both lists ascend, and the sum runs in that order, as in the reference.
    """
    shares, total = False, 0.0
    while run < run_stop and start < stop:
        mine, other = run_terms[run], term_ids[start]
        if mine == other:
            total += run_units[run] * units[start]
            shares = True
        run += mine <= other
        start += other <= mine
    return shares, total


@kernel
def verify(
    context: IndexContext,
    batch: TopKColumns,
    row: int,
    found: NDArray[np.int32],
    n_found: int,
    out: MatchOutput,
    total: int,
) -> int:
    """Score candidates and write the matches; return how many there are in all, or -1 if they may not fit."""
    if total + n_found > out.slots.size:
        return -1
    x, y, first, stop = batch.xs[row], batch.ys[row], batch.indptr[row], batch.indptr[row + 1]
    term_ids, units, slots, scores, thresholds = (
        batch.term_ids,
        batch.units,
        out.slots,
        out.scores,
        context.thresholds,
    )
    points, heads, run_terms, run_units, _ = context.profiles
    on_sphere, max_distance = context.on_sphere, context.max_distance
    for i in range(n_found):
        prefetch(heads, found[i])
        prefetch(points, found[i])
        prefetch(thresholds, found[i])
    for i in range(n_found):
        prefetch(run_terms, heads[found[i], RUN])
        prefetch(run_units, heads[found[i], RUN])
    for i in range(n_found):
        slot = found[i]
        run = heads[slot, RUN]
        shares, text = cosine(run_terms, run_units, run, run + heads[slot, LENGTH], term_ids, units, first, stop)
        px, py, alpha = points[slot, X], points[slot, Y], points[slot, ALPHA]
        score = topk_score(px, py, alpha, x, y, text, on_sphere, max_distance)
        if shares and score >= thresholds[slot]:
            slots[total] = slot
            scores[total] = score
            total += 1
    out.work[CANDIDATES] += n_found
    out.work[VERIFIED] += n_found
    return total


@kernel
def threshold_of_bound(threshold: float) -> float:
    """Return the threshold to compare bounds with; scores are in [0, 1]."""
    return min(max(threshold, -1.0), 2.0) - MARGIN


class Workspace(OutputWorkspace):
    """Scratch arrays of one match."""

    def __init__(self, room: int) -> None:
        super().__init__(self._scratch(8, 0), room)

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

    def prepare(self, n_terms: int, n_slots: int) -> None:
        """Lengthen the arrays for a message of `n_terms` terms and for `n_slots` slots; their contents are lost."""
        if n_terms > self.scratch.numbers.size or n_slots > self.scratch.found.size:
            terms = max(2 * n_terms, self.scratch.numbers.size)
            self.scratch = self._scratch(terms, max(n_slots, self.scratch.found.size))


class BaselineIndex(ABC):
    """Base class of the papers' indexes; subclasses post subscriptions and find the candidates."""

    delete_slots: ClassVar[Callable[..., None]]
    """Kernel: delete the subscriptions of some slots."""
    move_thresholds: ClassVar[Callable[..., None]]
    """Kernel: change the thresholds of some slots."""
    match_rows: ClassVar[Callable[..., int]]
    """Kernel: match messages from a row on; return the row whose matches do not fit, or `stop`."""

    def __init__(self, scoring: ScoringContext, arena: Arena, *, room: int = ROOM) -> None:
        self._scoring, self._scratch_pool = scoring, ScratchPool(lambda: Workspace(room))
        self._profiles, self._arena = Profiles(arena), Arena()
        self._terms = Table(self._arena, "terms")
        self._arena.new("context.thresholds", np.float64, 0, np.nan)
        self._arena.new("context.run_numbers", np.int32, 0)

    @property
    def work(self) -> Work:
        """Work done so far."""
        return self._scratch_pool.work

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, including profiles and workspaces."""
        return self._arena.nbytes + self._profiles.nbytes + self._scratch_pool.nbytes

    def insert(self, slots: NDArray[np.int32], subscriptions: SubscriptionBatch) -> None:
        """Insert subscriptions under free slots, with open thresholds."""
        keyword_columns = subscriptions.columns
        assert isinstance(keyword_columns, KeywordColumns)
        if not len(slots):
            return
        slots = column(slots, np.int32)
        self._profiles.insert(slots, keyword_columns)
        self._arena.grow("context.thresholds", int(slots.max()) + 1)[slots] = -np.inf
        self._arena.grow("context.run_numbers", self._profiles.arrays.run_terms.size)
        columns = _columns(keyword_columns)
        runs = self._profiles.arrays.heads[slots, 0].astype(np.int64)
        first, stop = int(columns.indptr[0]), int(columns.indptr[-1])
        places = np.repeat(runs - columns.indptr[:-1], np.diff(columns.indptr)) + np.arange(first, stop)
        self._arena["context.run_numbers"][places] = self._number(columns.term_ids[first:stop])
        self._post(slots, columns, places)

    def delete(self, slots: NDArray[np.int32]) -> None:
        """Delete the subscriptions of some slots; their profiles must still exist."""
        slots = self._held(slots)
        if slots.size:
            self.delete_slots(self._state(), slots)
            self._arena["context.thresholds"][slots] = np.nan
            self._profiles.delete(slots)

    def set_thresholds(self, slots: NDArray[np.int32], thresholds: NDArray[np.float64]) -> None:
        """Set the scores that messages must reach."""
        slots, thresholds = column(slots, np.int32), column(thresholds, np.float64)
        held = ~np.isnan(self._arena["context.thresholds"][slots])
        slots, thresholds = slots[held], thresholds[held]
        if slots.size:
            self.move_thresholds(self._state(), slots, thresholds)

    def match(self, batch: MessageBatch, start: int, stop: int) -> Matches:
        """Return the pairs that share a term and reach the threshold."""
        columns, state = _columns(batch), self._state()
        with self._scratch_pool.take() as workspace:
            if start < stop:
                most = int(np.diff(columns.indptr[start : stop + 1]).max())
                workspace.prepare(most, self._arena["context.thresholds"].size)
            return workspace.collect(
                lambda row, out: int(self.match_rows(state, columns, row, stop, start, workspace.scratch, out)),
                start,
                stop,
            )

    @abstractmethod
    def _post(self, slots: NDArray[np.int32], columns: TopKColumns, places: NDArray[np.int64]) -> None:
        """Add subscriptions; `places` are the positions of their terms in the runs of profiles."""

    @abstractmethod
    def _state(self) -> Any:
        """Return all arrays of the index, as its kernels take them."""

    def _context(self) -> IndexContext:
        """Return the arrays that every index uses."""
        space = self._scoring.space
        return IndexContext(
            space.metric == "haversine",
            space.max_distance,
            self._profiles.arrays,
            self._terms.arrays,
            self._arena["context.thresholds"],
            self._arena["context.run_numbers"],
        )

    def _new_pool(self, prefix: str, kind: Any, dtypes: dict[str, Any]) -> None:
        """Create the empty arrays of a structure; a pair as dtype is a dtype and a number of columns."""
        for field in kind._fields:
            dtype, columns = dtypes[field] if isinstance(dtypes[field], tuple) else (dtypes[field], None)
            self._arena.new(f"{prefix}.{field}", dtype, 0, columns=columns)

    def _new_state(self, name: str) -> None:
        self._arena.new(name, np.int64, blocks.STATE)[blocks.FIRST :] = -1

    def _grow(self, prefix: str, kind: Any, used: int, needed: int) -> None:
        """Grow a structure by at least `needed` items, if any are needed."""
        if needed:
            names = [f"{prefix}.{field}" for field in kind._fields]
            self._arena.grow_all(names, used + max(needed, _MIN_GROWTH))

    def _held(self, slots: NDArray[np.int32]) -> NDArray[np.int32]:
        slots = column(slots, np.int32)
        held: NDArray[np.int32] = slots[~np.isnan(self._arena["context.thresholds"][slots])]
        return held

    def _number(self, ids: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the dense numbers of terms."""
        return number_keys(self._terms, ids).astype(np.int32)


def _columns(source: KeywordColumns | MessageBatch) -> TopKColumns:
    return TopKColumns(
        column(source.xs, np.float64),
        column(source.ys, np.float64),
        column(source.term_indptr, np.int64),
        column(source.term_ids, np.int64),
        column(source.idfs, np.float64),
        column(source.units, np.float64),
    )
