"""Which subscriptions of kind `nearest` does a message concern? Those that it is nearer to than their bar (DkM-SKS).

A subscription is posted under each of its terms, each posting with all that is needed to drop it:

    term ──> [ point | reach | slot ] ...                        20 bytes a posting
             [ closed, in order | closed, loose | open ]         one list a term
             [ box of the points | greatest reach ]              28 bytes for 32 closed postings of a long list

Points are unit vectors, or lie in the plane, so that nearer is a shorter chord under both metrics; the *reach* is the
square of the chord at the bar, a little longer, in float32. 32 postings, a row with a column for each field, are one
loop without a branch, and so are the bounds of 16 such groups. What survives is measured as the reference measures
it, and is reported by the first of its terms that the message has, so nothing is merged.

Who has fewer than k results has no bar: it is *open*, and every message with one of its terms comes into its result.
Such postings stand last in their lists, where reading them is output and no waste; messages without the term never
meet them. In the paper's grid (section 4.3) they would stand in every cell. The first bar moves a posting to the
closed ones. Bars only shrink: that changes a number in the posting and the bounds of its group, and nothing is moved
until half of a list is out of order (see `groups`).

Cost: a message reads the bounds of its terms' lists, and the groups whose balls may hold it. Posting, moving a bar
and deleting take time in the number of terms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import Arena, Table, column
from nearcast.index import scratch_pool
from nearcast.index._kernels import nearest as kernels
from nearcast.index.base import Matches, Work
from nearcast.model import MessageBatch, ScoringContext, SubscriptionBatch
from nearcast.model._kernels import blocks
from nearcast.model.subscription_columns import KeywordColumns

_PREFIX = "nearest"
_SLICE = 4096  # terms for which room is made at a time
_FOUND = 1 << 10  # candidates that are verified at a time
_ROOM = 1 << 12  # matches
_MOST_SCALE = 1e300  # so that the frame is finite

# name -> dtype, columns, fill
_ARRAYS: dict[str, tuple[Any, int | None, Any]] = {
    "sites": (np.float64, kernels.SITE, np.nan),
    "runs": (np.int64, None, 0),
    "lists": (np.int32, kernels.LIST, 0),
    "bodies": (np.float32, kernels.BODY, 0),
    "slots": (np.int32, None, 0),
    "tiles": (np.float32, kernels.BOUNDS, 0),
}


class NearestWorkspace(scratch_pool.OutputWorkspace):
    """Room to match."""

    def __init__(self, room: int) -> None:
        scratch = kernels.NearestScratch(
            numbers=np.zeros(64, np.int32),
            terms=np.zeros(32, np.int32),
            marks=np.zeros(64, np.uint8),
            groups=np.zeros(64, np.int32),
            ends=np.zeros(32, np.int64),
            query=np.zeros(3, np.float32),
            gaps=np.zeros(kernels.LANES, np.float32),
            found=np.zeros(_FOUND, np.int32),
            found_by=np.zeros(_FOUND, np.int32),
        )
        super().__init__(scratch, kernels.NearestOutput, room)


class NearestIndex:
    """Finds the subscriptions that a message is nearer to than their bar.

    >>> from nearcast.model import Message, NearestSubscription
    >>> from nearcast.testing.strategies import scoring
    >>> scoring = scoring()
    >>> index = NearestIndex(scoring)
    >>> wanted = NearestSubscription("n", location=(2, 4), keywords="a b", k=1)
    >>> index.insert(np.array([7], np.int32), SubscriptionBatch.of([wanted], scoring))
    >>> batch = MessageBatch.from_messages([Message("m", (2, 7), "a")], vocabulary=scoring.vocabulary)
    >>> index.match(batch, 0, 1)
    Matches(rows=array([0]), slots=array([7], dtype=int32), scores=array([3.]))
    >>> index.set_thresholds(np.array([7], np.int32), np.array([3.0]))
    >>> len(index.match(batch, 0, 1).slots)
    0
    """

    def __init__(self, scoring: ScoringContext, *, arena: Arena | None = None, room: int = _ROOM) -> None:
        self._projection = _projection(scoring)
        self._scratch_pool = scratch_pool.ScratchPool(lambda: NearestWorkspace(room))
        self._arena = Arena() if arena is None else arena
        if f"{_PREFIX}.pool" not in self._arena:
            with self._arena.together():
                for name, (dtype, columns, fill) in _ARRAYS.items():
                    self._arena.new(f"{_PREFIX}.{name}", dtype, 0, fill, columns=columns)
                for name in ("pool", "run_pool"):
                    self._arena.new(f"{_PREFIX}.{name}", np.int64, blocks.STATE)[blocks.FIRST : kernels.LONGEST] = -1
        self._table = Table(self._arena, f"{_PREFIX}.table")

    @property
    def work(self) -> Work:
        """How much was done so far."""
        return self._scratch_pool.work

    @property
    def nbytes(self) -> int:
        """Bytes of everything, room to work included."""
        names = (name for name in self._arena.names if name.startswith(f"{_PREFIX}."))
        return sum(self._arena[name].nbytes for name in names) + self._scratch_pool.nbytes

    def insert(self, slots: NDArray[np.int32], subscription_batch: SubscriptionBatch) -> None:
        """Take in subscriptions under slots that are free, open to every message that shares a term."""
        subscription_columns, slots = subscription_batch.subscription_columns, column(slots, np.int32)
        assert isinstance(subscription_columns, KeywordColumns)
        if slots.size == 0:
            return
        columns = kernels.NearestColumns(
            column(subscription_columns.xs, np.float64),
            column(subscription_columns.ys, np.float64),
            column(subscription_columns.term_indptr, np.int64),
            column(subscription_columns.term_ids, np.int64),
        )
        n_terms = np.diff(columns.indptr)
        self._grow("sites", int(slots.max()) + 1)
        blocks_need = np.where(n_terms <= blocks.EXACT, n_terms, 2 * n_terms).sum()
        self._grow("runs", int(self._array("run_pool")[blocks.USED] + blocks_need))
        dense = self._number(columns.term_ids)
        done = 0
        while done < slots.size:
            self._make_room()
            done = int(kernels.insert_rows(self._state(), columns, slots, dense, done))

    def delete(self, slots: NDArray[np.int32]) -> None:
        """Forget the subscriptions of some slots."""
        if len(slots):
            kernels.delete_slots(self._state(), column(slots, np.int32))

    def set_thresholds(self, slots: NDArray[np.int32], thresholds: NDArray[np.float64]) -> None:
        """Say what messages have to be nearer than from now on; one that is infinite, or NaN, opens again."""
        if len(slots):
            kernels.set_thresholds(self._state(), column(slots, np.int32), column(thresholds, np.float64))

    def match(self, batch: MessageBatch, start: int, stop: int) -> Matches:
        """Return the pairs that share a term and are nearer than the bar that was set."""
        columns = kernels.NearestColumns(batch.xs, batch.ys, batch.term_indptr, batch.term_ids)
        state = self._state()
        with self._scratch_pool.take() as workspace:
            if start < stop:
                most = int(np.diff(batch.term_indptr[start : stop + 1]).max())
                longest = int(state.pool[kernels.LONGEST])
                workspace.need(int(batch.term_indptr[stop] - batch.term_indptr[start]), "numbers")
                workspace.need(most, "terms", "ends")
                workspace.need(len(self._table), "marks")
                workspace.need(longest, "found", "found_by")
                workspace.need(most * (longest // kernels.LANES + 2), "groups")
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
        self._grow("lists", len(self._table))
        return dense

    def _make_room(self) -> None:
        """Grow the pool if it had no room."""
        pool = self._array("pool")
        needed = int(pool[blocks.USED] + pool[blocks.NEEDED])
        pool[blocks.NEEDED] = 0
        self._grow("bodies", -(-needed // kernels.LANES))
        n_rows = self._array("bodies").shape[0]
        self._grow("slots", n_rows * kernels.LANES)
        self._grow("tiles", -(-n_rows // kernels.TILE))

    def _grow(self, name: str, length: int) -> None:
        self._arena.grow(f"{_PREFIX}.{name}", length)

    def _array(self, name: str) -> NDArray[Any]:
        return self._arena[f"{_PREFIX}.{name}"]

    def _state(self) -> kernels.NearestState:
        """Return all arrays as kernels take them."""
        sites, bodies = self._array("sites"), self._array("bodies")
        return kernels.NearestState(
            self._projection,
            sites,
            sites.view(np.int32),
            self._array("runs"),
            self._array("run_pool"),
            self._table.arrays,
            self._array("lists"),
            bodies,
            bodies.view(np.int32),
            self._array("slots")[: bodies.shape[0] * kernels.LANES],  # arrays grow by steps of their own
            self._array("tiles"),
            self._array("pool"),
        )


def _projection(scoring: ScoringContext) -> kernels.NearestProjection:
    bounds, on_sphere = scoring.space.bounds, scoring.space.metric == "haversine"
    half = max(bounds.xmax * 0.5 - bounds.xmin * 0.5, bounds.ymax * 0.5 - bounds.ymin * 0.5)
    return kernels.NearestProjection(
        on_sphere=on_sphere,
        x0=bounds.xmin * 0.5 + bounds.xmax * 0.5,
        y0=bounds.ymin * 0.5 + bounds.ymax * 0.5,
        scale=1.0 if on_sphere or half <= 0.0 else min(1.0 / half, _MOST_SCALE),
    )
