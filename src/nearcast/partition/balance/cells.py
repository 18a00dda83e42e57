"""Cells: the pieces in which a routing divides the work, with what each did in a period.

    routing ── cells of messages and subscriptions ──┐
    period  ── messages, subscriptions, their bytes ─┴── counts of each cell and of each shard ── loads

A shard counts a message or a subscription once, however many of its cells hold it, so the counts of its cells may add
up to more. Definition 3 of PS2Stream takes messages times subscriptions as the load of a cell. These products have
another unit than definition 1 and do not add up to it, so no difference between shards can be expressed in them. Here
the load of a shard is divided among its cells by the messages, insertions and deletions of each.

Cost: a few dozen nanoseconds for each pair of a message or subscription and a cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, Self, TypeGuard, TypeVar

import numpy as np
import numpy.typing as npt

from nearcast.errors import require
from nearcast.model import Footprints, MessageBatch
from nearcast.partition.base import CellPairs, Routing, Sample
from nearcast.partition.candidate_pairs import count_compared
from nearcast.partition.load import CHECK, COMPARE, DELETE, HANDLE, INSERT, LoadCounts
from nearcast.partition.masks import count_rows, masks_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Rows = TypeVar("Rows", Footprints, MessageBatch)


class CellRouting(Routing, Protocol):
    """A routing that is a table of cells and their shards."""

    @property
    def cell_shards(self) -> Ints:
        """int32 (n_cells,): the shard of each cell."""

    def message_cells(self, batch: MessageBatch) -> CellPairs:
        """Return the cells of messages, whatever has been placed."""

    def subscription_cells(self, footprints: Footprints) -> CellPairs:
        """Return the cells of subscriptions."""

    def reassigned(self, shards: Ints) -> Self:
        """Return the routing with the same cells in other shards; it is fixed."""


class LeafCellRouting(CellRouting, Protocol):
    """A table of cells that divides space by a tree."""

    @property
    def cell_leaves(self) -> Ints:
        """int32 (n_cells,): the leaf of each cell."""

    def may_cut(self, leaf: int) -> bool:
        """Return whether a cut of a leaf leaves the routing small enough."""

    def cut(self, leaf: int, *, axis: int, value: float) -> Self:
        """Return the routing with a leaf cut in two, whose cells stay in their shards; it is fixed."""


class TermCellRouting(LeafCellRouting, Protocol):
    """A table of cells whose leaves may have several cells, divided by terms."""

    def posted_terms(self, footprints: Footprints) -> tuple[Longs, Longs]:
        """Return pairs of subscriptions and the terms that their branches are posted under."""

    def split(self, cell: int, terms: Longs, *, shard: int) -> Self:
        """Return the routing with some terms of an undivided leaf in a new cell, in a shard; it is fixed."""


class RunCellRouting(LeafCellRouting, Protocol):
    """A table of cells that are runs of terms."""

    def message_ranks(self, batch: MessageBatch, run: int) -> tuple[Longs, Longs]:
        """Return pairs of a message and the place of one of its terms in a run."""

    def subscription_ranks(self, footprints: Footprints, run: int) -> tuple[Longs, Longs]:
        """Return the first and the last place of the terms in a run that each subscription is posted under."""


def has_cells(routing: Any) -> TypeGuard[CellRouting]:
    """Return whether a routing is a table of cells, so that its load can be adjusted."""
    return hasattr(routing, "reassigned")


def can_cut(routing: CellRouting) -> TypeGuard[LeafCellRouting]:
    """Return whether the leaves of a routing can be cut."""
    return hasattr(routing, "cut")


def can_split(routing: CellRouting) -> TypeGuard[TermCellRouting]:
    """Return whether terms of a cell of a routing can become a cell of their own."""
    return hasattr(routing, "split")


def _has_runs(routing: CellRouting) -> TypeGuard[RunCellRouting]:
    return hasattr(routing, "message_ranks")


class Period(NamedTuple):
    """What happened in a period of time."""

    messages: MessageBatch
    footprints: Footprints
    """The subscriptions that are stored at its end."""
    sizes: Longs
    """int64 (n,): the bytes of each subscription."""
    are_new: Flags
    """bool (n,): whether each subscription came in the period."""
    deleted: Footprints
    """The subscriptions that were removed."""
    are_old: Flags
    """bool (n,): whether each subscription stays where an old routing placed it, see `transition`."""
    weight: int = 1
    """The number of subscriptions that each one stands for, where they are a sample."""
    message_weight: int = 1
    """The number of messages that each one stands for."""
    compared: Longs | None = None
    """int64 (n_messages,): the candidate pairs of each message; None for definition 1 as it is in the paper."""

    @classmethod
    def of(
        cls,
        messages: MessageBatch,
        footprints: Footprints,
        *,
        sizes: Longs | None = None,
        are_new: Flags | None = None,
        deleted: Footprints | None = None,
        are_old: Flags | None = None,
        weight: int = 1,
        message_weight: int = 1,
        counts_pairs: bool = False,
    ) -> Period:
        """Return a period; by default no subscription comes or goes, and sizes follow from the terms.

        With `counts_pairs` the first term of a load counts the pairs that an index compares, see `load`.
        """
        for name, value in (("weight", weight), ("message_weight", message_weight)):
            require(value >= 1, name, "must be 1 or more", value)
        n = len(footprints)
        sizes = sizes_of(footprints) if sizes is None else sizes
        are_new = np.zeros(n, np.bool_) if are_new is None else are_new
        are_old = np.zeros(n, np.bool_) if are_old is None else are_old
        for name, column in (("sizes", sizes), ("are_new", are_new), ("are_old", are_old)):
            require(len(column) == n, name, f"must hold one value for each of {n} subscriptions", len(column))
        gone = Footprints.joined([]) if deleted is None else deleted
        compared = count_compared(Sample(footprints, messages)) if counts_pairs else None
        return cls(messages, footprints, sizes, are_new, gone, are_old, weight, message_weight, compared)


def sizes_of(footprints: Footprints) -> Longs:
    """Return about how many bytes each subscription has in a transfer: its columns, and ten bytes per term."""
    n_terms = np.diff(footprints.term_indptr[footprints.branch_indptr])
    sizes: Longs = 120 + 10 * n_terms
    return sizes


@dataclass(frozen=True)
class CellTable:
    """The cells of a routing, with what each did in a period."""

    shards: Ints
    """int32 (n_cells,): the shard of each cell."""
    counts: LoadCounts
    """Of each cell."""
    sizes: Longs
    """int64 (n_cells,): the bytes of its subscriptions."""
    in_shards: LoadCounts
    """Of each shard, which counts what several of its cells share once."""

    @property
    def shard_loads(self) -> Floats:
        """float64 (n_shards,): definition 1."""
        return self.in_shards.loads()

    @property
    def loads(self) -> Floats:
        """float64 (n_cells,): the share of each cell in the load of its shard."""
        counts = self.counts
        checked = CHECK * self.in_shards.subscriptions[self.shards] * counts.messages
        if counts.compared is not None:
            checked = COMPARE * counts.compared
        own = checked + HANDLE * counts.messages + INSERT * counts.inserted + DELETE * counts.deleted
        of_shards = np.bincount(self.shards, weights=own, minlength=len(self.in_shards.messages))
        factors = self.shard_loads / np.where(of_shards > 0, of_shards, 1.0)
        loads: Floats = own * factors[self.shards]
        return loads


class LeafPoints(NamedTuple):
    """What a leaf holds, for a cut of it."""

    xs: Floats
    ys: Floats
    loads: Floats
    """float64 (n,): the load of each point."""
    boxes: Floats
    """float64 (n_boxes, 4): boxes that live on both sides of a cut which crosses them."""


@dataclass(frozen=True)
class CellWork:
    """The work of a period, divided by a routing; cells can move, be cut and be split without a look at all of it."""

    routing: CellRouting
    period: Period
    messages: CellPairs
    subscriptions: CellPairs
    deleted: CellPairs

    @classmethod
    def of(cls, routing: CellRouting, period: Period) -> CellWork:
        """Divide the work of a period."""
        return cls(
            routing,
            period,
            routing.message_cells(period.messages),
            routing.subscription_cells(period.footprints),
            routing.subscription_cells(period.deleted),
        )

    @property
    def n_places(self) -> int:
        """The number of pairs of a subscription and a cell."""
        return len(self.subscriptions.rows)

    def table(self) -> CellTable:
        """Return the cells with their counts."""
        shards, period = self.routing.cell_shards, self.period
        new = period.are_new[self.subscriptions.rows]
        inserted = CellPairs(self.subscriptions.rows[new], self.subscriptions.cells[new])
        pairs = (self.messages, self.subscriptions, inserted, self.deleted)
        n_rows = (len(period.messages), len(period.footprints), len(period.footprints), len(period.deleted))
        weights = (period.message_weight, period.weight, period.weight, period.weight)
        n_cells, n_shards = len(shards), self.routing.n_shards
        of_cells = [np.bincount(some.cells, minlength=n_cells) * by for some, by in zip(pairs, weights, strict=True)]
        of_shards = [
            count_rows(masks_of(some.rows, shards[some.cells], n=n, n_shards=n_shards), n_shards) * by
            for some, n, by in zip(pairs, n_rows, weights, strict=True)
        ]
        compared = self._compared(n_cells)
        in_shards = None if compared is None else np.bincount(shards, weights=compared, minlength=n_shards)
        of_rows = period.sizes[self.subscriptions.rows] * period.weight
        sizes = np.bincount(self.subscriptions.cells, weights=of_rows, minlength=n_cells).astype(np.int64)
        return CellTable(shards, _counts(of_cells, compared), sizes, _counts(of_shards, in_shards))

    def _compared(self, n_cells: int) -> Floats | None:
        """Return the candidate pairs of each cell; those of a message in several cells are divided among them."""
        period, (rows, cells) = self.period, self.messages
        if period.compared is None:
            return None
        n_cells_of = np.bincount(rows, minlength=len(period.messages))
        shares = (period.compared * (period.weight * period.message_weight) / np.maximum(n_cells_of, 1))[rows]
        counts: Floats = np.bincount(cells, weights=shares, minlength=n_cells).astype(np.float64)
        return counts

    def points(self, cells: Longs) -> LeafPoints:
        """Return the messages in some cells with their loads, and the boxes of the subscriptions there.

        Of a run of terms, x is the place of a term in the order that runs follow.
        """
        period = self.period
        if _has_runs(self.routing):
            return self._points_of_run(self.routing, int(cells[0]))
        seen = np.unique(self.messages.rows[np.isin(self.messages.cells, cells)])
        held = np.unique(self.subscriptions.rows[np.isin(self.subscriptions.cells, cells)])
        checked = np.full(len(seen), CHECK * (period.weight * len(held)))
        if period.compared is not None:
            checked = COMPARE * (period.weight * period.compared[seen])
        messages, boxes = period.messages, period.footprints.boxes[held]
        return LeafPoints(messages.xs[seen], messages.ys[seen], HANDLE + checked, boxes)

    def _points_of_run(self, routing: RunCellRouting, run: int) -> LeafPoints:
        period = self.period
        rows, ranks = routing.message_ranks(period.messages, run)
        n_held = int(np.count_nonzero(self.subscriptions.cells == run))
        if period.compared is None:
            loads = np.full(len(rows), HANDLE + CHECK * period.weight * n_held)
        else:
            loads = HANDLE + COMPARE * period.weight * period.compared[rows]
        lows, highs = routing.subscription_ranks(period.footprints, run)
        none = np.zeros(len(lows))
        boxes = np.column_stack([lows, none, highs, none]).astype(np.float64)
        return LeafPoints(ranks.astype(np.float64), np.zeros(len(rows)), loads, boxes)

    def moved(self, routing: CellRouting) -> CellWork:
        """Return the work under a routing with the same cells in other shards."""
        return replace(self, routing=routing)

    def divided(self, routing: CellRouting, cells: Longs) -> CellWork:
        """Return the work under a routing that divides some cells of this one, and leaves all others."""
        period = self.period
        return CellWork(
            routing,
            period,
            _again(self.messages, cells, period.messages, routing.message_cells),
            _again(self.subscriptions, cells, period.footprints, routing.subscription_cells),
            _again(self.deleted, cells, period.deleted, routing.subscription_cells),
        )


def _counts(columns: Sequence[Any], compared: Any) -> LoadCounts:
    messages, subscriptions, inserted, deleted = columns
    return LoadCounts(messages, subscriptions, inserted, deleted, compared)


def measure(routing: CellRouting, period: Period) -> CellTable:
    """Return the cells of a routing with what each did in a period."""
    return CellWork.of(routing, period).table()


def _again(pairs: CellPairs, cells: Longs, of: Rows, find: Any) -> CellPairs:
    """Return pairs of which those of rows in some cells are found again."""
    is_cell = np.zeros(int(pairs.cells.max(initial=0)) + 1, np.bool_)
    is_cell[cells[cells < len(is_cell)]] = True
    are_in = np.zeros(len(of), np.bool_)
    are_in[pairs.rows[is_cell[pairs.cells]]] = True
    rows, stay = np.flatnonzero(are_in), ~are_in[pairs.rows]
    found: CellPairs = find(of.take(rows))
    return CellPairs(
        np.concatenate([pairs.rows[stay], rows[found.rows]]), np.concatenate([pairs.cells[stay], found.cells])
    )
