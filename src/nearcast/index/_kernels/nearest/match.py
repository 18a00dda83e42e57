"""Matching of messages against subscriptions of kind `nearest`: scan the lists of the terms, then verify."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch
from nearcast.index._kernels.nearest.layout import (
    AT_REACH,
    CLOSED,
    GREATEST,
    GROUPED,
    LENGTH,
    N_FIELDS,
    ROOM,
    RUN,
    RUN_END,
    START,
    TERM_BITS,
    THRESHOLD,
    NearestColumns,
    NearestScratch,
    NearestState,
    X,
    Y,
)
from nearcast.index._kernels.nearest.reach import exact_distance
from nearcast.index._kernels.nearest.settled import is_settled, settle
from nearcast.index._kernels.shared.grouped_postings import (
    LANE_BITS,
    LANES,
    TILE,
    TILE_BITS,
    squared_chord,
    squared_gap,
)
from nearcast.index._kernels.shared.output import CANDIDATES, VERIFIED, VISITED, MatchOutput
from nearcast.index._kernels.shared.projection import to_frame
from nearcast.index._kernels.shared.term_numbers import find_numbers

_ZERO = np.float32(0.0)
_AHEAD = 64  # candidates whose memory is prefetched together
_ROWS_AHEAD = 8  # rows of postings that are prefetched
_LINE = 16  # float32 of a cache line


@kernel
def bound_tile(tiles: NDArray[np.float32], row: int, query: NDArray[np.float32], gaps: NDArray[np.float32]) -> None:
    """Write the greatest reach of each group of a tile less its squared distance; never underestimates."""
    x, y, z, tile = query[0], query[1], query[2], tiles[row]
    for i in range(TILE):
        gaps[i] = tile[GREATEST + i] - squared_gap(tile, i, x, y, z)


@kernel
def bound_row(bodies: NDArray[np.float32], row: int, query: NDArray[np.float32], gaps: NDArray[np.float32]) -> int:
    """Write the reach of each posting of a row less its squared distance; return how many are within reach."""
    x, y, z = query[0], query[1], query[2]
    n_within = 0
    for i in range(LANES):
        gap = bodies[row, AT_REACH + i] - squared_chord(bodies, row, i, x, y, z)
        gaps[i] = gap
        n_within += gap >= _ZERO
    return n_within


@kernel
def select_groups(state: NearestState, terms: NDArray[np.int32], scratch: NearestScratch, x: float, y: float) -> None:
    """Write the groups of closed postings that no bound rules out, list by list; short lists have no bounds.

    A list that is settled at the point of the message has none.
    """
    lists, tiles, groups, ends = state.lists, state.postings.tiles, scratch.groups, scratch.ends
    query, gaps, n = scratch.query, scratch.gaps, 0
    for i in range(terms.size):
        term = terms[i]
        start, n_closed = int(lists[term, START]), int(lists[term, CLOSED])
        low, high = start >> LANE_BITS, (start + n_closed + LANES - 1) >> LANE_BITS
        if n_closed > 0 and is_settled(lists, scratch, term, x, y):
            n_closed, high = 0, low
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
def scan_groups(
    state: NearestState, terms: NDArray[np.int32], scratch: NearestScratch, first: int
) -> tuple[int, int, int]:
    """Find the postings that no bound rules out in the selected groups, from the list of the `first` term on.

    Return how many there are, the term whose list has no room in `found`, and how many postings were visited.
    """
    lists, bodies, groups, ends = state.lists, state.postings.bodies, scratch.groups, scratch.ends
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
                for line in range(0, N_FIELDS * LANES, _LINE):
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
    state: NearestState, x: float, y: float, scratch: NearestScratch, n_found: int, out: MatchOutput, total: int
) -> int:
    """Measure candidates and append the matches to the output; return its length, or -1 if they do not fit.

    A subscription counts only on the list of its first term that the message has, so each is reported once.
    """
    if total + n_found > out.slots.size:
        return -1
    found, found_by, marks, slots = scratch.found, scratch.found_by, scratch.marks, state.postings.slots
    sites, heads, runs, on_sphere = state.sites, state.heads, state.runs, state.projection.on_sphere
    out_slots, out_scores, n_candidates, n_nearer = out.slots, out.scores, 0, 0
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
                score = exact_distance(on_sphere, sites[slot, X], sites[slot, Y], x, y)
                out_slots[total] = slot
                out_scores[total] = score
                is_open = sites[slot, THRESHOLD] == np.inf
                is_nearer = score < sites[slot, THRESHOLD] and not is_open
                total += is_nearer or is_open
                n_nearer += is_nearer
    scratch.n_nearer[0] += n_nearer
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
    out: MatchOutput,
    total: int,
) -> int:
    """Match one message against the lists of some terms; return the length of the output, or -1."""
    x, y, query, marks = batch.xs[row], batch.ys[row], scratch.query, scratch.marks
    query[0], query[1], query[2] = to_frame(state.projection, x, y)
    for term in terms:
        marks[term] = 1
    select_groups(state, terms, scratch, x, y)
    done, scratch.n_nearer[0] = 0, 0
    while done < terms.size and total >= 0:
        n, done, visited = scan_groups(state, terms, scratch, done)
        out.work[VISITED] += visited
        total = verify(state, x, y, scratch, n, out, total)
    for term in terms:
        marks[term] = 0
        if scratch.n_nearer[0] == 0 and total >= 0:
            settle(state.lists, scratch, term, x, y)
    return total


@kernel(allocates=True)
def match_rows(
    state: NearestState,
    batch: NearestColumns,
    start: int,
    stop: int,
    first: int,
    scratch: NearestScratch,
    out: MatchOutput,
) -> int:
    """Match messages from row `start` on; return the row whose matches do not fit, or `stop`.

    `out.ends[row - first]` is the end of the matches of a row.
    """
    total = int(out.ends[start - first - 1]) if start > first else 0
    before, numbers, base = np.empty(4, np.int64), scratch.numbers, batch.indptr[start]
    find_numbers(state.table, batch.term_ids[base : batch.indptr[stop]], -1, numbers)
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
