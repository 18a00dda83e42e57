"""Which subscriptions of kind `topk` does a message concern? Those whose bar it may reach (Skype, section 5).

A subscription is posted under each of its terms, each posting with all that is needed to drop it:

    term ──> [ point | alpha | own, rest | bar | fingerprints of the other terms | slot ] ...      36 bytes a posting
             [ box of the points | greatest value at 18 corners ]              96 bytes for 32 postings of a long list

Terms have a common order, rising frequency. *Own* is the weight of the posting's term and *rest* that of the
subscription's later ones. A message that shares this term and none before it scores at most

    alpha * near + own * w + rest * the greatest weight behind w

so a posting decides alone, and 32 of them, a row with a column for each field, are one loop without a branch. That is
the location-aware prefix with its max-weight refinement and the bound for unseen terms (definitions 4 and 5, equation
5), taken for one posting and one message at a time. Fingerprints of 8 bits then tell most of those that share no
other term, to which `rest` brings nothing.

Long lists are in order by (alpha, place along a z-curve), and a group of 32 is ruled out by one such bound (see
`groups`). These are the alpha-groups, the inner and outer bounds and the cells of the paper, whose tree of cells
would be visited leaf by leaf; here a message only reads the lists of its own terms.

What survives is scored as the reference scores it, and is reported by the first shared term only, so nothing is
merged. Bars are told by `set_thresholds`; who was told none is open to every message that shares a term.

Departures from the paper: decisions are made when a subscription is first met, with bounds for what is not yet seen,
and never on sums that skipping cut short; `1 - alpha` is multiplied and never divided by.

Cost: a message reads the groups of its terms' lists, and the postings of those that may hold a match. Posting, moving
a bar and deleting take time in the number of terms; a list is sorted anew when a quarter of it is out of order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import Arena, Table, column
from nearcast.index import scratch_pool
from nearcast.index._kernels import topk as kernels
from nearcast.index.base import Matches, Work
from nearcast.model import MessageBatch, ScoringContext, SubscriptionBatch
from nearcast.model._kernels import blocks
from nearcast.model.profiles import Profiles
from nearcast.model.subscription_columns import KeywordColumns
from nearcast.space.metric import EARTH_RADIUS_M

_PREFIX = "topk"
_SLICE = 4096  # subscriptions for which room is made at a time
_FOUND = 1 << 10  # candidates that are verified at a time
_ROOM = 1 << 12  # matches
_HELD = 256  # places for the terms of a message, at the least
_MOST_UNIT = 1e30  # so that nothing in float32 is infinite

# name -> dtype, columns, fill
_ARRAYS: dict[str, tuple[Any, int | None, Any]] = {
    "posted.thresholds": (np.float64, None, np.nan),
    "posted.run_lists": (np.int32, None, 0),
    "posted.run_places": (np.int32, None, 0),
    "lists.starts": (np.int32, None, 0),
    "lists.lengths": (np.int32, None, 0),
    "lists.classes": (np.int8, None, -1),
    "lists.loose": (np.int32, None, 0),
    "postings.bodies": (np.float32, kernels.BODY, 0),
    "postings.slots": (np.int32, None, 0),
    "postings.tiles": (np.float32, kernels.BOUNDS, 0),
}


class TopKWorkspace(scratch_pool.OutputWorkspace):
    """Room to match."""

    def __init__(self, room: int) -> None:
        scratch = kernels.TopKScratch(
            numbers=np.zeros(64, np.int32),
            order=np.zeros(64, np.int64),
            laters=np.zeros(32),
            held=np.full((_HELD, 2), -1, np.int32),
            hits=np.zeros(256, np.uint8),
            groups=np.zeros(64, np.int32),
            ends=np.zeros(32, np.int64),
            query=np.zeros(8, np.float32),
            values=np.zeros(kernels.LANES, np.float32),
            tops=np.zeros(kernels.TILE, np.float32),
            found=np.zeros(_FOUND, np.int32),
            found_by=np.zeros(_FOUND, np.int64),
            texts=np.zeros(_FOUND),
        )
        super().__init__(scratch, kernels.TopKOutput, room)
        self.scratch.hits[255] = 1

    def hold(self, n_terms: int) -> None:
        """Make the hash set of a message's terms large enough to stay mostly empty."""
        size = self.scratch.held.shape[0]
        while size < 4 * n_terms:
            size *= 2
        if size > self.scratch.held.shape[0]:
            self.scratch = self.scratch._replace(held=np.full((size, 2), -1, np.int32))


class TopKIndex:
    """Finds the subscriptions whose bar a message reaches.

    >>> from nearcast.model import Message, TopKSubscription
    >>> from nearcast.testing.strategies import scoring
    >>> scoring = scoring()
    >>> index = TopKIndex(scoring)
    >>> wanted = TopKSubscription("t", location=(2, 4), keywords="a b", k=1, alpha=0.5)
    >>> index.insert(np.array([7], np.int32), SubscriptionBatch.of([wanted], scoring))
    >>> batch = MessageBatch.from_messages([Message("m", (2, 4), "a")], vocabulary=scoring.vocabulary)
    >>> index.match(batch, 0, 1)
    Matches(rows=array([0]), slots=array([7], dtype=int32), scores=array([0.9472136]))
    >>> index.set_thresholds(np.array([7], np.int32), np.array([0.95]))
    >>> len(index.match(batch, 0, 1).slots)
    0
    """

    def __init__(self, scoring: ScoringContext, *, arena: Arena | None = None, room: int = _ROOM) -> None:
        self._projection = _projection(scoring)
        self._scratch_pool = scratch_pool.ScratchPool(lambda: TopKWorkspace(room))
        self._arena = Arena() if arena is None else arena
        self._profiles = Profiles(self._arena)
        if f"{_PREFIX}.pool" not in self._arena:
            with self._arena.together():
                for name, (dtype, columns, fill) in _ARRAYS.items():
                    self._arena.new(f"{_PREFIX}.{name}", dtype, 0, fill, columns=columns)
                self._arena.new(f"{_PREFIX}.pool", np.int64, blocks.STATE)[blocks.FIRST : kernels.LONGEST] = -1
        self._table = Table(self._arena, f"{_PREFIX}.table")

    @property
    def work(self) -> Work:
        """How much was done so far."""
        return self._scratch_pool.work

    @property
    def nbytes(self) -> int:
        """Bytes of everything, profiles and room to work included."""
        names = (name for name in self._arena.names if name.startswith(f"{_PREFIX}."))
        return sum(self._arena[name].nbytes for name in names) + self._profiles.nbytes + self._scratch_pool.nbytes

    def insert(self, slots: NDArray[np.int32], subscription_batch: SubscriptionBatch) -> None:
        """Take in subscriptions under slots that are free, their bars open."""
        assert isinstance(subscription_batch.subscription_columns, KeywordColumns)
        self.insert_columns(slots, subscription_batch.subscription_columns)

    def insert_columns(self, slots: NDArray[np.int32], subscription_columns: KeywordColumns) -> None:
        """Take in subscriptions under slots that are free, their bars open."""
        slots = column(slots, np.int32)
        if slots.size == 0:
            return
        self._profiles.insert(slots, subscription_columns)
        self._grow("posted", ("thresholds",), int(slots.max()) + 1)
        self._grow("posted", ("run_lists", "run_places"), self._profiles.arrays.run_terms.size)
        columns = kernels.TopKColumns(
            column(subscription_columns.xs, np.float64),
            column(subscription_columns.ys, np.float64),
            column(subscription_columns.term_indptr, np.int64),
            column(subscription_columns.term_ids, np.int64),
            column(subscription_columns.idfs, np.float64),
            column(subscription_columns.units, np.float64),
        )
        dense = self._number(columns.term_ids)
        order = np.zeros(int(np.diff(columns.indptr).max()), np.int64)
        done = 0
        while done < slots.size:
            self._make_room()
            done = int(kernels.insert_rows(self._state(), columns, slots, dense, order, done))
        kernels.tidy(self._state(), dense)

    def delete(self, slots: NDArray[np.int32]) -> None:
        """Forget the subscriptions of some slots; their profiles must still be there."""
        if len(slots):
            slots = column(slots, np.int32)
            kernels.delete_slots(self._state(), slots)
            self._profiles.delete(slots)

    def set_thresholds(self, slots: NDArray[np.int32], thresholds: NDArray[np.float64]) -> None:
        """Say which score messages have to reach from now on."""
        if len(slots):
            kernels.set_thresholds(self._state(), column(slots, np.int32), column(thresholds, np.float64))

    def match(self, batch: MessageBatch, start: int, stop: int) -> Matches:
        """Return the pairs that share a term and reach the bar that was set."""
        columns = kernels.TopKColumns(batch.xs, batch.ys, batch.term_indptr, batch.term_ids, batch.idfs, batch.units)
        state = self._state()
        with self._scratch_pool.take() as workspace:
            if start < stop:
                most = int(np.diff(batch.term_indptr[start : stop + 1]).max())
                workspace.need(int(batch.term_indptr[stop] - batch.term_indptr[start]), "numbers")
                workspace.need(most, "laters", "ends")
                workspace.need(2 * most, "order")
                workspace.need(int(state.pool[kernels.LONGEST]), "found", "found_by", "texts")
                workspace.need(most * (int(state.pool[kernels.LONGEST]) // kernels.LANES + 2), "groups")
                workspace.hold(most)
            out, row = workspace.output(max(stop - start, 0)), start
            while row < stop:
                row = int(kernels.match_rows(state, columns, row, stop, start, workspace.scratch, out))
                if row < stop:
                    out = scratch_pool.doubled(out, int(out.ends[row - start - 1]) if row > start else 0)
            return workspace.finish(out, start)

    def _number(self, ids: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return dense numbers of terms."""
        dense = np.empty(ids.size, np.int32)
        for first in range(0, ids.size, _SLICE):
            part = slice(first, first + _SLICE)
            self._table.reserve(len(self._table) + ids[part].size)
            kernels.number_terms(self._table.arrays, ids[part], dense[part])
        self._grow("lists", kernels.TopKLists._fields, len(self._table))
        return dense

    def _make_room(self) -> None:
        """Grow the pool if it had no room."""
        pool = self._array("pool")
        needed = int(pool[blocks.USED] + pool[blocks.NEEDED])
        pool[blocks.NEEDED] = 0
        rows = -(-needed // kernels.LANES)
        self._grow("postings", ("bodies",), rows)
        self._grow("postings", ("slots",), self._array("postings.bodies").shape[0] * kernels.LANES)
        self._grow("postings", ("tiles",), -(-self._array("postings.bodies").shape[0] // kernels.TILE))

    def _grow(self, prefix: str, fields: tuple[str, ...], length: int) -> None:
        if self._array(f"{prefix}.{fields[0]}").shape[0] < length:
            self._arena.grow_all([f"{_PREFIX}.{prefix}.{field}" for field in fields], length)

    def _array(self, name: str) -> NDArray[Any]:
        return self._arena[f"{_PREFIX}.{name}"]

    def _state(self) -> kernels.TopKState:
        """Return all arrays as kernels take them."""
        bundle = self._arena.bundle
        bodies = self._array("postings.bodies")
        room = bodies.shape[0] * kernels.LANES  # arrays grow by steps of their own
        return kernels.TopKState(
            self._projection,
            self._profiles.arrays,
            bundle(f"{_PREFIX}.posted", kernels.Posted),
            self._table.arrays,
            bundle(f"{_PREFIX}.lists", kernels.TopKLists),
            kernels.TopKPostings(
                bodies, bodies.view(np.int32), self._array("postings.slots")[:room], self._array("postings.tiles")
            ),
            self._array("pool"),
        )


def _projection(scoring: ScoringContext) -> kernels.TopKProjection:
    space, bounds = scoring.space, scoring.space.bounds
    on_sphere = space.metric == "haversine"
    half = max(bounds.xmax * 0.5 - bounds.xmin * 0.5, bounds.ymax * 0.5 - bounds.ymin * 0.5)
    scale = 1.0 if on_sphere or half <= 0.0 else 1.0 / half
    return kernels.TopKProjection(
        on_sphere=on_sphere,
        max_distance=space.max_distance,
        x0=bounds.xmin * 0.5 + bounds.xmax * 0.5,
        y0=bounds.ymin * 0.5 + bounds.ymax * 0.5,
        scale=scale,
        unit=min(EARTH_RADIUS_M / space.max_distance if on_sphere else half / space.max_distance, _MOST_UNIT),
    )
