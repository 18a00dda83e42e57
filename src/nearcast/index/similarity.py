"""Which subscriptions of kind `similarity` does a message concern? (STAMP, sections III to VI.)

A subscription is posted where a match can come from, each posting with all that is needed to drop it:

    by nearness     cell ──────────> [point, reach | delta, tau | fingerprints of all terms | slot]      60 bytes
    by term         term ──────────> [point, reach | reach alone | fingerprints of the others | slot]    32 bytes
                    term, cell ────> the same, once a term has many postings

*By nearness* stand those that may match without a shared term (the paper's virtual token): a match is found, decided
and scored without leaving the posting, unless a fingerprint says that a term may be shared. *By term* stands the
spatial-oriented prefix: terms by falling weight, each with the distance beyond which a message that shares it first
falls short (LSB, turned into a squared chord, so that no root and no sine is taken), and the distance beyond which it
has to share another one as well. Fingerprints of 12 bits answer that from a table of 4 KiB.

*Cells* are cubes of a grid over unit vectors (on the plane: squares), so there is no antimeridian and no pole. A
posting lies at the level whose side fits its reach: whoever looks from the message meets few cells a level, and none
of the postings there reaches much less far than the level does. A list also knows the greatest reach on it.

Departures from the paper: one grid of eight levels in place of a tree with an inverted index a region; the
region-aware prefix is implied, because the reach of a posting bounds the distance of every message, not only of those
outside a region; the further prefixes (SIG+k) are fingerprints in the posting in place of lists to intersect, so
there is nothing to choose by cost. A match is reported by its first shared term, so nothing is merged. Bounds for the
other text functions: the best message that shares some terms holds nothing else.

Decisions are those of the reference: quick formulas decide outside a margin of 1e-9, the space's own metric within.

Cost: a message reads the lists of its terms, and the cells around, that reach it. Inserting and deleting take time in
the number of terms; blocks of deleted postings are used again, and a list that shrinks moves to a smaller block.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import Arena, Table, column
from nearcast.errors import require
from nearcast.index import scratch_pool
from nearcast.index._kernels import similarity as kernels
from nearcast.index.base import Matches, Work
from nearcast.model import MessageBatch, ScoringContext, SubscriptionBatch
from nearcast.model.subscription_columns import KeywordColumns
from nearcast.space.metric import EARTH_RADIUS_M
from nearcast.text import TEXT_SIMILARITIES

FILTERS = frozenset({"reach", "cells", "others"})
"""`reach`: the least nearness of a posting and of a list; `cells`: the grid; `others`: the other terms."""

_PREFIX = "similarity"
_SLICE = 4096  # subscriptions for which room is made at a time
_SPLIT_AT = 2048  # postings of a term that are worth cells
_NEAR_SPREAD, _TERM_SPREAD, _TERM_LEVELS = 2.0, 1.0, 4
_FOUND = 1 << 10  # candidates that are verified at a time
_ROOM = 1 << 14  # matches

_STATE = 40
_POOLS = ("near", "term")
# name -> dtype, columns, fill
_ARRAYS: dict[str, tuple[Any, int | None, Any]] = {
    "records.floats": (np.float64, 8, 0),
    "records.heads": (np.int32, 4, -1),
    "records.run_terms": (np.int32, None, 0),
    "records.run_places": (np.int32, None, 0),
    "terms.numbers": (np.int64, None, 0),
    "terms.idfs": (np.float64, None, 0),
    "terms.prints": (np.int32, None, 0),
    "terms.n_postings": (np.int32, None, -1),
    **{f"{pool}_lists.starts": (np.int32, None, 0) for pool in _POOLS},
    **{f"{pool}_lists.lengths": (np.int32, None, 0) for pool in _POOLS},
    **{f"{pool}_lists.classes": (np.int8, None, -1) for pool in _POOLS},
    **{f"{pool}_lists.reaches": (np.float32, None, 0) for pool in _POOLS},
    **{f"{pool}_lists.owners": (np.int32, None, 0) for pool in _POOLS},
    **{f"{pool}_lists.cells": (np.int32, None, 0) for pool in _POOLS},
    **{f"{pool}_pool.points": (np.float32, 4, 0) for pool in _POOLS},
    **{f"{pool}_pool.solos": (np.float32, None, 0) for pool in _POOLS},
    **{f"{pool}_pool.others": (np.int64, None, 0) for pool in _POOLS},
    **{f"{pool}_pool.slots": (np.int32, None, 0) for pool in _POOLS},
    **{f"{pool}_pool.exact": (np.float64, 6, 0) for pool in _POOLS},
}
_STATES = ("records.run_state", "near_lists.state", "term_lists.state")
_TABLES = ("terms.table", "cell_table", "spots")


class SimilarityWorkspace(scratch_pool.OutputWorkspace):
    """Room to match, or to plan a change."""

    def __init__(self, params: kernels.SimilarityParams, room: int) -> None:
        super().__init__(_scratch(params), kernels.SimilarityOutput, room)

    def cut(self, out: kernels.SimilarityOutput) -> None:
        """Count what was done, and cut the output to what was found."""
        n = self.tally(out)
        for array in (out.slots, out.scores):
            array.resize(n, refcheck=False)  # in place: a copy of what may be hundreds of megabytes is saved


class SimilarityIndex:
    """Finds the subscriptions whose mix of text and nearness reaches their tau.

    `filters` are what prunes; without some of them the answers are the same, with more work.

    >>> from nearcast.model import Message, SimilaritySubscription
    >>> from nearcast.testing.strategies import scoring
    >>> scoring = scoring()
    >>> index = SimilarityIndex(scoring)
    >>> wanted = SimilaritySubscription("s", location=(2, 4), keywords="a b", delta=0.5, tau=0.75)
    >>> index.insert(np.array([7], np.int32), SubscriptionBatch.of([wanted], scoring))
    >>> said = Message("m", (2, 4), "a c"), Message("n", (8, 8), "a c")
    >>> index.match(MessageBatch.from_messages(said, vocabulary=scoring.vocabulary), 0, 2)
    Matches(rows=array([0]), slots=array([7], dtype=int32), scores=array([0.83333333]))
    """

    def __init__(
        self,
        scoring: ScoringContext,
        *,
        arena: Arena | None = None,
        filters: frozenset[str] = FILTERS,
        room: int = _ROOM,
    ) -> None:
        unknown = sorted(filters - FILTERS)
        require(not unknown, "filters", f"must be some of {', '.join(sorted(FILTERS))}", unknown)
        self._params = _params(scoring, filters)
        self._scratch_pool = scratch_pool.ScratchPool(lambda: self._new_workspace(room))
        self._changes = self._new_workspace(room)
        self._gathered: kernels.SimilarityState | None = None
        self._arena = Arena() if arena is None else arena
        if f"{_PREFIX}.level_cells" not in self._arena:
            with self._arena.together():
                for name, (dtype, columns, fill) in _ARRAYS.items():
                    self._arena.new(f"{_PREFIX}.{name}", dtype, 0, fill, columns=columns)
                for name in _STATES:
                    self._arena.new(f"{_PREFIX}.{name}", np.int64, _STATE)
                self._arena.new(f"{_PREFIX}.level_cells", np.int64, kernels.MOST_LEVELS)
                self._tables = {name: Table(self._arena, f"{_PREFIX}.{name}") for name in _TABLES}
                self._start_states()
        self._tables = {name: Table(self._arena, f"{_PREFIX}.{name}") for name in _TABLES}
        self._reserve(lists=0, cells=0)

    @property
    def work(self) -> Work:
        """How much was done so far."""
        return self._scratch_pool.work

    def insert(self, slots: NDArray[np.int32], subscription_batch: SubscriptionBatch) -> None:
        """Take in subscriptions under slots that are free."""
        assert isinstance(subscription_batch.subscription_columns, KeywordColumns)
        self.insert_columns(slots, subscription_batch.subscription_columns)

    def insert_columns(self, slots: NDArray[np.int32], subscription_columns: KeywordColumns) -> None:
        """Take in subscriptions under slots that are free."""
        columns = kernels.SimilarityColumns(
            column(subscription_columns.xs, np.float64),
            column(subscription_columns.ys, np.float64),
            column(subscription_columns.term_indptr, np.int64),
            column(subscription_columns.term_ids, np.int64),
            column(subscription_columns.idfs, np.float64),
            column(subscription_columns.deltas, np.float64),
            column(subscription_columns.taus, np.float64),
        )
        self._insert(column(slots, np.int32), columns)

    def delete(self, slots: NDArray[np.int32]) -> None:
        """Forget the subscriptions of some slots."""
        if len(slots):
            kernels.delete_slots(self._state(), column(slots, np.int32))

    def set_thresholds(self, slots: NDArray[np.int32], thresholds: NDArray[np.float64]) -> None:
        """Do nothing: this kind has no bars."""

    def match(self, batch: MessageBatch, start: int, stop: int) -> Matches:
        """Return what the messages of some rows concern."""
        none = np.empty(0)
        columns = kernels.SimilarityColumns(
            batch.xs, batch.ys, batch.term_indptr, batch.term_ids, batch.idfs, none, none
        )
        with self._scratch_pool.take() as workspace:
            if start < stop:
                workspace.need(1 + int(np.diff(batch.term_indptr[start : stop + 1]).max()), "known")
                longest = max(int(self._array(f"{pool}_lists.state")[kernels.LONGEST]) for pool in _POOLS)
                workspace.need(longest, "found", "found_terms", "found_runs")
                workspace.need(self._array("terms.n_postings").size, "marks")
            out, row = workspace.output(max(stop - start, 0)), start
            while row < stop:
                row = self._match_rows(workspace, columns, row, stop, start, out)
                if row < stop:
                    out = scratch_pool.doubled(out, int(out.ends[row - start - 1]) if row > start else 0)
            workspace.cut(out)
            rows = np.repeat(np.arange(start, stop, dtype=np.int64), np.diff(out.ends, prepend=0))
            return Matches(rows, out.slots, out.scores)

    @property
    def nbytes(self) -> int:
        """Bytes of everything, room to work included."""
        names = (name for name in self._arena.names if name.startswith(f"{_PREFIX}."))
        held = sum(self._arena[name].nbytes for name in names)
        return held + self._changes.nbytes + self._scratch_pool.nbytes

    def compact(self) -> None:
        """Build everything anew, as if nothing had ever been deleted; deletions alone never need it."""
        slots, columns = self._live()
        with self._arena.together():
            for name in _ARRAYS:
                self._arena.renew(f"{_PREFIX}.{name}", 0)
            for name in _TABLES:
                for part, length in (("tags", 16), ("entries", 16), ("n_taken", 1)):
                    self._arena.renew(f"{_PREFIX}.{name}.{part}", length)
            for name in (*_STATES, "level_cells"):
                self._array(name)[:] = 0
            self._start_states()
            self._tables = {name: Table(self._arena, f"{_PREFIX}.{name}") for name in _TABLES}
            self._gathered = None
            self._reserve(lists=0, cells=0)
            self._insert(slots, columns)

    def _new_workspace(self, room: int) -> SimilarityWorkspace:
        return SimilarityWorkspace(self._params, room)

    def _match_rows(
        self,
        workspace: SimilarityWorkspace,
        columns: kernels.SimilarityColumns,
        row: int,
        stop: int,
        first: int,
        out: kernels.SimilarityOutput,
    ) -> int:
        return int(kernels.match_rows(self._state(workspace), columns, row, stop, first, out))

    def _insert(self, slots: NDArray[np.int32], columns: kernels.SimilarityColumns) -> None:
        if slots.size == 0:
            return
        self._grow("records", ("floats", "heads"), int(slots.max()) + 1)
        for first in range(0, slots.size, _SLICE):
            last = min(first + _SLICE, slots.size)
            low, high = int(columns.indptr[first]), int(columns.indptr[last])
            part = kernels.SimilarityColumns(
                columns.xs[first:last],
                columns.ys[first:last],
                columns.indptr[first : last + 1] - low,
                columns.term_ids[low:high],
                columns.idfs[low:high],
                columns.deltas[first:last],
                columns.taus[first:last],
            )
            self._insert_slice(slots[first:last], part)

    def _insert_slice(self, slots: NDArray[np.int32], part: kernels.SimilarityColumns) -> None:
        n_terms = part.term_ids.size
        dense = self._number(part.term_ids, part.idfs)
        self._reserve(lists=n_terms, cells=n_terms + slots.size)
        self._changes.need(int(np.diff(part.indptr).max()), "order", "reaches", "solos", "rows")
        self._changes.need(n_terms, "queue")
        split_at = _SPLIT_AT if self._params.by_cells else -1
        row = 0
        while row < slots.size:
            self._make_room()
            row, n_queued = kernels.insert_rows(self._state(), part, slots, dense, row, split_at)
            for term in self._changes.scratch.queue[:n_queued].copy():
                self._split(int(term))

    def _number(self, ids: NDArray[np.int64], idfs: NDArray[np.float64]) -> NDArray[np.int32]:
        """Return dense numbers of terms."""
        terms = self._tables["terms.table"]
        terms.reserve(len(terms) + ids.size)
        self._gathered = None
        self._grow("terms", kernels.Terms._fields[1:], len(terms) + ids.size)
        dense = np.empty(ids.size, np.int32)
        kernels.number_terms(self._state().terms, ids, idfs, dense)
        return dense

    def _split(self, term: int) -> None:
        home = int(self._array("terms.n_postings")[term])
        length = int(self._array("term_lists.lengths")[home])
        self._reserve(lists=length, cells=length)
        self._array("term_lists.state")[kernels.NEEDED] = 4 * length
        self._make_room()
        kernels.split_term(self._state(), term)

    def _reserve(self, *, lists: int, cells: int) -> None:
        """Make room for so many more lists of terms, and cells."""
        spots, cell_table = self._tables["spots"], self._tables["cell_table"]
        spots.reserve(len(spots) + lists)
        cell_table.reserve(len(cell_table) + cells)
        self._gathered = None
        fields = tuple(kernels.SimilarityLists._fields[:-1])
        self._grow("near_lists", fields, len(cell_table) + 1 + cells)
        self._grow("term_lists", fields, int(self._array("term_lists.state")[kernels.N_LISTS]) + lists)

    def _make_room(self) -> None:
        """Grow what had no room."""
        for pool in _POOLS:
            state = self._array(f"{pool}_lists.state")
            fields = ("slots", "others", "exact") if pool == "near" else ("slots", "others", "points", "solos")
            self._grow(f"{pool}_pool", fields, int(state[kernels.USED] + state[kernels.NEEDED]))
            state[kernels.NEEDED] = 0
        state = self._array("records.run_state")
        self._grow("records", ("run_terms", "run_places"), int(state[kernels.USED] + state[kernels.NEEDED]))
        state[kernels.NEEDED] = 0

    def _grow(self, prefix: str, fields: tuple[str, ...], length: int) -> None:
        if self._array(f"{prefix}.{fields[0]}").shape[0] < length:
            self._arena.grow_all([f"{_PREFIX}.{prefix}.{field}" for field in fields], length)
            self._gathered = None

    def _array(self, name: str) -> NDArray[Any]:
        return self._arena[f"{_PREFIX}.{name}"]

    def _start_states(self) -> None:
        for name in _STATES:
            state = self._array(name)
            state[kernels.FREE_LIST] = -1
            state[kernels.BLOCKS :] = -1

    def _state(self, workspace: SimilarityWorkspace | None = None) -> kernels.SimilarityState:
        """Return all arrays as kernels take them, with the room of a desk, or of that for changes.

        They are gathered anew only after some of them were replaced.
        """
        if self._gathered is None:
            self._gathered = self._gather()
        return self._gathered._replace(scratch=(workspace or self._changes).scratch)

    def _gather(self) -> kernels.SimilarityState:
        bundle = self._arena.bundle
        terms = [self._array(f"terms.{field}") for field in kernels.Terms._fields[1:]]
        return kernels.SimilarityState(
            self._params,
            bundle(f"{_PREFIX}.records", kernels.Records),
            kernels.Terms(self._tables["terms.table"].arrays, *terms),
            self._tables["cell_table"].arrays,
            self._array("level_cells"),
            self._tables["spots"].arrays,
            bundle(f"{_PREFIX}.near_lists", kernels.SimilarityLists),
            bundle(f"{_PREFIX}.near_pool", kernels.Pool),
            bundle(f"{_PREFIX}.term_lists", kernels.SimilarityLists),
            bundle(f"{_PREFIX}.term_pool", kernels.Pool),
            self._changes.scratch,
        )

    def _live(self) -> tuple[NDArray[np.int32], kernels.SimilarityColumns]:
        """Return the subscriptions there are, as they came."""
        heads, floats = self._array("records.heads"), self._array("records.floats")
        slots = np.flatnonzero(heads[:, kernels.RUN] >= 0).astype(np.int32)
        lengths = heads[slots, kernels.LENGTH].astype(np.int64)
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        at = np.repeat(heads[slots, kernels.RUN] - indptr[:-1], lengths) + np.arange(indptr[-1])
        dense = self._array("records.run_terms")[at]
        return slots, kernels.SimilarityColumns(
            floats[slots, 3],
            floats[slots, 4],
            indptr,
            self._array("terms.numbers")[dense],
            self._array("terms.idfs")[dense],
            floats[slots, kernels.DELTA],
            floats[slots, kernels.TAU],
        )


def _params(scoring: ScoringContext, filters: frozenset[str]) -> kernels.SimilarityParams:
    space, bounds = scoring.space, scoring.space.bounds
    on_sphere = space.metric == "haversine"
    half = max(bounds.xmax - bounds.xmin, bounds.ymax - bounds.ymin) * 0.5
    params = kernels.SimilarityParams(
        on_sphere=on_sphere,
        text=list(TEXT_SIMILARITIES.values()).index(scoring.text_similarity),
        max_distance=space.max_distance,
        near_a_unit=(EARTH_RADIUS_M if on_sphere else 1.0) / space.max_distance,
        x0=float(bounds.xmin + bounds.xmax) * 0.5,
        y0=float(bounds.ymin + bounds.ymax) * 0.5,
        scale=1.0 if on_sphere or half <= 0.0 else 1.0 / half,
        is_fine=space.max_distance > 1_000.0,
        side=0.0,
        levels=0,
        near_spread=_NEAR_SPREAD,
        term_spread=_TERM_SPREAD,
        term_levels=0,
        by_reach="reach" in filters,
        by_cells="cells" in filters,
        by_others="others" in filters,
    )
    farthest = kernels.reach_of(params, 2.0 * kernels.MARGIN, 1.0)
    side = max(farthest / min(_NEAR_SPREAD, _TERM_SPREAD), kernels.LEAST_SIDE)
    levels = 1
    while levels < kernels.MOST_LEVELS and side * 0.5**levels >= kernels.LEAST_SIDE:
        levels += 1
    return params._replace(side=side, levels=levels, term_levels=min(levels, _TERM_LEVELS))


def _scratch(params: kernels.SimilarityParams) -> kernels.SimilarityScratch:
    around = int(2 * max(params.near_spread, params.term_spread)) + 3
    n_cells = 1 + params.levels * around**3
    return kernels.SimilarityScratch(
        point=np.zeros(8),
        frame=np.zeros(3),
        frame32=np.zeros(3, np.float32),
        hits=np.zeros(4096, np.uint8),
        marks=np.zeros(0, np.uint8),
        known=np.zeros(64, np.int32),
        cells=np.zeros(n_cells, np.int32),
        cell_gaps=np.zeros(n_cells, np.float32),
        term_cells=np.zeros(n_cells, np.int32),
        term_gaps=np.zeros(n_cells, np.float32),
        found=np.zeros(_FOUND, np.int32),
        found_terms=np.zeros(_FOUND, np.int32),
        found_runs=np.zeros(_FOUND, np.int32),
        order=np.zeros(16, np.int32),
        reaches=np.zeros(16),
        solos=np.zeros(16),
        rows=np.zeros(16, np.int32),
        queue=np.zeros(16, np.int32),
    )
