"""Index of kind `topk`: subscriptions whose threshold a message may reach (Skype, section 5).

A subscription is posted under each of its terms. Each posting carries all that is needed to discard it:

    term ──> [ point | alpha | own, rest | threshold | fingerprints of the other terms | slot ] ...    36 bytes each
             [ box of the points | greatest value at 18 corners ]            96 bytes per 32 postings of a long list

Terms have a common order, rising frequency. *Own* is the weight of the posting's term and *rest* that of the
subscription's later terms. A message that shares this term and none before it scores at most

    alpha * near + own * w + rest * the greatest weight after w

so a posting decides alone, and 32 of them, a row with a column per field, are one loop without branches. This is the
location-aware prefix with its max-weight refinement and the bound for unseen terms (definitions 4 and 5, equation 5),
taken for one posting and one message at a time. Fingerprints of 8 bits then detect most postings that share no other
term; for these `rest` contributes nothing.

Long lists are sorted by (alpha, place along a z-curve), and one such bound rules out a group of 32 (see
`_kernels/topk/groups.py`). These are the alpha-groups, the inner and outer bounds and the cells of the paper, whose
tree of cells would be visited leaf by leaf; here a message reads only the lists of its own terms.

Candidates are scored as the reference scores them and reported on the list of the first shared term only, so nothing
is merged. A subscription without a threshold is open to every message that shares a term.

Departures from the paper: a decision is made where a subscription is first encountered, with bounds for what is still
unseen, and never on sums that skipping cut short; `1 - alpha` is multiplied and never divided by.

Cost: a message reads the bounds of its terms' lists, and the postings of the groups that they do not rule out.
Inserting, moving a threshold and deleting take time in the number of terms; a list is sorted again when a quarter of
it is unsorted.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import Arena, column
from nearcast.index._kernels import topk as kernels
from nearcast.index._kernels.shared.grouped_postings import LANES, LONGEST, TILE
from nearcast.index._kernels.shared.projection import project
from nearcast.index.arena_index import ArrayLayout, GroupedIndex
from nearcast.index.base import Matches
from nearcast.index.scratch_pool import OutputWorkspace
from nearcast.model import MessageBatch, ScoringContext, SubscriptionBatch
from nearcast.model.profiles import Profiles
from nearcast.model.subscription_columns import KeywordColumns

_CANDIDATES = 1 << 10  # verified at a time
_ROOM = 1 << 12  # matches
_HELD = 256  # least size of the hash set of a message's terms
_MAX_UNIT = 1e30  # keeps all values in float32 finite

_ARRAYS = {
    "refs.thresholds": ArrayLayout(np.float64, fill=np.nan),
    "refs.run_lists": ArrayLayout(np.int32),
    "refs.run_places": ArrayLayout(np.int32),
    "lists.starts": ArrayLayout(np.int32),
    "lists.lengths": ArrayLayout(np.int32),
    "lists.classes": ArrayLayout(np.int8, fill=-1),
    "lists.unsorted": ArrayLayout(np.int32),
}


class TopKWorkspace(OutputWorkspace):
    """Scratch arrays of one match."""

    def __init__(self, room: int) -> None:
        scratch = kernels.TopKScratch(
            numbers=np.zeros(64, np.int32),
            order=np.zeros(64, np.int64),
            later_weights=np.zeros(32),
            held=np.full((_HELD, 2), -1, np.int32),
            hits=np.zeros(256, np.uint8),
            groups=np.zeros(64, np.int32),
            ends=np.zeros(32, np.int64),
            query=np.zeros(8, np.float32),
            values=np.zeros(LANES, np.float32),
            tops=np.zeros(TILE, np.float32),
            found=np.zeros(_CANDIDATES, np.int32),
            found_by=np.zeros(_CANDIDATES, np.int64),
            texts=np.zeros(_CANDIDATES),
        )
        super().__init__(scratch, room)
        self.scratch.hits[255] = 1

    def prepare(self, indptr: NDArray[np.int64], start: int, stop: int, longest: int) -> None:
        """Lengthen the arrays for the messages of some rows and for lists of up to `longest` postings."""
        if start >= stop:
            return
        most = int(np.diff(indptr[start : stop + 1]).max())
        self.need(int(indptr[stop] - indptr[start]), "numbers")
        self.need(most, "later_weights", "ends")
        self.need(2 * most, "order")
        self.need(longest, "found", "found_by", "texts")
        self.need(most * (longest // LANES + 2), "groups")
        size = self.scratch.held.shape[0]
        while size < 4 * most:  # the hash set stays mostly empty
            size *= 2
        if size > self.scratch.held.shape[0]:
            self.scratch = self.scratch._replace(held=np.full((size, 2), -1, np.int32))


class TopKIndex(GroupedIndex[TopKWorkspace]):
    """Finds the subscriptions whose threshold a message reaches.

    >>> from nearcast.model import Message, TopKSubscription
    >>> from nearcast.testing.strategies import scoring
    >>> scoring = scoring()
    >>> index = TopKIndex(scoring)
    >>> subscription = TopKSubscription("t", location=(2, 4), keywords="a b", k=1, alpha=0.5)
    >>> index.insert(np.array([7], np.int32), SubscriptionBatch.of([subscription], scoring))
    >>> batch = MessageBatch.from_messages([Message("m", (2, 4), "a")], vocabulary=scoring.vocabulary)
    >>> index.match(batch, 0, 1)
    Matches(rows=array([0]), slots=array([7], dtype=int32), scores=array([0.9472136]))
    >>> index.set_thresholds(np.array([7], np.int32), np.array([0.95]))
    >>> len(index.match(batch, 0, 1).slots)
    0
    """

    prefix = "topk"
    lists = tuple(f"lists.{field}" for field in kernels.TopKLists._fields)

    def __init__(self, scoring: ScoringContext, *, arena: Arena | None = None, room: int = _ROOM) -> None:
        super().__init__(
            arena,
            lambda: TopKWorkspace(room),
            arrays=_ARRAYS,
            n_fields=kernels.N_FIELDS,
            n_bounds=kernels.N_BOUNDS,
        )
        self._projection = project(scoring.space, most_unit=_MAX_UNIT)
        self._profiles = Profiles(self._arena)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays of the index, of the profiles and of the workspaces."""
        return super().nbytes + self._profiles.nbytes

    def insert(self, slots: NDArray[np.int32], subscriptions: SubscriptionBatch) -> None:
        """Insert subscriptions under free slots, with open thresholds."""
        columns, slots = subscriptions.columns, column(slots, np.int32)
        assert isinstance(columns, KeywordColumns)
        if slots.size == 0:
            return
        self._profiles.insert(slots, columns)
        self._grow(int(slots.max()) + 1, "refs.thresholds")
        self._grow(self._profiles.arrays.run_terms.size, "refs.run_lists", "refs.run_places")
        rows = kernels.TopKColumns(
            column(columns.xs, np.float64),
            column(columns.ys, np.float64),
            column(columns.term_indptr, np.int64),
            column(columns.term_ids, np.int64),
            column(columns.idfs, np.float64),
            column(columns.units, np.float64),
        )
        numbers = self._number(columns.terms_under(subscriptions.facets))
        order = np.zeros(int(np.diff(rows.indptr).max()), np.int64)
        done = 0
        while done < slots.size:
            self._make_room()
            done = int(kernels.insert_rows(self._state(), rows, slots, numbers, order, done))
        kernels.sort_unsorted(self._state(), numbers)

    def delete(self, slots: NDArray[np.int32]) -> None:
        """Delete the subscriptions of some slots; their profiles must still exist."""
        if len(slots):
            slots = column(slots, np.int32)
            kernels.delete_slots(self._state(), slots)
            self._profiles.delete(slots)

    def set_thresholds(self, slots: NDArray[np.int32], thresholds: NDArray[np.float64]) -> None:
        """Set the scores that messages must reach."""
        if len(slots):
            kernels.set_thresholds(self._state(), column(slots, np.int32), column(thresholds, np.float64))

    def match(self, batch: MessageBatch, start: int, stop: int) -> Matches:
        """Return the pairs that share a term and reach the threshold."""
        rows = kernels.TopKColumns(batch.xs, batch.ys, batch.term_indptr, batch.term_ids, batch.idfs, batch.units)
        state = self._state()
        with self._scratch_pool.take() as workspace:
            workspace.prepare(batch.term_indptr, start, stop, int(state.postings.pool[LONGEST]))
            return workspace.collect(
                lambda row, out: int(kernels.match_rows(state, rows, row, stop, start, workspace.scratch, out)),
                start,
                stop,
            )

    def _state(self) -> kernels.TopKState:
        bundle = self._arena.bundle
        return kernels.TopKState(
            self._projection,
            self._profiles.arrays,
            bundle(f"{self.prefix}.refs", kernels.PostingRefs),
            self._table.arrays,
            bundle(f"{self.prefix}.lists", kernels.TopKLists),
            self._postings(),
        )
