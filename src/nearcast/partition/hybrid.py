"""PS2Stream's hybrid partitioning (section IV): space is divided where that is cheaper, and terms where that is.

    leaf of space ── one shard: it has all terms
                  └─ several: H1 gives the shard of a term; a term that it does not list goes by its id

    subscription ── the leaves that its box overlaps, in each the rarest term of each branch ── H1, and added to H2
    message ─────── its leaf, all of its terms ── H2 gives the shards; a message without any is dropped

`hybrid_plan` builds the leaves. H1 does not change after the fit, so H2 agrees with H1 for every term of a leaf that
some subscription is posted under. H2 never shrinks. A branch without terms is posted under a term that every message
holds. The cells of the paper's grid^t are the leaves here: a handful of comparisons find a leaf, and smaller cells
would hold a subscription several times. A fixed routing has no H2 and sends a message wherever H1 does.

Cost: one table lookup per term of a message; 35 to 60 bytes per term of a leaf with a posting.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from nearcast.model import Footprints, MessageBatch
from nearcast.partition.base import Region, Sample, ToSome
from nearcast.partition.hybrid_parts import NOTHING, Rows, SampleWork
from nearcast.partition.hybrid_plan import HybridPlan, plan
from nearcast.partition.masks import Masks, as_ints, check_shards, masks_of, no_shards
from nearcast.partition.term_assignment import posting_terms
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


@dataclass(frozen=True)
class Owners:
    """H1: the shard of each term in each leaf."""

    shard_indptr: Longs
    """int64 (n_leaves + 1,): the shards of each leaf."""
    shards: Ints
    keys: Longs
    """int64 (n,): terms in leaves with several shards, see `keys_of`."""
    key_shards: Ints

    def shards_of(self, leaves: Ints, terms: Longs) -> Ints:
        """Return the shard of each term."""
        n_shards = np.diff(self.shard_indptr)[leaves]
        shards: Ints = self.shards[self.shard_indptr[leaves] + terms % n_shards]
        several = np.flatnonzero(n_shards > 1)
        if len(several):
            known = self._table.get_many(keys_of(leaves[several], terms[several]))
            shards[several[known >= 0]] = known[known >= 0]
        return shards

    @cached_property
    def _table(self) -> Table:
        return _table(self.keys, self.key_shards)


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

    def regions(self, bounds: Box) -> list[Region]:
        """Return the leaves that hold a point."""
        leaves = np.repeat(np.arange(self.tree.n_leaves), np.diff(self.owners.shard_indptr))
        masks = as_ints(masks_of(leaves, self.owners.shards, n=self.tree.n_leaves, n_shards=self.n_shards))
        boxes = self.tree.boxes(bounds.as_tuple()).clip(
            [bounds.xmin, bounds.ymin] * 2, [bounds.xmax, bounds.ymax] * 2
        )
        each = zip(masks, boxes.tolist(), strict=True)
        return [Region((a, b, c, d), mask) for mask, (a, b, c, d) in each if a <= c and b <= d]

    def place(self, footprints: Footprints) -> Masks:
        """Return the shards of the rarest terms, in all leaves that a box overlaps."""
        branches, terms = posting_terms(footprints, self.frequencies)
        posts = Rows(footprints.branch_indptr, np.full(len(footprints.term_indptr) - 1, NOTHING))
        posts.items[branches] = terms
        masks = no_shards(len(footprints), self.n_shards)
        for first in range(0, len(footprints), _AT_ONCE):
            rows, leaves = self.tree.leaves_in(footprints.boxes[first : first + _AT_ONCE])
            terms, n = posts.take(rows + first), posts.lengths(rows + first)
            rows, leaves = np.repeat(rows, n), np.repeat(leaves, n)
            shards, part = self.owners.shards_of(leaves, terms), masks[first : first + _AT_ONCE]
            part[:] = masks_of(rows, shards, n=len(part), n_shards=self.n_shards)
            if self.drops:
                self.wanted.add(leaves, terms, shards)
        return masks

    def route(self, batch: MessageBatch) -> Masks:
        """Return the shards of the terms of a message with postings in its leaf."""
        leaves, every = self.tree.leaves_at(batch.xs, batch.ys), np.arange(self.tree.n_leaves, dtype=np.int32)
        shards_of = self.wanted.shards_of if self.drops else self.owners.shards_of
        rows, n = np.arange(len(batch)), np.diff(batch.term_indptr)
        of_terms = shards_of(np.repeat(leaves, n), batch.term_ids)
        of_all = shards_of(every, np.full(len(every), NOTHING))[leaves]
        rows, shards = np.concatenate([np.repeat(rows, n), rows]), np.concatenate([of_terms, of_all])
        return masks_of(rows, shards, n=len(batch), n_shards=self.n_shards)


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


def _owners(made: HybridPlan, leaves: list[int], n_leaves: int, work: SampleWork) -> Owners:
    order = np.argsort(leaves, kind="stable")
    indptr = np.searchsorted(np.array(leaves)[order], np.arange(n_leaves + 1))
    keys, shards = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]
    for part, leaf, shard in zip(made.parts, leaves, made.shards, strict=True):
        if not part.is_whole:
            terms = work.terms[np.unique(work.posts[part.branches])]
            keys.append(keys_of(np.full(len(terms), leaf, np.int32), terms))
            shards.append(np.full(len(terms), shard, np.int32))
    return Owners(indptr, made.shards[order], np.concatenate(keys), np.concatenate(shards))


def _table(keys: Longs, shards: Ints) -> Table:
    from nearcast._jit import Arena, Table

    table = Table(Arena(), "words", room=len(keys))
    table.put_many(keys, shards)
    return table
