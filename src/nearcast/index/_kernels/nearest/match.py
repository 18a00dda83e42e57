"""Which subscriptions does a message concern? Scan the lists of its terms, verify what is left."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch
from nearcast.index._kernels.nearest.frame import distance, to_frame
from nearcast.index._kernels.nearest.layout import (
    AT_REACH,
    AT_X,
    AT_Y,
    AT_Z,
    CANDIDATES,
    CLOSED,
    GREATEST,
    GROUPED,
    LANE_BITS,
    LANES,
    LENGTH,
    ROOM,
    RUN,
    RUN_END,
    START,
    TERM_BITS,
    THRESHOLD,
    TILE,
    TILE_BITS,
    VERIFIED,
    VISITED,
    NearestColumns,
    NearestOutput,
    NearestScratch,
    NearestState,
    X,
    Y,
)
from nearcast.index._kernels.topk.match import find_numbers

_ZERO = np.float32(0.0)
_AHEAD = 64  # candidates whose memory is asked for together
_ROWS_AHEAD = 8  # rows of postings that are on their way
_LINE = 16  # float32 of a cache line


@kernel
def bound_tile(tiles: NDArray[np.float32], tile: int, query: NDArray[np.float32], gaps: NDArray[np.float32]) -> None:
    """Write by how much the groups of a tile reach further than the message is away; never underestimates.

    Every step of the sum is monotonic, also in float32, and so below that of any posting in the box.
    """
    x, y, z = query[0], query[1], query[2]
    for i in range(TILE):
        dx = max(max(tiles[tile, i] - x, x - tiles[tile, 3 * TILE + i]), _ZERO)
        dy = max(max(tiles[tile, TILE + i] - y, y - tiles[tile, 4 * TILE + i]), _ZERO)
        dz = max(max(tiles[tile, 2 * TILE + i] - z, z - tiles[tile, 5 * TILE + i]), _ZERO)
        gaps[i] = tiles[tile, GREATEST + i] - (dx * dx + dy * dy + dz * dz)


@kernel
def bound_row(bodies: NDArray[np.float32], row: int, query: NDArray[np.float32], gaps: NDArray[np.float32]) -> int:
    """Write by how much the postings of a row reach further than the message is away; return how many may."""
    x, y, z = query[0], query[1], query[2]
    n_within = 0
    for i in range(LANES):
        dx, dy, dz = bodies[row, AT_X + i] - x, bodies[row, AT_Y + i] - y, bodies[row, AT_Z + i] - z
        gap = bodies[row, AT_REACH + i] - (dx * dx + dy * dy + dz * dz)
        gaps[i] = gap
        n_within += gap >= _ZERO
    return n_within


@kernel
def gather(state: NearestState, terms: NDArray[np.int32], scratch: NearestScratch) -> None:
    """Write the groups of closed postings that no bound rules out, list by list; short lists have no bounds."""
    lists, tiles, groups, ends = state.lists, state.tiles, scratch.groups, scratch.ends
    query, gaps, n = scratch.query, scratch.gaps, 0
    for i in range(terms.size):
        term = terms[i]
        start, n_closed = int(lists[term, START]), int(lists[term, CLOSED])
        low, high = start >> LANE_BITS, (start + n_closed + LANES - 1) >> LANE_BITS
        if lists[term, ROOM] < GROUPED:
            for group in range(low, high if n_closed > 0 else low):
                groups[n] = group
                n += 1
        else:
            for tile in range(low >> TILE_BITS, (high + TILE - 1) >> TILE_BITS):
                bound_tile(tiles, tile, query, gaps)
                base = tile << TILE_BITS
                for group in range(max(low, base), min(high, base + TILE)):
                    groups[n] = group
                    n += gaps[group - base] >= _ZERO
        ends[i] = n


@kernel
def scan(state: NearestState, terms: NDArray[np.int32], scratch: NearestScratch, first: int) -> tuple[int, int, int]:
    """Collect what no bound rules out of lists from `first` on, as long as there is room.

    Return how many were found, the list that comes next, and how many postings were visited.
    """
    lists, bodies, groups, ends = state.lists, state.bodies, scratch.groups, scratch.ends
    query, gaps, found, found_by = scratch.query, scratch.gaps, scratch.found, scratch.found_by
    n, visited, n_groups = 0, 0, ends[terms.size - 1]
    for i in range(first, terms.size):
        term = terms[i]
        start, length = int(lists[term, START]), int(lists[term, LENGTH])
        if n + length > found.size:
            return n, i, visited
        before, n_closed = n, int(lists[term, CLOSED])
        for j in range(ends[i - 1] if i > 0 else 0, ends[i]):
            if j + _ROWS_AHEAD < n_groups:
                for line in range(0, LANES * 4, _LINE):
                    prefetch(bodies[groups[j + _ROWS_AHEAD]], line)
            row = groups[j]
            at = row << LANE_BITS
            low, high = max(start - at, 0), min(start + n_closed - at, LANES)
            visited += high - low
            if bound_row(bodies, row, query, gaps):
                for lane in range(low, high):
                    found[n] = at + lane
                    n += gaps[lane] >= _ZERO
        visited += length - n_closed
        for at in range(start + n_closed, start + length):
            found[n] = at
            n += 1
        for j in range(before, n):
            found_by[j] = term
    return n, terms.size, visited


@kernel
def verify(
    state: NearestState, x: float, y: float, scratch: NearestScratch, n_found: int, out: NearestOutput, total: int
) -> int:
    """Measure candidates and write the matches; return how many there are in all, or -1 if they do not fit.

    A subscription is a candidate where it was found by the first of its terms that the message has: there only once.
    """
    if total + n_found > out.slots.size:
        return -1
    found, found_by, marks, slots = scratch.found, scratch.found_by, scratch.marks, state.slots
    sites, heads, runs, projection = state.sites, state.heads, state.runs, state.projection
    out_slots, out_scores, n_candidates = out.slots, out.scores, 0
    for first in range(0, n_found, _AHEAD):
        last = min(first + _AHEAD, n_found)
        for i in range(last, min(last + _AHEAD, n_found)):
            prefetch(slots, found[i])
        for i in range(first, last):
            prefetch(sites, slots[found[i]])
        for i in range(first, last):
            prefetch(runs, heads[slots[found[i]], RUN])
        for i in range(first, last):
            slot = slots[found[i]]
            at, stop = int(heads[slot, RUN]), int(heads[slot, RUN_END])
            while at < stop and marks[runs[at] >> TERM_BITS] == 0:
                at += 1
            if at < stop and runs[at] >> TERM_BITS == found_by[i]:
                n_candidates += 1
                score = distance(projection, sites[slot, X], sites[slot, Y], x, y)
                out_slots[total] = slot
                out_scores[total] = score
                total += score < sites[slot, THRESHOLD] or sites[slot, THRESHOLD] == np.inf
    out.work[CANDIDATES] += n_candidates
    out.work[VERIFIED] += n_candidates
    return total


@kernel
def match_row(
    state: NearestState,
    batch: NearestColumns,
    row: int,
    terms: NDArray[np.int32],
    scratch: NearestScratch,
    out: NearestOutput,
    total: int,
) -> int:
    """Match one message against the lists of some terms; return how many matches there are in all, or -1."""
    x, y, query, marks = batch.xs[row], batch.ys[row], scratch.query, scratch.marks
    query[0], query[1], query[2] = to_frame(state.projection, x, y)
    for term in terms:
        marks[term] = 1
    gather(state, terms, scratch)
    done = 0
    while done < terms.size and total >= 0:
        n, done, visited = scan(state, terms, scratch, done)
        out.work[VISITED] += visited
        total = verify(state, x, y, scratch, n, out, total)
    for term in terms:
        marks[term] = 0
    return total


@kernel
def match_rows(
    state: NearestState,
    batch: NearestColumns,
    start: int,
    stop: int,
    first: int,
    scratch: NearestScratch,
    out: NearestOutput,
) -> int:
    """Match messages from `start` on; return where it stopped: `stop`, or a message whose matches do not fit.

    `ends[row - first]` tells where the matches of a row end.
    """
    total = int(out.ends[start - first - 1]) if start > first else 0
    before, numbers, base = np.empty(4, np.int64), scratch.numbers, batch.indptr[start]
    find_numbers(state.table, batch.term_ids[base : batch.indptr[stop]], numbers)
    for row in range(start, stop):
        n = 0
        for i in range(batch.indptr[row] - base, batch.indptr[row + 1] - base):
            if numbers[i] >= 0 and state.lists[numbers[i], ROOM] > 0:
                scratch.terms[n] = numbers[i]
                n += 1
        before[:] = out.work
        if n > 0:
            total = match_row(state, batch, row, scratch.terms[:n], scratch, out, total)
        if total < 0:
            out.work[:] = before
            return row
        out.ends[row - first] = total
    return stop
