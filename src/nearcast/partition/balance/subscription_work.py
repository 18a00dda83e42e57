"""The work of a period where every message goes to every shard: it is divided by subscriptions alone.

A cell holds subscriptions, each in one cell, and costs what they cost: the messages that an index compares with them,
their insertions and deletions. What each shard does for every message is the same in all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.partition.balance.cells import CellRouting, LeafPoints, Period
from nearcast.partition.base import Sample
from nearcast.partition.candidate_pairs import count_by_subscription
from nearcast.partition.load import CHECK, COMPARE, DELETE, HANDLE, INSERT

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


class SubscriptionTable(NamedTuple):
    """The cells of a routing with their loads in a period."""

    shards: Ints
    sizes: Longs
    loads: Floats
    shard_loads: Floats


@dataclass(frozen=True)
class SubscriptionWork:
    """The work of a period, by subscription."""

    routing: CellRouting
    period: Period
    costs: Floats
    """float64 (n,): the load of each subscription, and of those that it stands for."""
    cells: Ints
    """int32 (n,): the cell of each subscription."""
    deleted_cells: Ints

    @classmethod
    def of(cls, routing: CellRouting, period: Period) -> SubscriptionWork:
        """Divide the work of a period."""
        return cls(
            routing,
            period,
            costs_of(period).costs,
            routing.subscription_cells(period.footprints).cells,
            routing.subscription_cells(period.deleted).cells,
        )

    @property
    def n_places(self) -> int:
        """The number of pairs of a subscription and a cell: each is in one."""
        return len(self.cells)

    def table(self) -> SubscriptionTable:
        """Return the cells with their loads."""
        period, shards, n_shards = self.period, self.routing.cell_shards, self.routing.n_shards
        n = len(shards)
        loads: Floats = np.bincount(self.cells, weights=self.costs, minlength=n).astype(np.float64)
        loads = loads + DELETE * period.weight * np.bincount(self.deleted_cells, minlength=n)
        sizes = np.bincount(self.cells, weights=period.sizes * period.weight, minlength=n).astype(np.int64)
        of_shards = np.bincount(shards, weights=loads, minlength=n_shards).astype(np.float64)
        return SubscriptionTable(shards, sizes, loads, of_shards + _everywhere(period))

    def points(self, cells: Longs) -> LeafPoints:
        """Return the places of subscriptions: none of them is in two leaves."""
        rows = np.flatnonzero(np.isin(self.cells, cells))
        footprints = self.period.footprints
        return LeafPoints(footprints.xs[rows], footprints.ys[rows], self.costs[rows], np.zeros((0, 4)))

    def moved(self, routing: CellRouting) -> SubscriptionWork:
        """Return the work under a routing with the same cells in other shards."""
        return replace(self, routing=routing)

    def divided(self, routing: CellRouting, cells: Longs) -> SubscriptionWork:
        """Return the work under a routing that divides some cells of this one, and leaves all others."""
        found = routing.subscription_cells(self.period.footprints), routing.subscription_cells(self.period.deleted)
        return replace(self, routing=routing, cells=found[0].cells, deleted_cells=found[1].cells)


class Costs(NamedTuple):
    """What messages cost in a period, whatever the routing."""

    costs: Floats
    """float64 (n,): the load of each subscription, and of those that it stands for."""
    everywhere: float
    """The load of handling all messages, in each shard."""


def costs_of(period: Period) -> Costs:
    """Return the costs of a period where every message goes to every shard."""
    footprints, messages = period.footprints, period.messages
    if period.compared is None:
        costs = np.full(len(footprints), CHECK * len(messages))
    else:
        costs = COMPARE * count_by_subscription(Sample(footprints, messages))
    return Costs((costs * period.message_weight + INSERT * period.are_new) * period.weight, _everywhere(period))


def _everywhere(period: Period) -> float:
    return HANDLE * len(period.messages) * period.message_weight
