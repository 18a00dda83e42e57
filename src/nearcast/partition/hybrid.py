"""PS2Stream's hybrid partitioning (section IV): space is divided where that is cheaper, and terms where that is.

    leaf of space ── one cell: it has all terms                                                     cell ── shard
                  └─ several: H1 gives the cell of a term; a term that it does not list goes by its id

    subscription ── the leaves that its box overlaps, in each the rarest term of each branch ── H1, and added to H2
    message ─────── its leaf, all of its terms ── H2 gives the shards; a message without any is dropped

`hybrid_plan` builds the leaves. H1 does not change after the fit, so H2 agrees with H1 for every term of a leaf that
some subscription is posted under. H2 never shrinks. A branch without terms is posted under a term that every message
holds. The cells of the paper's grid^t are the leaves here: a handful of comparisons find a leaf, and smaller cells
would hold a subscription several times. A fixed routing has no H2 and sends a message wherever H1 does.

Cost: one table lookup per term of a message; 35 to 60 bytes per term of a leaf with a posting.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from nearcast.errors import require
from nearcast.model import Footprints, MessageBatch
from nearcast.partition.base import CellPairs, Sample, ShardArea, ToSome
from nearcast.partition.hybrid_parts import NOTHING, Rows, SampleWork
from nearcast.partition.hybrid_plan import HybridPlan, plan
from nearcast.partition.masks import Masks, as_ints, check_shards, masks_of, no_shards
from nearcast.partition.term_assignment import owners_of, posting_terms
from nearcast.partition.term_frequencies import TermFrequencies
from nearcast.partition.tree import Tree, joined
from nearcast.space import Box

if TYPE_CHECKING:
    from nearcast._jit import Table

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

_AT_ONCE = 16_384  # subscriptions per call of `place`; each may overlap every leaf
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_MOST_KEYS = 500_000  # terms in leaves with several cells, beyond which such leaves are no longer cut


@dataclass(frozen=True)
class Owners:
    """H1: the cell of each term in each leaf, and the shard of each cell."""

    open_indptr: Longs
    """int64 (n_leaves + 1,): the cells of each leaf among which terms outside the table are divided, at least one."""
    open_cells: Ints
    leaves: Ints
    """int32 (n_cells,): the leaf of each cell."""
    shards: Ints
    """int32 (n_cells,): the shard of each cell."""
    keys: Longs
    """int64 (n,): terms in leaves with several cells, see `keys_of`."""
    key_cells: Ints

    @property
    def n_leaves(self) -> int:
        """The number of leaves."""
        return len(self.open_indptr) - 1

    def shards_of(self, leaves: Ints, terms: Longs) -> Ints:
        """Return the shard of each term."""
        shards: Ints = self.shards[self.cells_of(leaves, terms)]
        return shards

    def cells_of(self, leaves: Ints, terms: Longs) -> Ints:
        """Return the cell of each term."""
        n_open = np.diff(self.open_indptr)[leaves]
        cells: Ints = self.open_cells[self.open_indptr[leaves] + terms % n_open]
        several = np.flatnonzero(self.are_divided[leaves])
        if len(several):
            known = self._table.get_many(keys_of(leaves[several], terms[several]))
            cells[several[known >= 0]] = known[known >= 0]
        return cells

    @cached_property
    def are_divided(self) -> npt.NDArray[np.bool_]:
        """bool (n_leaves,): whether a leaf has several cells."""
        return np.bincount(self.leaves, minlength=self.n_leaves) > 1

    def continues(self, other: Owners) -> bool:
        """Return whether the cells are those of other owners, in the same or other shards, and perhaps more."""
        tables = ("open_indptr", "open_cells", "leaves", "keys", "key_cells")
        pairs = [(getattr(other, name), getattr(self, name)) for name in tables]
        return all(np.array_equal(before, after[: len(before)]) for before, after in pairs)

    def reassigned(self, shards: Ints) -> Owners:
        """Return the same cells with other shards."""
        made = replace(self, shards=shards)
        for name in ("are_divided", "_table"):  # they do not depend on shards
            if name in self.__dict__:
                made.__dict__[name] = self.__dict__[name]
        return made

    def cut(self, leaf: int) -> Owners:
        """Return the cells after a cut of a leaf: its own have the low side, new ones the high side."""
        own, new_leaf = np.flatnonzero(self.leaves == leaf), self.n_leaves
        new_of = np.full(len(self.shards), -1, np.int32)
        new_of[own] = len(self.shards) + np.arange(len(own))
        rows = np.flatnonzero(new_of[self.key_cells] >= 0)
        terms = terms_of(self.keys[rows], leaf)
        opened = new_of[self.open_cells[self.open_indptr[leaf] : self.open_indptr[leaf + 1]]]
        return Owners(
            np.append(self.open_indptr, self.open_indptr[-1] + len(opened)),
            np.append(self.open_cells, opened),
            np.append(self.leaves, np.full(len(own), new_leaf, np.int32)),
            np.append(self.shards, self.shards[own]),
            np.append(self.keys, keys_of(np.full(len(rows), new_leaf, np.int32), terms)),
            np.append(self.key_cells, new_of[self.key_cells[rows]]),
        )

    def split(self, leaf: int, terms: Longs, shard: int) -> Owners:
        """Return the cells after some terms of a leaf with one cell have become a cell of their own, in a shard."""
        cell, keys = len(self.shards), keys_of(np.full(len(terms), leaf, np.int32), terms)
        return replace(
            self,
            leaves=np.append(self.leaves, np.int32(leaf)),
            shards=np.append(self.shards, np.int32(shard)),
            keys=np.append(self.keys, keys),
            key_cells=np.append(self.key_cells, np.full(len(terms), cell, np.int32)),
        )

    @cached_property
    def _table(self) -> Table:
        return _table(self.keys, self.key_cells)


@dataclass
class Wanted:
    """H2: the terms of each leaf that a subscription is posted under, with their shards. It grows."""

    keys: Longs
    """int64 (room,): see `keys_of`; the first n are valid."""
    shards: Ints
    n: int

    @classmethod
    def none(cls) -> Wanted:
        """Return an empty table."""
        return cls(np.zeros(16, np.int64), np.zeros(16, np.int32), 0)

    def shards_of(self, leaves: Ints, terms: Longs) -> Longs:
        """Return the shard of each term, or -1 if no subscription is posted under it."""
        return self._table.get_many(keys_of(leaves, terms))

    def add(self, leaves: Ints, terms: Longs, shards: Ints) -> None:
        """Add terms with their shards."""
        keys, first = np.unique(keys_of(leaves, terms), return_index=True)
        is_new = self._table.get_many(keys) < 0
        keys, shards = keys[is_new], shards[first[is_new]]
        self._table.put_many(keys, shards)
        n = self.n + len(keys)
        if n > len(self.keys):
            self.keys, self.shards = np.resize(self.keys, 2 * n), np.resize(self.shards, 2 * n)
        self.keys[self.n : n], self.shards[self.n : n] = keys, shards
        self.n = n

    @cached_property
    def _table(self) -> Table:
        return _table(self.keys[: self.n], self.shards[: self.n])


@dataclass(frozen=True)
class HybridRouting(ToSome):
    """Leaves of space, some of them with several shards."""

    n_shards: int
    tree: Tree
    owners: Owners
    wanted: Wanted
    frequencies: TermFrequencies
    loads: Floats
    drops: bool = True
    """True if a message goes only where a subscription is posted under one of its terms."""

    def fixed(self) -> Self:
        """Return a routing without H2."""
        return replace(self, wanted=Wanted.none(), drops=False)

    def shard_areas(self, bounds: Box) -> list[ShardArea]:
        """Return the leaves that hold a point."""
        owners, n = self.owners, self.tree.n_leaves
        masks = as_ints(masks_of(owners.leaves.astype(np.int64), owners.shards, n=n, n_shards=self.n_shards))
        boxes = self.tree.boxes(bounds.as_tuple()).clip(
            [bounds.xmin, bounds.ymin] * 2, [bounds.xmax, bounds.ymax] * 2
        )
        each = zip(masks, boxes.tolist(), strict=True)
        return [ShardArea((a, b, c, d), mask) for mask, (a, b, c, d) in each if a <= c and b <= d]

    def place(self, footprints: Footprints) -> Masks:
        """Return the shards of the rarest terms, in all leaves that a box overlaps."""
        masks = no_shards(len(footprints), self.n_shards)
        for first, rows, leaves, terms in self._posts(footprints):
            shards, part = self.owners.shards_of(leaves, terms), masks[first : first + _AT_ONCE]
            part[:] = masks_of(rows - first, shards, n=len(part), n_shards=self.n_shards)
            if self.drops:
                self.wanted.add(leaves, terms, shards)
        return masks

    def _posts(self, footprints: Footprints) -> Iterator[tuple[int, Longs, Ints, Longs]]:
        """Yield, for some subscriptions at a time, the first of them, and rows, leaves and terms of all postings."""
        branches, terms = posting_terms(footprints, self.frequencies)
        posts = Rows(footprints.branch_indptr, np.full(len(footprints.term_indptr) - 1, NOTHING))
        posts.items[branches] = terms
        for first in range(0, len(footprints), _AT_ONCE):
            rows, leaves = self.tree.leaves_in(footprints.boxes[first : first + _AT_ONCE])
            rows = rows + first
            n = posts.lengths(rows)
            yield first, np.repeat(rows, n), np.repeat(leaves, n), posts.take(rows)

    def route(self, batch: MessageBatch) -> Masks:
        """Return the shards of the terms of a message with postings in its leaf."""
        leaves, every = self.tree.leaves_at(batch.xs, batch.ys), np.arange(self.tree.n_leaves, dtype=np.int32)
        shards_of = self.wanted.shards_of if self.drops else self.owners.shards_of
        rows, n = np.arange(len(batch)), np.diff(batch.term_indptr)
        of_terms = shards_of(np.repeat(leaves, n), batch.term_ids)
        of_all = shards_of(every, np.full(len(every), NOTHING))[leaves]
        rows, shards = np.concatenate([np.repeat(rows, n), rows]), np.concatenate([of_terms, of_all])
        return masks_of(rows, shards, n=len(batch), n_shards=self.n_shards)

    # -- cells, see `nearcast.partition.balance` -------------------------------------------------------------------

    @property
    def cell_shards(self) -> Ints:
        """The shard of each cell: all terms of a leaf, or some of them."""
        return self.owners.shards

    @property
    def cell_leaves(self) -> Ints:
        """The leaf of each cell."""
        return self.owners.leaves

    def message_cells(self, batch: MessageBatch) -> CellPairs:
        """Return the cells of messages, whatever has been placed."""
        leaves, owners = self.tree.leaves_at(batch.xs, batch.ys), self.owners
        nothing = owners.cells_of(leaves, np.full(len(leaves), NOTHING))
        divided = np.flatnonzero(owners.are_divided[leaves])
        held = Rows(batch.term_indptr, batch.term_ids)
        rows, terms = np.repeat(divided, held.lengths(divided)), held.take(divided)
        cells = owners.cells_of(leaves[rows], terms)
        return CellPairs.distinct(np.concatenate([np.arange(len(batch)), rows]), np.concatenate([nothing, cells]))

    def subscription_cells(self, footprints: Footprints) -> CellPairs:
        """Return the cells of subscriptions."""
        parts = [
            CellPairs.distinct(rows, self.owners.cells_of(leaves, terms))
            for _, rows, leaves, terms in self._posts(footprints)
        ]
        return CellPairs.joined(parts)

    def refines(self, other: Self) -> bool:
        """Return whether the routing is another one after cuts, splits and moves."""
        mine, others = self.frequencies, other.frequencies
        same = np.array_equal(mine.terms, others.terms) and np.array_equal(mine.shares, others.shares)
        return same and self.tree.refines(other.tree) and self.owners.continues(other.owners)

    def posted_terms(self, footprints: Footprints) -> tuple[Longs, Longs]:
        """Return pairs of subscriptions and the terms that their branches are posted under."""
        branches, terms = posting_terms(footprints, self.frequencies)
        return owners_of(footprints)[branches], terms

    def reassigned(self, shards: Ints) -> Self:
        """Return the routing with the same cells in other shards; it is fixed."""
        return replace(self.fixed(), owners=self.owners.reassigned(shards))

    def may_cut(self, leaf: int) -> bool:
        """Return whether the table of terms stays small: both halves of a leaf with several cells have its terms."""
        return len(self.owners.keys) < _MOST_KEYS or not self.owners.are_divided[leaf]

    def cut(self, leaf: int, *, axis: int, value: float) -> Self:
        """Return the routing with a leaf cut in two, whose cells stay in their shards; it is fixed."""
        return replace(self.fixed(), tree=self.tree.cut(leaf, axis=axis, value=value), owners=self.owners.cut(leaf))

    def split(self, cell: int, terms: Longs, *, shard: int) -> Self:
        """Return the routing with some terms of an undivided leaf in a new cell, in a shard; it is fixed."""
        leaf = int(self.owners.leaves[cell])
        require(not self.owners.are_divided[leaf], "cell", "must be the only cell of its leaf", cell)
        return replace(self.fixed(), owners=self.owners.split(leaf, terms, shard))


class HybridPartitioner:
    """Divides space and terms."""

    name = "hybrid"

    def fit(self, sample: Sample, *, n_shards: int) -> HybridRouting:
        """Divide the work of the sample."""
        check_shards(n_shards)
        frequencies = TermFrequencies.of(sample.messages)
        work = SampleWork(sample, frequencies)
        made = plan(work, n_shards)
        paths = sorted({part.path for part in made.parts})
        tree, leaf_of = joined(paths)
        owners = _owners(made, [leaf_of[part.path] for part in made.parts], tree.n_leaves, work)
        return HybridRouting(n_shards, tree, owners, Wanted.none(), frequencies, made.loads)


def keys_of(leaves: Ints, terms: Longs) -> Longs:
    """Return one key for a term in a leaf; a collision only sends messages to more shards than necessary."""
    keys: Longs = (terms.view(np.uint64) + leaves.astype(np.uint64) * _SPREAD).view(np.int64)
    return keys


def terms_of(keys: Longs, leaf: int) -> Longs:
    """Return the terms of keys in a leaf.

    >>> terms_of(keys_of(np.array([3, 3]), np.array([-7, 2**40])), 3).tolist()
    [-7, 1099511627776]
    """
    terms: Longs = (keys.view(np.uint64) - np.array([leaf], np.uint64) * _SPREAD).view(np.int64)
    return terms


def _owners(made: HybridPlan, leaves: list[int], n_leaves: int, work: SampleWork) -> Owners:
    order = np.argsort(leaves, kind="stable")
    indptr = np.searchsorted(np.array(leaves)[order], np.arange(n_leaves + 1))
    cells = np.argsort(order).tolist()  # of each part: parts of a leaf are adjacent cells
    keys, key_cells = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]
    for part, leaf, cell in zip(made.parts, leaves, cells, strict=True):
        if not part.is_whole:
            terms = work.terms[np.unique(work.posts[part.branches])]
            keys.append(keys_of(np.full(len(terms), leaf, np.int32), terms))
            key_cells.append(np.full(len(terms), cell, np.int32))
    of_cells = np.array(leaves, np.int32)[order]
    open_cells = np.arange(len(order), dtype=np.int32)
    return Owners(indptr, open_cells, of_cells, made.shards[order], np.concatenate(keys), np.concatenate(key_cells))


def _table(keys: Longs, shards: Ints) -> Table:
    from nearcast._jit import Arena, Table

    table = Table(Arena(), "words", room=len(keys))
    table.put_many(keys, shards)
    return table
