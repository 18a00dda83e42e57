"""Local load adjustment: work goes from the busiest to the idlest shard until they are even (PS2Stream, section V-A).

    while the busiest shard has more than sigma times the load of the idlest
        phase I     terms move where that lowers the total load, see `term_moves`
        cuts        leaves of the busiest shard that are too heavy are cut, see `even_cut`
        phase II    the cells move that a selection picks for tau, see `selection`

The paper leaves tau open. Here it takes the busiest shard down or the idlest one up to the mean of all shards,
whichever is nearer, so that no load moves twice; it is at least a quarter of what they differ by, so that cells need
not be tiny. A round whose cells would make the idlest shard as busy as the busiest one is tried again with half of
tau. All loads are those of a period that is over; what several cells of a shard share counts once.

Everything is a pure function: the same routing and period give the same adjustment.

Cost: one pass over the period for each round and each cut of a leaf.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from nearcast.errors import require
from nearcast.partition.balance.adjustment import Adjustment
from nearcast.partition.balance.cells import CellRouting, Period, can_cut, has_cells
from nearcast.partition.balance.even_cut import even_cut
from nearcast.partition.balance.policy import SIGMA
from nearcast.partition.balance.selection import Selection, selection_named
from nearcast.partition.balance.steps import Move, RoutingStep
from nearcast.partition.balance.term_moves import applied, move_terms
from nearcast.partition.balance.work import DividedWork, work_of
from nearcast.partition.base import Routing
from nearcast.partition.masks import count_shards

Floats = npt.NDArray[np.float64]

PIECES = 16
"""A cell that can be cut has at most this part of tau. A hot spot that is spread over shards in many cells may
wander: the busiest shard has 1.54 times the mean load of the next batch with 4, and 1.37 times with 16."""
MOST_LEAVES = 256
"""The most leaves per shard: beyond, none is cut."""
MOST_PLACES = 16
"""The most cells per subscription, on average: beyond, no leaf is cut. A cut of a leaf that boxes cover puts all of
them into both halves, and more cells make each decision slower.
"""
_ROUNDS = 4  # per shard, at most
_TRIES = 5  # to halve tau


class Adjusted(NamedTuple):
    """A new routing, and the decision that led to it."""

    routing: Routing
    adjustment: Adjustment


def adjust(
    routing: Routing, period: Period, *, sigma: float = SIGMA, selection: str = "gr", most_moved: float = 1.0
) -> Adjusted | None:
    """Return an adjusted routing; None if the loads of a period are even, or nothing makes them more even.

    The new routing is fixed, see `Routing.fixed`. At most the share `most_moved` of all bytes moves.
    """
    require(sigma >= 1, "sigma", "must be 1 or more", sigma)
    require(0 < most_moved <= 1, "most_moved", "must be above 0 and at most 1", most_moved)
    select = selection_named(selection)
    require(has_cells(routing), "routing", "must be a table of cells and their shards", type(routing).__name__)
    fixed = cast(CellRouting, routing.fixed())
    work = first = work_of(fixed, period)
    steps: list[RoutingStep] = []
    room = np.inf if most_moved == 1 else most_moved * float(period.sizes.sum() * period.weight)
    for _ in range(_ROUNDS * fixed.n_shards):
        loads = work.table().shard_loads
        if not is_uneven(loads, sigma=sigma) or room <= 0:
            break
        source, target = int(np.argmax(loads)), int(np.argmin(loads))
        work, found, n_bytes = move_terms(work, source=source, target=target, room=room)
        steps += found
        room -= n_bytes
        loads = work.table().shard_loads
        if loads[source] > sigma * loads[target]:
            work, moved, n_bytes = _move_cells(work, source, target, select, room=room)
            steps += moved
            room -= n_bytes
            if not moved and not found:
                break
    if not steps:
        return None
    return Adjusted(work.routing, _described(first, work, steps, sigma, selection))


def is_uneven(loads: Floats, *, sigma: float) -> bool:
    """Return whether loads violate the constraint of definition 2."""
    return bool(loads.max() > sigma * loads.min())


def _move_cells(
    work: DividedWork, source: int, target: int, select: Selection, *, room: float
) -> tuple[DividedWork, list[RoutingStep], int]:
    """Return the work after phase II between two shards, its steps, and the bytes that move, at most `room`.

    There are no steps if the shards would not become more even.
    """
    loads = work.table().shard_loads
    tau = max(
        min(loads[source] - loads.mean(), loads.mean() - loads[target]),
        (loads[source] - loads[target]) / 4,
    )
    fine, steps = _cut(work, source, tau / PIECES)
    table = fine.table()
    cells = np.flatnonzero((table.shards == source) & (table.loads < loads[source] - loads[target]))
    own = table.loads[cells]
    for _ in range(_TRIES if own.sum() > 0 else 0):
        rows = select(own, sizes=table.sizes[cells], tau=min(tau, float(own.sum())))
        n_bytes = int(table.sizes[cells][rows].sum())
        if n_bytes > room:
            tau *= min(0.5, room / n_bytes)
            continue
        move = Move(tuple(cells[rows].tolist()), source, target)
        made = applied(fine, move)
        if made.table().shard_loads[[source, target]].max() < loads[source]:
            return made, [*steps, move], n_bytes
        tau /= 2
    return work, [], 0


def _cut(work: DividedWork, shard: int, most: float) -> tuple[DividedWork, list[RoutingStep]]:
    """Return the work after cuts of leaves until no cell of a shard has more than a load, if possible."""
    steps: list[RoutingStep] = []
    if not can_cut(work.routing):
        return work, steps
    whole = set[int]()  # leaves that cannot be cut
    while True:
        table, leaves = work.table(), work.routing.cell_leaves
        if work.n_places > MOST_PLACES * len(work.period.footprints):
            return work, steps
        heavy = (table.shards == shard) & (table.loads > most)
        routing = work.routing
        chosen = [leaf for leaf in np.unique(leaves[heavy]).tolist() if leaf not in whole and routing.may_cut(leaf)]
        if not chosen or int(leaves.max()) + len(chosen) >= MOST_LEAVES * work.routing.n_shards:
            return work, steps
        found = {leaf: even_cut(leaf, work.points(np.flatnonzero(leaves == leaf))) for leaf in chosen}
        whole |= {leaf for leaf, cut in found.items() if cut is None}
        cuts = [cut for cut in found.values() if cut is not None]
        if cuts:
            work = applied(work, *cuts)
            steps += cuts


def _described(
    before: DividedWork, after: DividedWork, steps: list[RoutingStep], sigma: float, selection: str
) -> Adjustment:
    footprints = before.period.footprints
    old, new = (work.routing.place(footprints) for work in (before, after))
    n_moved = count_shards(new & ~old) * before.period.weight
    return Adjustment(
        tuple(steps),
        selection,
        sigma,
        tuple(before.table().shard_loads.tolist()),
        tuple(after.table().shard_loads.tolist()),
        int(n_moved.sum()),
        int((n_moved * before.period.sizes).sum()),
    )
