"""The work of a period, divided by a routing: by cells of messages and subscriptions, or by subscriptions alone."""

from __future__ import annotations

from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from nearcast.partition.balance.cells import CellRouting, CellWork, LeafPoints, Period
from nearcast.partition.balance.subscription_work import SubscriptionWork

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


class LoadTable(Protocol):
    """The cells of a routing with their loads in a period."""

    @property
    def shards(self) -> Ints:
        """int32 (n_cells,): the shard of each cell."""

    @property
    def sizes(self) -> Longs:
        """int64 (n_cells,): the bytes of its subscriptions."""

    @property
    def loads(self) -> Floats:
        """float64 (n_cells,): what moves with each cell."""

    @property
    def shard_loads(self) -> Floats:
        """float64 (n_shards,): the load of each shard."""


class DividedWork(Protocol):
    """The work of a period, divided by a routing."""

    @property
    def routing(self) -> CellRouting:
        """The routing."""

    @property
    def period(self) -> Period:
        """The period."""

    @property
    def n_places(self) -> int:
        """The number of pairs of a subscription and a cell."""

    def table(self) -> LoadTable:
        """Return the cells with their loads."""

    def points(self, cells: Longs) -> LeafPoints:
        """Return the points by which the leaf of some cells may be cut."""

    def moved(self, routing: CellRouting) -> Self:
        """Return the work under a routing with the same cells in other shards."""

    def divided(self, routing: CellRouting, cells: Longs) -> Self:
        """Return the work under a routing that divides some cells of this one, and leaves all others."""


def work_of(routing: CellRouting, period: Period) -> DividedWork:
    """Divide the work of a period by a routing."""
    if routing.sends_all:
        return SubscriptionWork.of(routing, period)
    return CellWork.of(routing, period)
