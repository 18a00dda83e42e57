"""Which boxes with an AND/OR expression does a message concern? Lists by the rarest term, cut up by space where long.

    term id ── table ──> root of its tree ── list of postings
                            │ 8 x 8                           a list that grows long gives its boxes to 64 children
                            ├──> child ── list                (those that overlap at most 3 x 3 of them) and keeps
                            └──> child ── list                the wide ones; a message visits one path a term
    posting, 20 bytes in 3 columns     box in 60 bits, kind | slot | two more terms
    slot ──> box in float64, expression as words              asked where a posting alone cannot decide

After GI2 (PS2Stream, section IV-D): every branch of an OR of ANDs stands under its least frequent term, and in the
cells that its box overlaps. Departures:

- Text first, then space: one lookup a term finds the lists, and rare terms pay for no grid. How finely a term is cut
  follows from how many subscriptions it has where, down to 2**30 cells along an axis. A box is in a few lists,
  whatever its size.
- A posting decides alone. Its box, in steps of its list's cell, is compared in one subtraction; only a message in the
  very step of an edge asks the float64 box. Its two further terms must be held (an AND of up to three) or must not
  (an OR of up to three single terms, which is reported by its first held term): nothing is reported twice, and no
  mark is needed for it. Longer branches and other mixtures ask the expression.
- A message is matched in passes without branches that depend on data: touch the boxes, keep those that hold the
  point, take the slots of single terms, then of the rest. Columns, since most postings end with their box.
- Deletion is immediate. Lists lie in blocks of a power of two that are halved in place when a quarter full; free
  halves are joined again. Expressions, nodes and terms are used again too.

Cost: a message reads a cache line or two for each term and level, 8 bytes for each posting visited and up to 12 more
for each whose box fits; the misses, not the instructions, are what it waits for. Insertion and deletion touch the
lists of one path or a few; a split moves one list, when it has doubled.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nearcast._jit import Arena, Table, column
from nearcast.index import scratch_pool
from nearcast.index._kernels.boolean import (
    CANDIDATES,
    CLASSES,
    DEPTH,
    FILLED,
    LIVE,
    NEED_NODES,
    NEED_ROWS,
    NEED_WORDS,
    NEEDED,
    TARGETS,
    TOTAL_BITS,
    VISITED,
    Arrivals,
    BooleanWorkspace,
    Forest,
    Messages,
    boolean_delete,
    boolean_export,
    boolean_insert,
    boolean_match,
    boolean_order,
    boolean_sizes,
)
from nearcast.index.base import Matches, Work
from nearcast.model import MessageBatch, ScoringContext, SubscriptionBatch
from nearcast.model.subscription_columns import BooleanColumns
from nearcast.space import Box

_PREFIX = "boolean"
_STATE = 10
_PLACES_A_TERM = 64  # of the hash set of a message: so sparse that a term hardly ever meets another
_FEWEST_PLACES = 1024
_MOST_PLACES = 1 << 17
_ROOM = 1 << 12  # matches


class _BooleanScratch(scratch_pool.Workspace):
    """Room to match, kept because it is large."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.held = np.zeros(_FEWEST_PLACES, np.int32)
        self.rows = np.empty(room, np.int64)
        self.slots = np.empty(room, np.int32)

    def for_rows(self, messages: Messages, start: int, stop: int) -> BooleanWorkspace:
        """Return it as the kernel takes it for some messages."""
        lengths = np.diff(messages.term_indptr[start : stop + 1])
        most = int(lengths.max()) if len(lengths) else 0
        places = _FEWEST_PLACES
        while places < min(_PLACES_A_TERM * most, _MOST_PLACES) or places < 2 * most:
            places *= 2
        if places > self.held.size:
            self.held = np.zeros(places, np.int32)
        return BooleanWorkspace(
            np.empty(int(lengths.sum()), np.int32),
            self.held[:places],
            np.empty((2 * most * (DEPTH + 1), 3), np.int64),
            self.rows,
            self.slots,
            np.empty(stop, np.int64),
            np.zeros(5, np.int64),
        )

    def enlarge(self, workspace: BooleanWorkspace) -> BooleanWorkspace:
        """Make room for the message that found none; what was found before stays."""
        filled, needed = int(workspace.work[FILLED]), int(workspace.work[NEEDED])
        if needed > self.rows.size:
            self.rows = np.empty(needed * 3 // 2, np.int64)
        if filled + needed > self.slots.size:
            self.slots = np.empty((filled + needed) * 3 // 2, np.int32)
            self.slots[:filled] = workspace.slots[:filled]
        return workspace._replace(rows=self.rows, slots=self.slots)


class BooleanIndex:
    """Boxes and expressions, by rarest term and then by place.

    An arena that holds such an index already is gone on with.

    >>> from nearcast.model import BooleanSubscription, Message
    >>> from nearcast.testing import strategies
    >>> scoring = strategies.scoring()
    >>> index = BooleanIndex(scoring)
    >>> coffee = BooleanSubscription("b1", region=Box(0, 0, 1, 1), keywords="coffee AND (sale OR discount)")
    >>> index.insert(np.array([7], np.int32), SubscriptionBatch.of([coffee], scoring))
    >>> message = Message("m1", location=(1, 0.5), text="Coffee! SALE!")
    >>> batch = MessageBatch.from_messages([message], vocabulary=scoring.vocabulary)
    >>> index.match(batch, 0, 1).slots
    array([7], dtype=int32)
    """

    def __init__(self, scoring: ScoringContext, *, arena: Arena | None = None, room: int = _ROOM) -> None:
        self._scratch_pool = scratch_pool.ScratchPool(lambda: _BooleanScratch(room))
        self._vocabulary = scoring.vocabulary
        self._arena = Arena() if arena is None else arena
        self._targets = np.zeros((TARGETS, 4), np.int64)
        if f"{_PREFIX}.state" not in self._arena:
            with self._arena.together():
                self._make(scoring.space.bounds)
        self._table = Table(self._arena, f"{_PREFIX}.table")

    def __len__(self) -> int:
        return int(self._arena[f"{_PREFIX}.state"][LIVE])

    @property
    def work(self) -> Work:
        """How much was done so far."""
        return self._scratch_pool.work

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays in the arena."""
        own = (name for name in self._arena.names if name.startswith(f"{_PREFIX}."))
        return sum(self._arena[name].nbytes for name in own)

    def insert(self, slots: npt.NDArray[np.int32], subscription_batch: SubscriptionBatch) -> None:
        """Take in subscriptions under slots that are free."""
        assert isinstance(subscription_batch.subscription_columns, BooleanColumns)
        self.insert_columns(slots, subscription_batch.subscription_columns)

    def insert_columns(self, slots: npt.NDArray[np.int32], subscription_columns: BooleanColumns) -> None:
        """Take in subscriptions under slots that are free."""
        if not len(slots):
            return
        arrivals = self._arrivals(slots, subscription_columns)
        self._grow(("boxes", "records"), int(arrivals.slots.max()) + 1)
        done = boolean_insert(self._forest, arrivals, 0, self._targets)
        while done < arrivals.owners.size:
            self._make_room(arrivals, done)
            done = boolean_insert(self._forest, arrivals, done, self._targets)

    def delete(self, slots: npt.NDArray[np.int32]) -> None:
        """Forget the subscriptions of some slots."""
        if len(slots):
            boolean_delete(self._forest, column(slots, np.int32), self._targets)

    def set_thresholds(self, slots: npt.NDArray[np.int32], thresholds: npt.NDArray[np.float64]) -> None:
        """Do nothing: this kind has no bars."""

    def match(self, batch: MessageBatch, start: int, stop: int) -> Matches:
        """Return what the messages of some rows concern; every score is 1."""
        forest = self._forest
        messages = Messages(
            column(batch.xs, np.float64),
            column(batch.ys, np.float64),
            column(batch.term_indptr, np.int64),
            column(batch.term_ids, np.int64),
        )
        with self._scratch_pool.take() as own:
            workspace = own.for_rows(messages, start, stop)
            row = boolean_match(forest, messages, start, stop, workspace)
            while row < stop:
                workspace = own.enlarge(workspace)
                row = boolean_match(forest, messages, row, stop, workspace)
            n, n_candidates = int(workspace.work[FILLED]), int(workspace.work[CANDIDATES])
            own.count(visited=int(workspace.work[VISITED]), candidates=n_candidates, verified=n_candidates, matched=n)
            rows = np.repeat(np.arange(start, stop), workspace.counts[start:stop])
            return Matches(rows, workspace.slots[:n].copy(), np.broadcast_to(1.0, n))

    def compact(self) -> None:
        """Build everything anew, without the room that deletions left; as much work as inserting it."""
        slots, subscription_columns = self._subscription_columns()
        frame = self._arena[f"{_PREFIX}.frame"].copy()
        with self._arena.together():
            for name in self._arena.names:
                if name.startswith(f"{_PREFIX}."):
                    self._arena.drop(name)
            self._make(None)
            self._arena[f"{_PREFIX}.frame"][:] = frame
            self._table = Table(self._arena, f"{_PREFIX}.table")
            self.insert_columns(slots, subscription_columns)

    @property
    def _forest(self) -> Forest:
        fields = (self._arena[f"{_PREFIX}.{field}"] for field in Forest._fields[1:])
        return Forest(self._table.arrays, *fields)

    def _make(self, bounds: Box | None) -> None:
        new = self._arena.new
        new(f"{_PREFIX}.nodes", np.int32, 0, columns=4)
        new(f"{_PREFIX}.ids", np.int64, 0)
        new(f"{_PREFIX}.refs", np.int32, 0)
        new(f"{_PREFIX}.sides", np.int64, 0)
        new(f"{_PREFIX}.slots", np.int32, 0)
        new(f"{_PREFIX}.others", np.int64, 0)
        new(f"{_PREFIX}.boxes", np.float64, 0, columns=4)
        new(f"{_PREFIX}.records", np.int64, 0, -1)
        new(f"{_PREFIX}.words", np.int32, 0)
        new(f"{_PREFIX}.free_rows", np.int64, CLASSES, -1)
        new(f"{_PREFIX}.free_tags", np.uint8, 0)
        new(f"{_PREFIX}.free_words", np.int64, CLASSES, -1)
        frame = new(f"{_PREFIX}.frame", np.float64, 4)
        state = new(f"{_PREFIX}.state", np.int64, _STATE)
        state[3:5] = -1
        if bounds is not None:
            frame[:] = bounds.xmin / 2, bounds.ymin / 2, *_steps(bounds)

    def _make_room(self, arrivals: Arrivals, branch: int) -> None:
        """Grow what the kernel said it needs for a branch."""
        state = self._arena[f"{_PREFIX}.state"]
        i = int(arrivals.owners[branch])
        first, last = arrivals.term_indptr[arrivals.branch_indptr[i : i + 2]]
        with self._arena.together():
            self._grow(("sides", "slots", "others", "free_tags"), int(state[NEED_ROWS]))
            self._grow(("words",), int(state[NEED_WORDS]))
            self._grow(("nodes", "ids", "refs"), int(state[NEED_NODES]))
            self._table.reserve(len(self._table) + int(last - first))

    def _grow(self, fields: tuple[str, ...], length: int) -> None:
        self._arena.grow_all([f"{_PREFIX}.{field}" for field in fields], length)

    def _arrivals(self, slots: npt.NDArray[np.int32], subscription_columns: BooleanColumns) -> Arrivals:
        """Return subscriptions as the kernel takes them: the terms of each branch with the rarest first."""
        ids = column(subscription_columns.term_ids, np.int64)
        term_indptr, branch_indptr = (
            column(subscription_columns.term_indptr, np.int64),
            column(subscription_columns.branch_indptr, np.int64),
        )
        if len(ids) > len(term_indptr) - 1:
            # Each term once and in order: the vocabulary is then read from end to end, not here and there.
            distinct, inverse = np.unique(ids, return_inverse=True)
            ordered = np.empty(len(ids), np.int64)
            boolean_order(term_indptr, ids, self._vocabulary.idfs_of(distinct)[inverse], ordered)
            ids = ordered
        return Arrivals(
            column(slots, np.int32),
            np.column_stack(
                (
                    subscription_columns.xmins,
                    subscription_columns.ymins,
                    subscription_columns.xmaxs,
                    subscription_columns.ymaxs,
                )
            ).astype(np.float64),
            np.repeat(np.arange(len(subscription_columns)), np.diff(branch_indptr)),
            branch_indptr,
            term_indptr,
            ids,
        )

    def _subscription_columns(self) -> tuple[npt.NDArray[np.int32], BooleanColumns]:
        """Return all slots that are taken and their subscriptions."""
        forest = self._forest
        slots = np.flatnonzero(forest.records >= 0).astype(np.int32)
        n_branches = np.zeros(slots.size, np.int64)
        term_ids = np.zeros(boolean_sizes(forest, slots, n_branches), np.int64)
        n_terms = np.zeros(int(n_branches.sum()), np.int64)
        boolean_export(forest, slots, n_terms, term_ids)
        xmins, ymins, xmaxs, ymaxs = forest.boxes[slots].T
        return slots, BooleanColumns(
            xmins,
            ymins,
            xmaxs,
            ymaxs,
            np.concatenate(([0], np.cumsum(n_branches))),
            np.concatenate(([0], np.cumsum(n_terms))),
            term_ids,
        )


def _steps(bounds: Box) -> tuple[float, float]:
    """Return how many steps of the finest grid half a unit is, along x and y; any finite number is right."""
    with np.errstate(divide="ignore", over="ignore"):
        halves = np.array([bounds.xmax / 2 - bounds.xmin / 2, bounds.ymax / 2 - bounds.ymin / 2])
        x, y = np.minimum(float(1 << TOTAL_BITS) / halves, np.finfo(np.float64).max)
    return float(x), float(y)
