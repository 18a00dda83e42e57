"""Matching, leaf by leaf, term by term, group by group (algorithm 1)."""

from __future__ import annotations

from math import cos, radians, sin

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch
from nearcast.index._kernels.shared.output import VISITED, MatchOutput
from nearcast.index._kernels.topk.layout import TopKColumns
from nearcast_baselines.igpt.bounds import lost_outside
from nearcast_baselines.igpt.layout import (
    GREATEST_LATER,
    INNER,
    MAX_ALPHA,
    MAX_WEIGHT,
    N_LEAVES,
    OWN,
    OWN_ALPHA,
    REST,
    THRESHOLD,
    Prunings,
    State,
)
from nearcast_baselines.igpt.lists import list_key
from nearcast_baselines.topk_base import Scratch, enter, look_up, verify

_TOGETHER = 16  # leaves whose lists are looked up at a time


@kernel(allocates=True)
def cells_to_visit(state: State, x: float, y: float, cells: NDArray[np.int32], lost: NDArray[np.float64]) -> int:
    """Write the leaves near enough for some of their subscriptions (lemma 6), and the nearness lost outside each.

    For a leaf that holds the message it is negative.
    """
    boxes, angles, needs = state.leaves.boxes, state.leaves.angles, state.leaves.needs
    on_sphere, unit, skips = state.context.on_sphere, state.context.max_distance, state.prunings.cells
    point = np.array([x, y, 0.0, 0.0, 0.0, 0.0, 0.0])
    if on_sphere:
        point[2], point[3] = sin(radians(x) * 0.5), cos(radians(x) * 0.5)
        point[4], point[5] = sin(radians(y) * 0.5), cos(radians(y) * 0.5)
        point[6] = cos(radians(y))
    n = 0
    for leaf in range(state.counts[N_LEAVES]):
        outer = lost_outside(boxes, angles, leaf, point, on_sphere, unit)
        if not skips or max(0.0, 1.0 - outer) >= needs[leaf]:
            is_inside = boxes[leaf, 0] <= x <= boxes[leaf, 2] and boxes[leaf, 1] <= y <= boxes[leaf, 3]
            cells[n] = leaf
            lost[n] = -1.0 if is_inside else outer
            n += 1
    return n


@kernel
def first_to_stop(rows: NDArray[np.float32], start: int, stop: int, most_text: float, near: float) -> int:
    """Return the first posting of a group from which on none can match (theorem 4)."""
    while start < stop:
        middle = (start + stop) >> 1
        if rows[middle, MAX_WEIGHT] * most_text < rows[middle, THRESHOLD] - rows[middle, MAX_ALPHA] * near:
            stop = middle
        else:
            start = middle + 1
    return start


@kernel
def scan_list(
    rows: NDArray[np.float32], slots: NDArray[np.int32], lefts: NDArray[np.int32], inner: NDArray[np.float64],
    start: int, stop: int, lost: float, text: tuple[float, float, float, float, float],
    prunings: Prunings, seen: NDArray[np.int64], found: NDArray[np.int32], n_found: int,
) -> tuple[int, int]:  # fmt: skip
    """Scan the groups of a list; return how many candidates there are in all, and how many postings were visited.

    `text` is the message's weight of the term, the greatest weight and the sum from the term on, and those after it.
    """
    own, greatest, total, greatest_later, total_later = text
    near, n_visited = min(1.0, max(0.0, 1.0 - lost)), 0
    while start < stop:
        end = start + lefts[start]
        n_visited += 1
        may_pass = rows[start, MAX_WEIGHT] * total >= rows[start, THRESHOLD] - rows[start, MAX_ALPHA] * near
        last = start
        if may_pass or not prunings.groups:
            last = first_to_stop(rows, start + may_pass, end, total, near) if prunings.ends else end
            n_visited += max(0, last - start - 1)
        for at in range(start, last):
            slot = slots[at]
            if seen[1 + slot] == seen[0]:
                continue
            most_near = 1.0 if lost < 0.0 else max(0.0, 1.0 - lost - inner[slot, INNER])
            needed = rows[at, THRESHOLD] - rows[at, OWN_ALPHA] * most_near
            if prunings.prefix and greatest * (rows[at, OWN] + rows[at, REST]) < needed:  # theorem 1
                continue
            seen[1 + slot] = seen[0]
            unseen = min(rows[at, REST] * greatest_later, total_later * rows[at, GREATEST_LATER])
            if not prunings.unseen or own * rows[at, OWN] + unseen >= needed:  # theorem 2
                found[n_found] = slot
                n_found += 1
        start = end
    return n_found, n_visited


@kernel
def look_up_lists(
    tags: NDArray[np.uint8], entries: NDArray[np.int64], starts: NDArray[np.int32], lengths: NDArray[np.int32],
    numbers: NDArray[np.int64], n_terms: int, cells: NDArray[np.int32], first: int, stop: int,
    hits: NDArray[np.int32],
) -> int:  # fmt: skip
    """Write the lists of some leaves, leaf by leaf, term by term; return how many there are."""
    n = 0
    for cell in range(first, stop):
        for i in range(n_terms):
            row = look_up(tags, entries, list_key(numbers[i], cells[cell]))
            if row >= 0:
                prefetch(starts, row)
                prefetch(lengths, row)
                hits[n, 0], hits[n, 1], hits[n, 2] = cell, i, row
                n += 1
    return n


@kernel(allocates=True)
def find(
    state: State, n_terms: int, n_cells: int, cells: NDArray[np.int32], lost: NDArray[np.float64], scratch: Scratch,
    out: MatchOutput,
) -> int:  # fmt: skip
    """Visit leaf by leaf, term by term, and write the candidates; return how many there are.

    The lists of some leaves are looked up together, so that one is prefetched while another is read.
    """
    tags, entries, starts, lengths = (
        state.leaf_lists.tags,
        state.leaf_lists.entries,
        state.lists.starts,
        state.lists.lengths,
    )
    rows, slots, lefts, inner = state.postings.rows, state.postings.slots, state.postings.lefts, state.slots_of.bounds
    numbers, weights, greatest, sums = scratch.numbers, scratch.weights, scratch.greatest, scratch.sums
    prunings, seen, found, n_found, n_visited = state.prunings, scratch.seen, scratch.found, 0, 0
    hits = np.empty((_TOGETHER * n_terms, 3), np.int32)
    for first in range(0, n_cells, _TOGETHER):
        stop = min(first + _TOGETHER, n_cells)
        n_hits = look_up_lists(tags, entries, starts, lengths, numbers, n_terms, cells, first, stop, hits)
        for h in range(n_hits):
            prefetch(rows, starts[hits[h, 2]])
            prefetch(slots, starts[hits[h, 2]])
            prefetch(lefts, starts[hits[h, 2]])
        for h in range(n_hits):
            cell, i, row = hits[h, 0], hits[h, 1], hits[h, 2]
            text = (weights[i], greatest[i], sums[i], greatest[i + 1], sums[i + 1])
            n_found, n = scan_list(
                rows, slots, lefts, inner, starts[row], starts[row] + lengths[row], lost[cell], text,
                prunings, seen, found, n_found,
            )  # fmt: skip
            n_visited += n
    out.work[VISITED] += n_visited
    return n_found


@kernel(allocates=True)
def match_rows(
    state: State, batch: TopKColumns, start: int, stop: int, first: int, scratch: Scratch, out: MatchOutput
) -> int:
    """Match messages from `start` on; return where it stopped: `stop`, or a message whose matches may not fit."""
    total = out.ends[start - first - 1] if start > first else np.int64(0)
    before, n_leaves = np.empty(4, np.int64), state.counts[N_LEAVES]
    cells, lost = np.empty(n_leaves, np.int32), np.empty(n_leaves, np.float64)
    for row in range(start, stop):
        before[:] = out.work
        scratch.seen[0] += 1
        n_terms = enter(state.context.terms, batch, row, scratch)
        n_found = 0
        if n_terms > 0:
            n_cells = cells_to_visit(state, batch.xs[row], batch.ys[row], cells, lost)
            n_found = find(state, n_terms, n_cells, cells, lost, scratch, out)
        total = verify(state.context, batch, row, scratch.found, n_found, out, total)  # type: ignore[arg-type]
        if total < 0:
            out.work[:] = before
            return row
        out.ends[row - first] = total
    return stop
