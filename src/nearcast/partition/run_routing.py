"""Runs of terms as cells: an overloaded shard splits, and idle ones merge, along the terms (DSkype, section 7.4).

    terms by falling frequency   a b c d e f g h i j
    cells, each a run of terms   4 4 5 5 6 6 6 7 7 7      cells 0 to 3: terms outside the table, by their id
    shards of the cells          0 0 1 1 2 2 2 3 3 3

Partitioners give each shard one run. A run that is too heavy is cut where both sides do the same work, and runs move
from shard to shard; a subscription follows the terms that it is posted under. Terms that come later, in new topics,
are cells too, one for each remainder of their ids, so that they can move; these are not cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from nearcast.errors import require
from nearcast.model import Footprints, MessageBatch
from nearcast.partition.base import CellPairs
from nearcast.partition.term_assignment import TermAssignment, TermRouting, owners_of, posting_terms
from nearcast.partition.term_frequencies import TermFrequencies

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RunRouting(TermRouting):
    """Subscriptions by the rarest term of each branch, messages by all terms, in runs."""

    ranks: Longs
    """int64 (n_terms,): the place of each term of the table in the order that runs follow."""
    cells: Ints
    """int32 (n_terms,): the cell of each term of the table."""
    cell_shards: Ints
    """int32 (n_cells,): the shard of each cell."""

    @classmethod
    def of_runs(
        cls, words: TermAssignment, ranks: Longs, *, frequencies: TermFrequencies, loads: Floats
    ) -> RunRouting:
        """Return the routing that gives each shard one run, and the terms outside the table by their id."""
        n = words.n_shards
        shards = np.tile(np.arange(n, dtype=np.int32), 2)
        return cls(n, words, frequencies, loads, ranks, words.shards + np.int32(n), shards)

    # -- cells, see `nearcast.partition.balance` -------------------------------------------------------------------

    @property
    def cell_leaves(self) -> Ints:
        """The run of each cell: itself."""
        return np.arange(len(self.cell_shards), dtype=np.int32)

    def message_cells(self, batch: MessageBatch) -> CellPairs:
        """Return the cells of the terms of messages; a message without terms has none."""
        return CellPairs.distinct(_owners(batch), self._cells_of(batch.term_ids))

    def subscription_cells(self, footprints: Footprints) -> CellPairs:
        """Return the cells of the terms that branches are posted under.

        One without terms is in every shard, whatever moves; it counts in the cells of terms outside the table.
        """
        owners, (branches, terms) = owners_of(footprints), posting_terms(footprints, self.frequencies)
        everywhere = np.repeat(np.delete(owners, branches), self.n_shards)
        others = np.resize(np.arange(self.n_shards, dtype=np.int32), len(everywhere))
        rows = np.concatenate([owners[branches], everywhere])
        return CellPairs.distinct(rows, np.concatenate([self._cells_of(terms), others]))

    def message_ranks(self, batch: MessageBatch, run: int) -> tuple[Longs, Longs]:
        """Return pairs of a message and the place of one of its terms in a run."""
        rows = np.flatnonzero(self._cells_of(batch.term_ids) == run)
        return _owners(batch)[rows], self._ranks_of(batch.term_ids[rows], run)

    def subscription_ranks(self, footprints: Footprints, run: int) -> tuple[Longs, Longs]:
        """Return the first and the last place of the terms in a run that each subscription is posted under."""
        branches, terms = posting_terms(footprints, self.frequencies)
        rows = np.flatnonzero(self._cells_of(terms) == run)
        owners, ranks = owners_of(footprints)[branches[rows]], self._ranks_of(terms[rows], run)
        if not len(owners):
            return ranks, ranks
        first = np.flatnonzero(np.diff(owners, prepend=-1))
        return np.minimum.reduceat(ranks, first), np.maximum.reduceat(ranks, first)

    def reassigned(self, shards: Ints) -> RunRouting:
        """Return the routing with the same runs in other shards; it does not narrow."""
        return self._with(self.cells, np.asarray(shards, np.int32))

    def may_cut(self, leaf: int) -> bool:
        """Return whether a cell is a run that can be cut."""
        return leaf >= self.n_shards

    def cut(self, leaf: int, *, axis: int, value: float) -> RunRouting:
        """Return the routing with the terms of a run after a place in a run of their own, in the same shard."""
        n = len(self.cell_shards)
        require(self.n_shards <= leaf < n, "leaf", f"must be a run, between {self.n_shards} and {n - 1}", leaf)
        require(axis == 0, "axis", "must be 0, the order of terms", axis)
        cells = np.where((self.cells == leaf) & (self.ranks > value), np.int32(n), self.cells)
        return self._with(cells, np.append(self.cell_shards, self.cell_shards[leaf]))

    def _with(self, cells: Ints, shards: Ints) -> RunRouting:
        n = self.n_shards
        words = TermAssignment(self.words.terms, shards[cells], n, shards[:n])
        made = RunRouting(n, words, self.frequencies, self.loads, self.ranks, cells, shards)
        if cells is self.cells and "_runs" in self.__dict__:
            made.__dict__["_runs"] = self._runs
        return made

    def _cells_of(self, term_ids: Longs) -> Ints:
        return self._runs.found(term_ids).astype(np.int32)

    def _ranks_of(self, term_ids: Longs, run: int) -> Longs:
        """Return the places of terms of a run; terms outside the table have none, and are all alike."""
        if run < self.n_shards:
            return np.zeros(len(term_ids), np.int64)
        return self.ranks[np.searchsorted(self.words.terms, term_ids)]

    @cached_property
    def _runs(self) -> TermAssignment:
        return TermAssignment(self.words.terms, self.cells, self.n_shards)


def _owners(batch: MessageBatch) -> Longs:
    """Return the message of each term."""
    return np.repeat(np.arange(len(batch)), np.diff(batch.term_indptr))
