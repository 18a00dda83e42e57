"""Terms assigned to shards, the base of all text partitioners: a table for terms of the sample, others by their id.

    branch  ── its rarest term ── the shard of that term     a subscription lives with all of its branches
    message ── all of its terms ── their shards              so it meets every branch whose terms it holds

The rarest term of a branch depends on the branch and on the messages of the sample only; ties go to the least id. A
branch without terms lives in all shards, so a message without terms goes to one.

Cost: a table of 23 to 45 bytes per term, built on first use, and one lookup per term.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from nearcast.model import Footprints, MessageBatch
from nearcast.partition.base import ShardArea, ToSome
from nearcast.partition.masks import Masks, add_shard, all_shards, masks_of
from nearcast.partition.term_frequencies import TermFrequencies
from nearcast.space import Box

if TYPE_CHECKING:
    from nearcast._jit import Table

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

_GREATEST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class TermAssignment:
    """Terms with one shard each.

    >>> from nearcast.partition import as_ints
    >>> terms = TermAssignment(np.array([5, 9]), np.array([2, 0], np.int32), 3)
    >>> terms.shards_of(np.array([9, 5, 7, -1])).tolist()
    [0, 2, 1, 2]
    >>> as_ints(terms.masks_of(np.array([0, 2, 2, 3]), np.array([5, 9, 7])))
    [5, 0, 2]
    """

    terms: Longs
    """int64 (n_terms,): ascending."""
    shards: Ints
    """int32 (n_terms,): the shard of each term."""
    n_shards: int
    others: Ints = field(default_factory=lambda: np.zeros(0, np.int32))
    """int32 (n_shards,): the shard of the terms outside the table with each remainder; empty for the remainder."""

    def shards_of(self, term_ids: Longs) -> Ints:
        """Return the shard of each term; a term outside the table goes by its id."""
        if not len(self.others):
            return self.found(term_ids).astype(np.int32)
        found = self._table.get_many(term_ids)
        unknown = np.flatnonzero(found < 0)
        found[unknown] = self.others[term_ids[unknown] % self.n_shards]
        return found.astype(np.int32)

    def found(self, term_ids: Longs, *, by_id: int = 0) -> Longs:
        """Return the number of each term in the table; a term outside it gets one by its id, from `by_id` on."""
        found = self._table.get_many(term_ids)
        unknown = np.flatnonzero(found < 0)
        found[unknown] = by_id + term_ids[unknown] % self.n_shards
        return found

    def masks_of(self, indptr: Longs, term_ids: Longs) -> Masks:
        """Return the shards of all terms of each row; none if a row has no terms."""
        n = len(indptr) - 1
        rows = np.repeat(np.arange(n), np.diff(indptr))
        return masks_of(rows, self.shards_of(term_ids), n=n, n_shards=self.n_shards)

    @cached_property
    def _table(self) -> Table:
        from nearcast._jit import Arena, Table

        table = Table(Arena(), "words", room=len(self.terms))
        table.put_many(self.terms, self.shards)
        return table


@dataclass(frozen=True)
class TermRouting(ToSome):
    """Subscriptions by the rarest term of each branch, messages by all terms."""

    n_shards: int
    words: TermAssignment
    frequencies: TermFrequencies
    loads: Floats

    def shard_areas(self, bounds: Box) -> list[ShardArea]:
        """Return no regions: space is not divided."""
        return []

    def place(self, footprints: Footprints) -> Masks:
        """Return the shards of the rarest terms."""
        n, owners = len(footprints), owners_of(footprints)
        branches, terms = posting_terms(footprints, self.frequencies)
        masks = masks_of(owners[branches], self.words.shards_of(terms), n=n, n_shards=self.n_shards)
        everywhere = np.delete(owners, branches)
        masks[everywhere] = all_shards(len(everywhere), self.n_shards)
        return masks

    def route(self, batch: MessageBatch) -> Masks:
        """Return the shards of all terms; the first shard if there are none."""
        masks = self.words.masks_of(batch.term_indptr, batch.term_ids)
        add_shard(masks, np.flatnonzero(np.diff(batch.term_indptr) == 0), 0)
        return masks


def posting_terms(footprints: Footprints, frequencies: TermFrequencies) -> tuple[Longs, Longs]:
    """Return which branches have terms, and the rarest term of each of them."""
    starts, term_ids = footprints.term_indptr, footprints.term_ids
    lengths = np.diff(starts)
    branches = np.flatnonzero(lengths > 0)
    if not len(branches):
        return branches, np.zeros(0, np.int64)
    firsts, lengths = starts[branches], lengths[branches]
    if len(branches) == len(term_ids):
        return branches, term_ids
    shares = _shares_of(term_ids, frequencies)
    is_least = shares == np.repeat(np.minimum.reduceat(shares, firsts), lengths)
    rarest: Longs = np.minimum.reduceat(np.where(is_least, term_ids, _GREATEST), firsts)
    return branches, rarest


def owners_of(footprints: Footprints) -> Longs:
    """Return the subscription of each branch."""
    return np.repeat(np.arange(len(footprints)), np.diff(footprints.branch_indptr))


def _shares_of(term_ids: Longs, frequencies: TermFrequencies) -> Floats:
    """Return the share of messages that hold each term."""
    if not len(frequencies.terms):
        return np.zeros(len(term_ids))
    at = np.minimum(np.searchsorted(frequencies.terms, term_ids), len(frequencies.terms) - 1)
    return np.where(frequencies.terms[at] == term_ids, frequencies.shares[at], 0.0)
