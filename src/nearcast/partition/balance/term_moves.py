"""Phase I: terms of a cell move to another shard where that lowers the total load (PS2Stream, section V-A).

For each of the most loaded cells of a shard:

    all terms of a leaf     its terms are divided in two by the messages that they share; one half becomes a cell of
                            its own in the other shard, if that lowers the load of both shards together
    some terms of a leaf    the cell moves, if the other shard has a cell of the leaf, and that lowers the load of
                            both: messages and subscriptions that both cells hold count once then

Of two halves that lower the load the one with fewer bytes moves. Departures from the paper: a step is left out if the
other shard would then have more load than the busier of both had before, and terms that no subscription is posted
under stay with the cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
import numpy.typing as npt

from nearcast.model import MessageBatch
from nearcast.partition.balance.cells import CellWork, LeafCellRouting, TermCellRouting, can_split
from nearcast.partition.balance.steps import Cut, Move, Split
from nearcast.partition.balance.work import DividedWork
from nearcast.partition.text_metric import gather

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

MOST_CELLS = 4
"""The paper's p: how many of the most loaded cells are looked at."""


def move_terms(
    work: DividedWork, *, source: int, target: int, most: int = MOST_CELLS, room: float = np.inf
) -> tuple[DividedWork, list[Split | Move], int]:
    """Return the work after phase I between two shards, its steps, and the bytes that move, at most `room`."""
    steps: list[Split | Move] = []
    n_moved = 0
    if not can_split(work.routing):
        return work, steps, n_moved
    table = work.table()
    cells = np.flatnonzero(table.shards == source)
    for cell in cells[np.argsort(-table.loads[cells], kind="stable")][:most].tolist():
        loads = table.shard_loads
        for n_bytes, step in sorted(_candidates(cast(CellWork, work), cell, source, target), key=lambda one: one[0]):
            if n_moved + n_bytes > room:
                break
            made = applied(work, step)
            after = made.table()
            both, now = loads[[source, target]], after.shard_loads[[source, target]]
            if now.sum() < both.sum() and now.max() <= both.max():
                steps.append(step)
                work, table, n_moved = made, after, n_moved + n_bytes
                break
    return work, steps, n_moved


def applied(work: DividedWork, *steps: Cut | Split | Move) -> DividedWork:
    """Return the work after one step, or after cuts of different leaves."""
    routing = work.routing
    for step in steps:
        routing = step.apply(routing)
    if any(isinstance(step, Move) for step in steps):
        return work.moved(routing)
    leaves = cast(LeafCellRouting, work.routing).cell_leaves
    divided = [leaves[step.cell] if isinstance(step, Split) else step.leaf for step in steps]  # type: ignore[union-attr]
    return work.divided(routing, np.flatnonzero(np.isin(leaves, divided)))


def _candidates(work: CellWork, cell: int, source: int, target: int) -> Iterator[tuple[int, Split | Move]]:
    """Yield steps that may lower the load, with the bytes of the subscriptions that they move."""
    routing = cast(TermCellRouting, work.routing)
    neighbours = np.flatnonzero(routing.cell_leaves == routing.cell_leaves[cell])
    if len(neighbours) > 1:
        if (routing.cell_shards[neighbours] == target).any():
            yield int(work.table().sizes[cell]), Move((cell,), source, target)
        return
    rows = work.subscriptions.rows[work.subscriptions.cells == cell]
    owners, terms = routing.posted_terms(work.period.footprints.take(rows))
    sizes = work.period.sizes[rows]
    known, slots = np.unique(terms, return_inverse=True)
    if len(known) < 2:
        return
    seen = work.messages.rows[work.messages.cells == cell]
    pieces = halves(work.period.messages.take(seen), known, np.bincount(slots) * work.period.weight)
    for piece in (0, 1):
        chosen = known[pieces == piece].tolist()
        if 0 < len(chosen) < len(known):
            moved = np.unique(owners[pieces[slots] == piece])
            yield int(sizes[moved].sum()) * work.period.weight, Split(cell, tuple(chosen), source, target)


def halves(messages: MessageBatch, terms: Longs, held: Longs) -> Ints:
    """Return 0 or 1 for each of some ascending terms, so that terms that messages hold together stay together.

    `held` is the number of branches posted under each term.
    """
    at = np.minimum(np.searchsorted(terms, messages.term_ids), len(terms) - 1)
    found = np.flatnonzero(terms[at] == messages.term_ids)
    rows = np.repeat(np.arange(len(messages), dtype=np.int32), np.diff(messages.term_indptr))[found]
    order = np.argsort(at[found], kind="stable")
    indptr = np.searchsorted(at[found][order], np.arange(len(terms) + 1))
    return gather(indptr, rows[order], held, len(messages), 2)
