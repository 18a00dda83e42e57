"""Assignment of subscriptions to shards, by key: as fitted for those of the sample, by least load for later ones.

    keys, shards, costs    subscriptions of the sample, in the order of their keys
    loads                  the load of each shard: it grows with later subscriptions, and falls with those that go

A subscription of the sample that went and comes again is a later one.

Where several processes place subscriptions, none knows the current loads. A fixed assignment does not learn: keys
divide the subscriptions of each shard of the sample, and all later ones, among cells, which may be assigned to other
shards, see `nearcast.partition.balance`.

Cost: 21 bytes per subscription of the sample, and one binary search per placement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from nearcast.model import Footprints, MessageBatch
from nearcast.partition.base import CellPairs, ToAll
from nearcast.partition.load import assign_greedily
from nearcast.partition.masks import Masks, mask_of, shards_by_key

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Costs = Callable[[Longs], Floats]
"""Returns the costs of rows that are not in the sample."""

CELLS = 32
"""Cells per shard of a fixed assignment, for subscriptions of the sample, and as many for later ones."""
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Assignment:
    """One shard per subscription."""

    keys: Keys
    shards: Ints
    costs: Floats
    """float64 (n,): what each subscription of the sample adds to the load of its shard."""
    are_gone: npt.NDArray[np.bool_]
    """bool (n,): those of the sample that were removed."""
    loads: Floats
    """float64 (n_shards,): of the sample, without those that are gone, and of all that were placed later."""
    cell_shards: Ints | None = None
    """int32 (n_cells,): the shard of each cell of a fixed assignment; None for one that learns."""

    @classmethod
    def assigned(cls, keys: Keys, costs: Floats, n_shards: int) -> Assignment:
        """Assign the subscriptions of a sample, the most expensive first."""
        return cls.of(keys, assign_greedily(costs, np.zeros(n_shards)), costs, n_shards=n_shards)

    @classmethod
    def of(cls, keys: Keys, shards: Ints, costs: Floats, *, n_shards: int) -> Assignment:
        """Return an assignment with given shards."""
        order = np.argsort(keys, kind="stable")
        loads = np.bincount(shards, weights=costs, minlength=n_shards).astype(np.float64)
        return cls(keys[order], shards[order], costs[order], np.zeros(len(keys), np.bool_), loads)

    def place(self, keys: Keys, costs: Costs) -> Masks:
        """Return the shard of each subscription, and add later ones to the loads."""
        if self.cell_shards is not None:
            return mask_of(self.cell_shards[self.cells_of(keys)], len(self.loads))
        at, known = self._find(keys)
        shards = np.zeros(len(keys), np.int32)
        shards[known] = self.shards[at[known]]
        new = np.flatnonzero(~known)
        if len(new):
            wanted = costs(new)
            shards[new] = assign_greedily(wanted, self.loads)
            self.loads[:] += np.bincount(shards[new], weights=wanted, minlength=len(self.loads))
        return mask_of(shards, len(self.loads))

    def release(self, keys: Keys, costs: Costs, shard: int) -> None:
        """Subtract subscriptions that a shard had from its load; `costs` are those with which they were placed."""
        at, known = self._find(keys)
        self.are_gone[at[known]] = True
        new = np.flatnonzero(~known)
        gone = float(self.costs[at[known]].sum()) + (float(costs(new).sum()) if len(new) else 0.0)
        self.loads[shard] = max(0.0, self.loads[shard] - gone)

    def fixed(self) -> Assignment:
        """Return an assignment that places later subscriptions by key."""
        if self.cell_shards is not None:
            return self
        shards = np.arange(len(self.loads), dtype=np.int32)
        return replace(self, cell_shards=np.tile(np.repeat(shards, CELLS), 2))

    def cells_of(self, keys: Keys) -> Ints:
        """Return the cell of each subscription: those of the sample by their shard, then those of all others."""
        at, known = self._find(keys)
        n_shards = len(self.loads)
        groups = n_shards + shards_by_key(keys, n_shards)
        groups[known] = self.shards[at[known]]
        cells: Ints = groups * CELLS + ((keys * _SPREAD) >> np.uint64(40)).astype(np.int32) % CELLS
        return cells

    def _find(self, keys: Keys) -> tuple[Longs, npt.NDArray[np.bool_]]:
        """Return where keys are, and which of them are those of the sample that have not gone."""
        at = np.minimum(np.searchsorted(self.keys, keys), max(len(self.keys) - 1, 0))
        if not len(self.keys):
            return at, np.zeros(len(keys), np.bool_)
        return at, (self.keys[at] == keys) & ~self.are_gone[at]


class AssignedRouting(ToAll):
    """Base class of routings with an assignment of subscriptions."""

    assignment: Assignment

    @property
    def loads(self) -> Floats:
        """The cost of the subscriptions of each shard."""
        return self.assignment.loads

    def costs(self, footprints: Footprints) -> Floats:
        """Return what subscriptions that are not in the sample add to the load of a shard."""
        raise NotImplementedError

    def place(self, footprints: Footprints) -> Masks:
        """Return the assigned shard, or the least loaded one."""
        return self.assignment.place(footprints.keys, lambda rows: self.costs(footprints.take(rows)))

    def release(self, footprints: Footprints, shard: int) -> None:
        """Forget subscriptions that were placed in a shard, so that its load falls."""
        self.assignment.release(footprints.keys, lambda rows: self.costs(footprints.take(rows)), shard)

    def fixed(self) -> Self:
        """Return a routing that places later subscriptions by key."""
        return replace(self, assignment=self.assignment.fixed())  # type: ignore[type-var]

    # -- cells, see `nearcast.partition.balance` -------------------------------------------------------------------

    @property
    def cell_shards(self) -> Ints:
        """The shard of each cell of a fixed routing."""
        cells = self.assignment.fixed().cell_shards
        assert cells is not None
        return cells

    def message_cells(self, batch: MessageBatch) -> CellPairs:
        """Return no cells: every message goes to every shard."""
        return CellPairs.joined([])

    def subscription_cells(self, footprints: Footprints) -> CellPairs:
        """Return the cell of each subscription."""
        return CellPairs(np.arange(len(footprints)), self.assignment.cells_of(footprints.keys))

    def reassigned(self, shards: Ints) -> Self:
        """Return the routing with the same cells in other shards; it is fixed."""
        return replace(self, assignment=replace(self.assignment, cell_shards=shards))  # type: ignore[type-var]
