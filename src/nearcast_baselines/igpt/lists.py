"""Lists of postings, ordered by group and rising threshold, with statistics of all later postings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, table_get, table_put, table_remove
from nearcast.model._kernels.blocks import give_block, take_block
from nearcast.model._kernels.profiles import ALPHA
from nearcast_baselines.igpt.bounds import kept_text
from nearcast_baselines.igpt.layout import (
    FREE_LIST,
    GREATEST,
    MAX_ALPHA,
    MAX_WEIGHT,
    N_LISTS,
    OWN,
    OWN_ALPHA,
    THRESHOLD,
    Lists,
    Postings,
    State,
)
from nearcast_baselines.topk_base import threshold_of_bound


@kernel
def list_key(number: int, leaf: int) -> int:
    """Return the key of a term in a leaf."""
    return int((np.int64(number) << 32) | np.int64(leaf))


@kernel
def group_of(frame: NDArray[np.float64], alpha: float) -> int:
    """Return the number of the group of an alpha."""
    group = 0
    while group < frame.size - 4 and alpha > frame[4 + group]:
        group += 1
    return group


@kernel
def place_of(postings: Postings, start: int, length: int, group: int, threshold: float, slot: int) -> int:
    """Return the position of the first posting at or after a group, threshold and slot."""
    rows, slots, groups = postings.rows, postings.slots, postings.groups
    low, high = start, start + length
    while low < high:
        middle = (low + high) >> 1
        is_before = groups[middle] < group
        if groups[middle] == group:
            other = rows[middle, THRESHOLD]
            is_before = other < threshold or (other == threshold and slots[middle] < slot)
        if is_before:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def refresh(postings: Postings, start: int, stop: int, at: int) -> None:
    """Recompute the statistics of a group, from a posting back to its first."""
    rows, groups, lefts = postings.rows, postings.groups, postings.lefts
    if at < start:
        return
    group = groups[at]
    weight, alpha, left = rows[at, GREATEST] * 0, rows[at, OWN_ALPHA] * 0, 0
    if at + 1 < stop and groups[at + 1] == group:
        weight, alpha, left = rows[at + 1, MAX_WEIGHT], rows[at + 1, MAX_ALPHA], int(lefts[at + 1])
    while at >= start and groups[at] == group:
        weight, alpha, left = max(weight, rows[at, GREATEST]), max(alpha, rows[at, OWN_ALPHA]), left + 1
        rows[at, MAX_WEIGHT], rows[at, MAX_ALPHA], lefts[at] = weight, alpha, left
        at -= 1


@kernel
def copy_posting(postings: Postings, source: int, target: int) -> None:
    """Copy a posting."""
    for i in range(8):
        postings.rows[target, i] = postings.rows[source, i]
    postings.slots[target] = postings.slots[source]
    postings.lefts[target] = postings.lefts[source]
    postings.groups[target] = postings.groups[source]


@kernel
def take_out(lists: Lists, postings: Postings, row: int, at: int) -> None:
    """Remove a posting; later ones move up."""
    start, stop = lists.starts[row], lists.starts[row] + lists.lengths[row]
    for i in range(at, stop - 1):
        copy_posting(postings, i + 1, i)
    lists.lengths[row] -= 1
    refresh(postings, start, stop - 1, at - 1)


@kernel
def put_in(state: State, row: int, slot: int, at_run: int) -> None:
    """Add the posting of a term to a list; requires room."""
    lists, postings, weights = state.lists, state.postings, state.runs.weights
    alpha = state.context.profiles.points[slot, ALPHA]
    group, text = group_of(state.frame, alpha), kept_text(alpha)
    threshold = np.float32(threshold_of_bound(state.context.thresholds[slot]) / text)
    start, length = lists.starts[row], lists.lengths[row]
    at = place_of(postings, start, length, group, threshold, slot)  # type: ignore[arg-type]
    for i in range(start + length, at, -1):
        copy_posting(postings, i - 1, i)
    lists.lengths[row] += 1
    postings.rows[at, THRESHOLD] = threshold
    postings.rows[at, OWN_ALPHA] = alpha / text
    for i in range(4):
        postings.rows[at, OWN + i] = weights[at_run, i]
    postings.slots[at] = slot
    postings.groups[at] = group
    refresh(postings, start, start + length + 1, at)


@kernel
def place_of_slot(state: State, row: int, slot: int) -> int:
    """Return the position of a subscription's posting on a list, by its current threshold."""
    alpha = state.context.profiles.points[slot, ALPHA]
    threshold = np.float32(threshold_of_bound(state.context.thresholds[slot]) / kept_text(alpha))
    start, length = state.lists.starts[row], state.lists.lengths[row]
    return place_of(state.postings, start, length, group_of(state.frame, alpha), threshold, slot)  # type: ignore[arg-type]


@kernel
def drop_list(state: State, row: int) -> None:
    """Free a list."""
    lists, counts = state.lists, state.counts
    give_block(state.pool, state.postings.slots, int(lists.classes[row]), lists.starts[row])
    table_remove(state.leaf_lists, lists.keys[row])
    lists.keys[row], lists.lengths[row] = -1, 0
    lists.starts[row], counts[FREE_LIST] = counts[FREE_LIST], row


@kernel
def list_with_room(state: State, number: int, leaf: int) -> int:
    """Return the list of a term in a leaf with room for one more posting; requires room for a new list."""
    lists, counts, pool, slots = state.lists, state.counts, state.pool, state.postings.slots
    key = list_key(number, leaf)
    row = table_get(state.leaf_lists, key, -1)
    if row < 0:
        row = counts[FREE_LIST]
        if row >= 0:
            counts[FREE_LIST] = lists.starts[row]
        else:
            row = counts[N_LISTS]
            counts[N_LISTS] += 1
        table_put(state.leaf_lists, key, row)
        lists.keys[row], lists.lengths[row], lists.classes[row] = key, 0, 0
        lists.starts[row] = take_block(pool, slots, 0, 1)
    elif lists.lengths[row] == 1 << int(lists.classes[row]):
        before, size_class = int(lists.starts[row]), int(lists.classes[row])
        block = take_block(pool, slots, size_class + 1, 1 << (size_class + 1))
        for i in range(lists.lengths[row]):
            copy_posting(state.postings, before + i, block + i)
        give_block(pool, slots, size_class, before)
        lists.starts[row], lists.classes[row] = block, size_class + 1
    return row
