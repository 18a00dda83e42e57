"""Insertion and deletion of subscriptions, and changes of thresholds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, table_get
from nearcast.index._kernels.topk.layout import TopKColumns
from nearcast.model._kernels.profiles import ALPHA, LENGTH, RUN, X, Y
from nearcast_baselines.igpt.bounds import needed_near
from nearcast_baselines.igpt.layout import DEEPEST, DEPTH, N_MEMBERS, NEEDS, Runs, State
from nearcast_baselines.igpt.leaves import has_room, join, leaf_at, leave, post, recompute_needs, split
from nearcast_baselines.igpt.lists import drop_list, list_key, place_of_slot, put_in, take_out
from nearcast_baselines.topk_base import by_falling_idf


@kernel
def weigh(
    runs: Runs, columns: TopKColumns, row: int, places: NDArray[np.int64], first_place: int, order: NDArray[np.int64]
) -> None:
    """Write the weight of each term of a subscription, and the sum and maximum of those after it in the idf order."""
    first, stop = columns.indptr[row], columns.indptr[row + 1]
    by_falling_idf(columns.idfs, first, stop, order)
    rest, greatest = 0.0, 0.0
    for i in range(stop - first - 1, -1, -1):
        unit = columns.units[order[i]]
        weights = runs.weights[places[order[i] - first_place]]
        weights[0], weights[1], weights[3] = unit, rest, greatest
        rest, greatest = rest + unit, max(greatest, unit)
        weights[2] = greatest


@kernel
def weigh_rows(
    runs: Runs, columns: TopKColumns, n_rows: int, places: NDArray[np.int64], order: NDArray[np.int64]
) -> None:
    """Write the weights of the terms of all rows."""
    for row in range(n_rows):
        weigh(runs, columns, row, places, columns.indptr[0], order)


@kernel
def insert_slots(state: State, slots: NDArray[np.int32], start: int, capacity: int) -> int:
    """Insert subscriptions from `start` on; return where room ran out, or their number."""
    points, heads, lists = state.context.profiles.points, state.context.profiles.heads, state.lists
    for i in range(start, slots.size):
        slot = slots[i]
        leaf = leaf_at(state, points[slot, X], points[slot, Y])
        while state.leaves.heads[leaf, N_MEMBERS] >= capacity and state.leaves.heads[leaf, DEPTH] < DEEPEST:
            if not split(state, leaf):
                return i
            leaf = leaf_at(state, points[slot, X], points[slot, Y])
        needed = 0
        for at in range(heads[slot, RUN], heads[slot, RUN] + heads[slot, LENGTH]):
            row = table_get(state.leaf_lists, list_key(state.context.run_numbers[at], leaf), -1)
            needed += 1 if row < 0 else 2 << int(lists.classes[row])
        if not has_room(state, heads[slot, LENGTH], needed, 2 * state.leaves.heads[leaf, N_MEMBERS] + 1, 0):
            return i
        join(state, leaf, slot)
        post(state, slot)
    return slots.size


@kernel
def delete_slots(state: State, slots: NDArray[np.int32]) -> None:
    """Remove all postings of subscriptions."""
    heads, lists = state.context.profiles.heads, state.lists
    for slot in slots:
        for at in range(heads[slot, RUN], heads[slot, RUN] + heads[slot, LENGTH]):
            row = state.runs.lists[at]
            take_out(lists, state.postings, row, place_of_slot(state, row, slot))
            if lists.lengths[row] == 0:
                drop_list(state, row)
        leave(state, slot)
    for slot in slots:
        if state.leaves.stale[state.slots_of.leaves[slot]]:
            recompute_needs(state, state.slots_of.leaves[slot])


@kernel
def move_thresholds(state: State, slots: NDArray[np.int32], thresholds: NDArray[np.float64]) -> None:
    """Set thresholds: postings are removed from their groups and inserted at their new positions."""
    heads, points, leaves = state.context.profiles.heads, state.context.profiles.points, state.leaves
    for i in range(slots.size):
        slot = slots[i]
        first, stop = heads[slot, RUN], heads[slot, RUN] + heads[slot, LENGTH]
        for at in range(first, stop):
            row = state.runs.lists[at]
            take_out(state.lists, state.postings, row, place_of_slot(state, row, slot))
        state.context.thresholds[slot] = thresholds[i]
        for at in range(first, stop):
            put_in(state, state.runs.lists[at], slot, at)
        leaf, needs = state.slots_of.leaves[slot], needed_near(thresholds[i], points[slot, ALPHA])
        leaves.stale[leaf] |= state.slots_of.bounds[slot, NEEDS] <= leaves.needs[leaf]
        state.slots_of.bounds[slot, NEEDS] = needs
        leaves.needs[leaf] = min(leaves.needs[leaf], needs)
    for slot in slots:
        if leaves.stale[state.slots_of.leaves[slot]]:
            recompute_needs(state, state.slots_of.leaves[slot])
