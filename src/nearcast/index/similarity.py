"""Index of kind `similarity`: subscriptions whose mix of text and nearness reaches tau (STAMP, sections III to VI).

A subscription is posted where a match can come from. Each posting carries all that is needed to discard it:

    by nearness     cell ──────────> [point, reach | delta, tau | fingerprints of all terms | slot]      60 bytes
    by term         term ──────────> [point, reach | solo reach | fingerprints of the others | slot]     32 bytes
                    term, cell ────> the same, once a term has many postings

*By nearness* stand the subscriptions that may match without a shared term (the paper's virtual token). A match is
found, decided and scored from the posting alone, unless a fingerprint shows that a term may be shared. *By term*
stands the spatial-oriented prefix: terms by falling weight, each with the distance beyond which a message that shares
it first falls short (LSB, as a squared chord, so that no root and no sine is taken), and the distance beyond which
the message must share another term as well. Fingerprints of 12 bits answer that from a table of 4 KiB.

*Cells* are cubes of a grid over unit vectors (squares on the plane), so there is no antimeridian and no pole. A
posting lies at the level whose side fits its reach: a message visits few cells per level, and the postings there
reach about as far as the level does. A list also holds the greatest reach on it.

Departures from the paper: one grid of eight levels replaces a tree with an inverted index per region. The
region-aware prefix is implied, because the reach of a posting bounds the distance of every message, not only of those
outside a region. The further prefixes (SIG+k) are fingerprints in the posting instead of lists to intersect, so
nothing is chosen by cost. A match is reported on the list of its first shared term, so nothing is merged. For the
bounds of the other text functions, the best message that shares some terms has no other ones.

*Facets.* A subscription with a facet is posted under its terms combined with the value, and by nearness in cells of
the facet, which lie where those of the grid do; so only messages with the value read its postings.

Decisions are those of the reference: fast formulas decide outside a margin of 1e-9, the metric of the space within
it.

Cost: a message reads the lists of its terms, and the cells around it, whose reach extends to it. Inserting and
deleting take time in the number of terms; blocks of deleted postings are reused, and a list that shrinks moves to a
smaller block.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import Arena, Table, column
from nearcast.errors import require
from nearcast.index._kernels import similarity as kernels
from nearcast.index._kernels.shared.output import MatchOutput
from nearcast.index._kernels.shared.projection import project
from nearcast.index._kernels.shared.term_numbers import number_terms
from nearcast.index.arena_index import ArenaIndex, ArrayLayout
from nearcast.index.base import Matches
from nearcast.index.facet_numbers import FacetNumbers
from nearcast.index.scratch_pool import OutputWorkspace
from nearcast.model import MessageBatch, ScoringContext, SubscriptionBatch
from nearcast.model._kernels import blocks
from nearcast.model.subscription_columns import KeywordColumns
from nearcast.space.metric import EARTH_RADIUS_M
from nearcast.text import TEXT_SIMILARITIES

FILTERS = frozenset({"reach", "cells", "others"})
"""`reach`: the reach of a posting and of a list; `cells`: the grid; `others`: fingerprints of the other terms."""

_SLICE = 4096  # subscriptions for which room is made at a time
_SPLIT_AT = 2048  # postings of a term that are worth cells
_NEAR_SPREAD, _TERM_SPREAD, _TERM_LEVELS = 2.0, 1.0, 4
_CANDIDATES = 1 << 10  # verified at a time
_ROOM = 1 << 14  # matches

_POOLS = ("near", "term")
_LIST_ARRAYS = {
    "starts": ArrayLayout(np.int32),
    "lengths": ArrayLayout(np.int32),
    "classes": ArrayLayout(np.int8, fill=-1),
    "reaches": ArrayLayout(np.float32),
    "owners": ArrayLayout(np.int32),
    "cells": ArrayLayout(np.int32),
}
_POOL_ARRAYS = {
    "points": ArrayLayout(np.float32, 4),
    "solo_reaches": ArrayLayout(np.float32),
    "others": ArrayLayout(np.int64),
    "slots": ArrayLayout(np.int32),
    "exact": ArrayLayout(np.float64, 6),
}
_ARRAYS = {
    "records.floats": ArrayLayout(np.float64, 8),
    "records.heads": ArrayLayout(np.int32, 4, -1),
    "records.run_terms": ArrayLayout(np.int32),
    "records.run_places": ArrayLayout(np.int32),
    "terms.ids": ArrayLayout(np.int64),
    "terms.idfs": ArrayLayout(np.float64),
    "terms.fingerprints": ArrayLayout(np.int32),
    "terms.only_lists": ArrayLayout(np.int32, fill=-1),
    **{f"{pool}_lists.{name}": spec for pool in _POOLS for name, spec in _LIST_ARRAYS.items()},
    **{f"{pool}_pool.{name}": spec for pool in _POOLS for name, spec in _POOL_ARRAYS.items()},
}
_STATES = ("records.run_state", "near_lists.state", "term_lists.state")
_TABLES = ("terms.table", "cell_table", "cell_lists")


class SimilarityWorkspace(OutputWorkspace):
    """Scratch arrays of one match or one insertion."""

    def __init__(self, params: kernels.SimilarityParams, room: int) -> None:
        super().__init__(_scratch(params), room)


class SimilarityIndex(ArenaIndex[SimilarityWorkspace]):
    """Finds the subscriptions whose mix of text and nearness reaches their tau.

    `filters` select what prunes; with fewer of them the answers are the same and the work is more.

    >>> from nearcast.model import Message, SimilaritySubscription
    >>> from nearcast.testing.strategies import scoring
    >>> scoring = scoring()
    >>> index = SimilarityIndex(scoring)
    >>> subscription = SimilaritySubscription("s", location=(2, 4), keywords="a b", delta=0.5, tau=0.75)
    >>> index.insert(np.array([7], np.int32), SubscriptionBatch.of([subscription], scoring))
    >>> messages = Message("m", (2, 4), "a c"), Message("n", (8, 8), "a c")
    >>> index.match(MessageBatch.from_messages(messages, vocabulary=scoring.vocabulary), 0, 2)
    Matches(rows=array([0]), slots=array([7], dtype=int32), scores=array([0.83333333]))
    """

    prefix = "similarity"

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
        super().__init__(arena, lambda: self._new_workspace(room))
        self._params = _params(scoring, filters)
        self._changes = self._new_workspace(room)
        self._gathered: kernels.SimilarityState | None = None
        if self._is_new("level_cells"):
            with self._arena.together():
                self._new_arrays(_ARRAYS)
                for name in _STATES:
                    self._arena.new(f"{self.prefix}.{name}", np.int64, blocks.STATE)
                self._arena.new(f"{self.prefix}.level_cells", np.int64, kernels.MAX_LEVELS)
                self._tables = self._open_tables()
                self._clear_states()
        self._tables = self._open_tables()
        self._facets = FacetNumbers(self._arena, f"{self.prefix}.facets")
        self._reserve(lists=0, cells=0)
        self._need_plan(int(self._array("records.heads")[:, kernels.LENGTH].max(initial=0)))

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays of the index and of its workspaces."""
        return super().nbytes + self._changes.nbytes

    def insert(self, slots: NDArray[np.int32], subscriptions: SubscriptionBatch) -> None:
        """Insert subscriptions under free slots."""
        columns, facets = subscriptions.columns, subscriptions.facets
        assert isinstance(columns, KeywordColumns)
        rows = kernels.SimilarityColumns(
            column(columns.xs, np.float64),
            column(columns.ys, np.float64),
            column(columns.term_indptr, np.int64),
            column(columns.terms_under(facets), np.int64),
            column(columns.idfs, np.float64),
            self._facets.add(facets, len(slots)),
            column(columns.deltas, np.float64),
            column(columns.taus, np.float64),
        )
        self._insert(column(slots, np.int32), rows)

    def delete(self, slots: NDArray[np.int32]) -> None:
        """Delete the subscriptions of some slots."""
        if len(slots):
            kernels.delete_slots(self._state(), column(slots, np.int32))

    def set_thresholds(self, slots: NDArray[np.int32], thresholds: NDArray[np.float64]) -> None:
        """Do nothing: this kind has no thresholds beside its tau."""

    def match(self, batch: MessageBatch, start: int, stop: int) -> Matches:
        """Return the pairs whose score reaches tau."""
        none, facets = np.empty(0), self._facets.of_rows(batch, start, stop)
        rows = kernels.SimilarityColumns(
            batch.xs, batch.ys, batch.term_indptr, batch.term_ids, batch.idfs, facets, none, none
        )
        with self._scratch_pool.take() as workspace:
            if start < stop:
                workspace.need(1 + int(np.diff(batch.term_indptr[start : stop + 1]).max()), "message_terms")
                longest = max(int(self._array(f"{pool}_lists.state")[kernels.LONGEST]) for pool in _POOLS)
                workspace.need(longest, "found", "found_terms", "found_runs")
                workspace.need(self._array("terms.only_lists").size, "marks")
            return workspace.collect(
                lambda row, out: self._match_rows(workspace, rows, row, stop, start, out), start, stop
            )

    def compact(self) -> None:
        """Rebuild the index as if nothing had ever been deleted; deletions alone never require it."""
        slots, rows = self._export()
        with self._arena.together():
            for name in _ARRAYS:
                self._arena.renew(f"{self.prefix}.{name}", 0)
            for name in _TABLES:
                for part, length in (("tags", 16), ("entries", 16), ("n_taken", 1)):
                    self._arena.renew(f"{self.prefix}.{name}.{part}", length)
            self._clear_states()
            self._tables = self._open_tables()
            self._gathered = None
            self._reserve(lists=0, cells=0)
            self._insert(slots, rows)

    def _new_workspace(self, room: int) -> SimilarityWorkspace:
        return SimilarityWorkspace(self._params, room)

    def _open_tables(self) -> dict[str, Table]:
        return {name: Table(self._arena, f"{self.prefix}.{name}") for name in _TABLES}

    def _match_rows(
        self,
        workspace: SimilarityWorkspace,
        rows: kernels.SimilarityColumns,
        row: int,
        stop: int,
        first: int,
        out: MatchOutput,
    ) -> int:
        return int(kernels.match_rows(self._state(workspace), rows, row, stop, first, out))

    def _insert(self, slots: NDArray[np.int32], rows: kernels.SimilarityColumns) -> None:
        if slots.size == 0:
            return
        self._enlarge("records", ("floats", "heads"), int(slots.max()) + 1)
        for first in range(0, slots.size, _SLICE):
            last = min(first + _SLICE, slots.size)
            low, high = int(rows.indptr[first]), int(rows.indptr[last])
            part = kernels.SimilarityColumns(
                rows.xs[first:last],
                rows.ys[first:last],
                rows.indptr[first : last + 1] - low,
                rows.term_ids[low:high],
                rows.idfs[low:high],
                rows.facets[first:last],
                rows.deltas[first:last],
                rows.taus[first:last],
            )
            self._insert_slice(slots[first:last], part)

    def _insert_slice(self, slots: NDArray[np.int32], part: kernels.SimilarityColumns) -> None:
        n_terms = part.term_ids.size
        numbers = self._number(part.term_ids, part.idfs)
        self._reserve(lists=n_terms, cells=n_terms + 2 * slots.size)
        self._need_plan(int(np.diff(part.indptr).max()))
        self._changes.need(n_terms, "queue")
        split_at = _SPLIT_AT if self._params.by_cells else -1
        row = 0
        while row < slots.size:
            self._make_room()
            row, n_queued = kernels.insert_rows(self._state(), part, slots, numbers, row, split_at)
            for term in self._changes.scratch.queue[:n_queued].copy():
                self._split(int(term))

    def _need_plan(self, n_terms: int) -> None:
        """Lengthen the scratch arrays of `plan_prefix` for subscriptions of so many terms."""
        self._changes.need(n_terms, "order", "reaches", "solo_reaches", "rows")

    def _number(self, term_ids: NDArray[np.int64], idfs: NDArray[np.float64]) -> NDArray[np.int32]:
        """Return the dense numbers of terms; new terms get the next numbers."""
        table = self._tables["terms.table"]
        first = len(table)
        table.reserve(first + term_ids.size)
        self._gathered = None
        self._enlarge("terms", kernels.SimilarityTerms._fields[1:], first + term_ids.size)
        numbers = np.empty(term_ids.size, np.int32)
        number_terms(table.arrays, term_ids, numbers)
        kernels.describe_terms(self._state().terms, term_ids, idfs, numbers, first)
        return numbers

    def _split(self, term: int) -> None:
        only_list = int(self._array("terms.only_lists")[term])
        length = int(self._array("term_lists.lengths")[only_list])
        self._reserve(lists=length, cells=length)
        self._array("term_lists.state")[blocks.NEEDED] = 4 * length
        self._make_room()
        kernels.split_term(self._state(), term)

    def _reserve(self, *, lists: int, cells: int) -> None:
        """Make room for so many more lists by term, and cells."""
        cell_lists, cell_table = self._tables["cell_lists"], self._tables["cell_table"]
        cell_lists.reserve(len(cell_lists) + lists)
        cell_table.reserve(len(cell_table) + cells)
        self._gathered = None
        fields = tuple(kernels.SimilarityLists._fields[:-1])
        self._enlarge("near_lists", fields, len(cell_table) + 1 + cells)
        self._enlarge("term_lists", fields, int(self._array("term_lists.state")[kernels.N_LISTS]) + lists)

    def _make_room(self) -> None:
        """Grow the pools by what a kernel found missing."""
        for prefix, fields, name in (
            ("near_pool", ("slots", "others", "exact"), "near_lists.state"),
            ("term_pool", ("slots", "others", "points", "solo_reaches"), "term_lists.state"),
            ("records", ("run_terms", "run_places"), "records.run_state"),
        ):
            state = self._array(name)
            self._enlarge(prefix, fields, int(state[blocks.USED] + state[blocks.NEEDED]))
            state[blocks.NEEDED] = 0

    def _enlarge(self, prefix: str, fields: tuple[str, ...], length: int) -> None:
        if self._grow(length, *(f"{prefix}.{field}" for field in fields)):
            self._gathered = None

    def _clear_states(self) -> None:
        for name in (*_STATES, "level_cells"):
            self._array(name)[:] = 0
        for name in _STATES:
            self._array(name)[blocks.FIRST : kernels.N_LISTS] = -1
            self._array(name)[kernels.FREE_LIST] = -1

    def _state(self, workspace: SimilarityWorkspace | None = None) -> kernels.SimilarityState:
        """Return all arrays with the scratch of a workspace, or with that of insertions and deletions.

        They are gathered again only after some of them were replaced.
        """
        if self._gathered is None:
            self._gathered = self._gather()
        return self._gathered._replace(scratch=(workspace or self._changes).scratch)

    def _gather(self) -> kernels.SimilarityState:
        bundle = self._arena.bundle
        terms = [self._array(f"terms.{field}") for field in kernels.SimilarityTerms._fields[1:]]
        return kernels.SimilarityState(
            self._params,
            bundle(f"{self.prefix}.records", kernels.SimilarityRecords),
            kernels.SimilarityTerms(self._tables["terms.table"].arrays, *terms),
            self._tables["cell_table"].arrays,
            self._array("level_cells"),
            self._tables["cell_lists"].arrays,
            bundle(f"{self.prefix}.near_lists", kernels.SimilarityLists),
            bundle(f"{self.prefix}.near_pool", kernels.PostingPool),
            bundle(f"{self.prefix}.term_lists", kernels.SimilarityLists),
            bundle(f"{self.prefix}.term_pool", kernels.PostingPool),
            self._changes.scratch,
        )

    def _export(self) -> tuple[NDArray[np.int32], kernels.SimilarityColumns]:
        """Return all slots in use and their subscriptions."""
        heads, floats = self._array("records.heads"), self._array("records.floats")
        slots = np.flatnonzero(heads[:, kernels.RUN] >= 0).astype(np.int32)
        lengths = heads[slots, kernels.LENGTH].astype(np.int64)
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        at = np.repeat(heads[slots, kernels.RUN] - indptr[:-1], lengths) + np.arange(indptr[-1])
        numbers = self._array("records.run_terms")[at]
        return slots, kernels.SimilarityColumns(
            floats[slots, 3],
            floats[slots, 4],
            indptr,
            self._array("terms.ids")[numbers],
            self._array("terms.idfs")[numbers],
            heads[slots, kernels.FACET].astype(np.int64),
            floats[slots, kernels.DELTA],
            floats[slots, kernels.TAU],
        )


def _params(scoring: ScoringContext, filters: frozenset[str]) -> kernels.SimilarityParams:
    space = scoring.space
    params = kernels.SimilarityParams(
        projection=project(space),
        text=list(TEXT_SIMILARITIES.values()).index(scoring.text_similarity),
        near_per_unit=(EARTH_RADIUS_M if space.metric == "haversine" else 1.0) / space.max_distance,
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
    farthest = kernels.reach_of_nearness(params, 2.0 * kernels.MARGIN, 1.0)
    side = max(farthest / min(_NEAR_SPREAD, _TERM_SPREAD), kernels.MIN_SIDE)
    levels = 1
    while levels < kernels.MAX_LEVELS and side * 0.5**levels >= kernels.MIN_SIDE:
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
        message_terms=np.zeros(64, np.int32),
        cells=np.zeros(n_cells, np.int32),
        cell_gaps=np.zeros(n_cells, np.float32),
        term_cells=np.zeros(n_cells, np.int32),
        term_gaps=np.zeros(n_cells, np.float32),
        found=np.zeros(_CANDIDATES, np.int32),
        found_terms=np.zeros(_CANDIDATES, np.int32),
        found_runs=np.zeros(_CANDIDATES, np.int32),
        order=np.zeros(16, np.int32),
        reaches=np.zeros(16),
        solo_reaches=np.zeros(16),
        rows=np.zeros(16, np.int32),
        queue=np.zeros(16, np.int32),
    )
