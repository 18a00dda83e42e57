"""Index of kind `nearest`: subscriptions to which a message is nearer than their threshold (DkM-SKS).

A subscription is posted under each of its terms. Each posting carries all that is needed to discard it:

    term ──> [ point | reach | slot ] ...                            20 bytes each
             [ closed, sorted | closed, unsorted | open ]            one list per term
             [ box of the points | greatest reach ]                  28 bytes per 32 closed postings of a long list

Points are unit vectors, or lie in the plane, so that nearer is a shorter chord under both metrics. The *reach* is the
square of the chord at the threshold, slightly lengthened, in float32. 32 postings, a row with a column per field, are
one loop without branches, and so are the bounds of 16 such groups. Candidates are measured as the reference measures
them and reported on the list of their first term that the message has, so nothing is merged.

A subscription with fewer than k results has no threshold: it is *open*, and every message with one of its terms
enters its result. Open postings stand last on their lists, where reading them is output and not waste; messages
without the term never read them. In the paper's grid (section 4.3) they would stand in every cell. The first
threshold moves a posting to the closed ones. Thresholds only shrink after that: this changes a number in the posting
and the bounds of its group, and nothing moves until half of a list is unsorted (see `_kernels/nearest/groups.py`).
Lists of which no closed posting matched at a point are remembered (see `_kernels/nearest/settled.py`), since messages
at one point tie with the thresholds that earlier ones have set.

Cost: a message reads the bounds of its terms' lists, and the groups whose balls may hold it. Inserting, moving a
threshold and deleting take time in the number of terms.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import Arena, column
from nearcast.index._kernels import nearest as kernels
from nearcast.index._kernels.shared.grouped_postings import LANES, LONGEST
from nearcast.index._kernels.shared.projection import project
from nearcast.index.arena_index import ArrayLayout, GroupedIndex
from nearcast.index.base import Matches
from nearcast.index.scratch_pool import OutputWorkspace
from nearcast.model import MessageBatch, ScoringContext, SubscriptionBatch
from nearcast.model._kernels import blocks
from nearcast.model.subscription_columns import KeywordColumns

_CANDIDATES = 1 << 10  # verified at a time
_ROOM = 1 << 12  # matches

_ARRAYS = {
    "sites": ArrayLayout(np.float64, kernels.SITE, np.nan),
    "runs": ArrayLayout(np.int64),
    "lists": ArrayLayout(np.int32, kernels.LIST),
}


class NearestWorkspace(OutputWorkspace):
    """Scratch arrays of one match."""

    def __init__(self, room: int) -> None:
        scratch = kernels.NearestScratch(
            numbers=np.zeros(64, np.int32),
            terms=np.zeros(32, np.int32),
            marks=np.zeros(64, np.uint8),
            groups=np.zeros(64, np.int32),
            ends=np.zeros(32, np.int64),
            query=np.zeros(3, np.float32),
            gaps=np.zeros(LANES, np.float32),
            found=np.zeros(_CANDIDATES, np.int32),
            found_by=np.zeros(_CANDIDATES, np.int32),
            settled_points=np.zeros((kernels.SETTLED, 2)),
            settled_lists=np.zeros((kernels.SETTLED, 2), np.int64),
            n_nearer=np.zeros(1, np.int64),
        )
        super().__init__(scratch, room)

    def prepare(self, indptr: NDArray[np.int64], start: int, stop: int, *, longest: int, n_terms: int) -> None:
        """Lengthen the arrays for the messages of some rows, for the longest list and for the terms of the index."""
        if start >= stop:
            return
        most = int(np.diff(indptr[start : stop + 1]).max())
        self.need(int(indptr[stop] - indptr[start]), "numbers")
        self.need(most, "terms", "ends")
        self.need(n_terms, "marks")
        self.need(longest, "found", "found_by")
        self.need(most * (longest // LANES + 2), "groups")


class NearestIndex(GroupedIndex[NearestWorkspace]):
    """Finds the subscriptions to which a message is nearer than their threshold.

    >>> from nearcast.model import Message, NearestSubscription
    >>> from nearcast.testing.strategies import scoring
    >>> scoring = scoring()
    >>> index = NearestIndex(scoring)
    >>> subscription = NearestSubscription("n", location=(2, 4), keywords="a b", k=1)
    >>> index.insert(np.array([7], np.int32), SubscriptionBatch.of([subscription], scoring))
    >>> batch = MessageBatch.from_messages([Message("m", (2, 7), "a")], vocabulary=scoring.vocabulary)
    >>> index.match(batch, 0, 1)
    Matches(rows=array([0]), slots=array([7], dtype=int32), scores=array([3.]))
    >>> index.set_thresholds(np.array([7], np.int32), np.array([3.0]))
    >>> len(index.match(batch, 0, 1).slots)
    0
    """

    prefix = "nearest"
    lists = ("lists",)

    def __init__(self, scoring: ScoringContext, *, arena: Arena | None = None, room: int = _ROOM) -> None:
        super().__init__(
            arena,
            lambda: NearestWorkspace(room),
            arrays=_ARRAYS,
            n_fields=kernels.N_FIELDS,
            n_bounds=kernels.N_BOUNDS,
        )
        if self._is_new("run_pool"):
            self._new_pool("run_pool")
        self._projection = project(scoring.space)

    def insert(self, slots: NDArray[np.int32], subscriptions: SubscriptionBatch) -> None:
        """Insert subscriptions under free slots, open to every message that shares a term."""
        columns, slots = subscriptions.columns, column(slots, np.int32)
        assert isinstance(columns, KeywordColumns)
        if slots.size == 0:
            return
        rows = kernels.NearestColumns(
            column(columns.xs, np.float64),
            column(columns.ys, np.float64),
            column(columns.term_indptr, np.int64),
            column(columns.term_ids, np.int64),
        )
        n_terms = np.diff(rows.indptr)
        self._grow(int(slots.max()) + 1, "sites")
        room_of_runs = np.where(n_terms <= blocks.EXACT, n_terms, 2 * n_terms).sum()
        self._grow(int(self._array("run_pool")[blocks.USED] + room_of_runs), "runs")
        numbers = self._number(columns.terms_under(subscriptions.facets))
        done = 0
        while done < slots.size:
            self._make_room()
            done = int(kernels.insert_rows(self._state(), rows, slots, numbers, done))

    def delete(self, slots: NDArray[np.int32]) -> None:
        """Delete the subscriptions of some slots."""
        if len(slots):
            kernels.delete_slots(self._state(), column(slots, np.int32))

    def set_thresholds(self, slots: NDArray[np.int32], thresholds: NDArray[np.float64]) -> None:
        """Set the distances that messages must stay below; infinity or NaN opens a subscription again."""
        if len(slots):
            kernels.set_thresholds(self._state(), column(slots, np.int32), column(thresholds, np.float64))

    def match(self, batch: MessageBatch, start: int, stop: int) -> Matches:
        """Return the pairs that share a term and are nearer than the threshold."""
        rows = kernels.NearestColumns(batch.xs, batch.ys, batch.term_indptr, batch.term_ids)
        state = self._state()
        longest = int(state.postings.pool[LONGEST])
        with self._scratch_pool.take() as workspace:
            workspace.prepare(batch.term_indptr, start, stop, longest=longest, n_terms=len(self._table))
            return workspace.collect(
                lambda row, out: int(kernels.match_rows(state, rows, row, stop, start, workspace.scratch, out)),
                start,
                stop,
            )

    def _state(self) -> kernels.NearestState:
        sites = self._array("sites")
        return kernels.NearestState(
            self._projection,
            sites,
            sites.view(np.int32),
            self._array("runs"),
            self._array("run_pool"),
            self._table.arrays,
            self._array("lists"),
            self._postings(),
        )
