"""Which subscriptions does a message concern? Order its terms, scan their lists, verify what is left."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import TableArrays, kernel, prefetch, table_find, table_home
from nearcast.index._kernels.topk.change import print_of
from nearcast.index._kernels.topk.frame import to_frame, upper_bound_near
from nearcast.index._kernels.topk.layout import (
    AT_ALPHA,
    AT_OTHERS,
    AT_OWN,
    AT_REST,
    AT_THRESHOLD,
    AT_X,
    AT_Y,
    AT_Z,
    BEND,
    BEND_MORE,
    BODY,
    BOUNDS,
    CANDIDATES,
    FIRST_CORNER,
    GROUPED,
    LANE_BITS,
    LANES,
    LATER,
    MIDDLE,
    POINT_X,
    POINT_Y,
    POINT_Z,
    TILE,
    TILE_BITS,
    UNIT,
    VERIFIED,
    VISITED,
    WEIGHT,
    TopKColumns,
    TopKOutput,
    TopKScratch,
    TopKState,
)
from nearcast.model._kernels.profiles import ALPHA, LENGTH, RUN, X, Y, near

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_BEND, _BEND_MORE = np.float32(1.0 / 24.0), np.float32(3.0 / 640.0)
_AHEAD = 16  # terms whose entries are on their way
_LINE = 16  # float32 of a cache line
_MIDDLE = np.float32(MIDDLE)
_ROWS_AHEAD = 16  # rows of postings that are on their way


@kernel
def find_numbers(table: TableArrays, term_ids: NDArray[np.int64], numbers: NDArray[np.int32]) -> None:
    """Write the dense numbers of terms, -1 for those that nobody has."""
    last = term_ids.size - 1
    for i in range(term_ids.size):
        home = table_home(table, term_ids[min(i + _AHEAD, last)])
        prefetch(table.tags, home)
        prefetch(table.entries, home)
        slot = table_find(table, term_ids[i])
        numbers[i] = table.entries[slot, 1] if slot >= 0 else -1


@kernel
def arrange(
    state: TopKState, batch: TopKColumns, row: int, numbers: NDArray[np.int32], order: NDArray[np.int64], base: int
) -> int:
    """Write the places of a message's terms that have postings, by falling idf; return how many there are."""
    idfs, n = batch.idfs, 0
    for i in range(batch.indptr[row], batch.indptr[row + 1]):
        number = numbers[i - base]
        if number >= 0 and state.lists.classes[number] >= 0:
            at = n
            while at > 0 and idfs[order[at - 1]] < idfs[i]:
                order[at] = order[at - 1]
                at -= 1
            order[at] = i
            n += 1
    return n


@kernel
def prefetch_row(bodies: NDArray[np.float32], row: int) -> None:
    """Ask for the memory of a row."""
    body = bodies[row]
    for line in range(0, BODY, _LINE):
        prefetch(body, line)


@kernel
def aim(state: TopKState, numbers: NDArray[np.int32], order: NDArray[np.int64], base: int) -> None:
    """Ask for the memory of the bounds of lists, and of those that have none."""
    lists, bodies, tiles = state.lists, state.postings.bodies, state.postings.tiles
    for i in order:
        term = numbers[i - base]
        start, length = lists.starts[term], lists.lengths[term]
        if lists.classes[term] >= GROUPED:
            first = start >> (LANE_BITS + TILE_BITS)
            for tile in range(first, (start + length) >> (LANE_BITS + TILE_BITS)):
                for line in range(0, BOUNDS, _LINE):
                    prefetch(tiles[tile], line)
        else:
            prefetch_row(bodies, start >> LANE_BITS)


@kernel
def between(weight: Any) -> tuple[int, Any]:
    """Return the corner below a weight, and how far it lies towards the next, in float32."""
    if weight < _MIDDLE:
        return 0, weight / _MIDDLE
    return 1, min(_ONE, (weight - _MIDDLE) / (_ONE - _MIDDLE))


@kernel
def bound_tile(tiles: NDArray[np.float32], row: int, query: NDArray[np.float32], tops: NDArray[np.float32]) -> None:
    """Write by how much some posting of each group of a tile may pass; never underestimates."""
    x, y, z = query[POINT_X], query[POINT_Y], query[POINT_Z]
    unit, bend, bend_more = query[UNIT], query[BEND], query[BEND_MORE]
    own, own_share = between(query[WEIGHT])
    rest, rest_share = between(query[LATER])
    ll, lh = (_ONE - own_share) * (_ONE - rest_share), (_ONE - own_share) * rest_share
    hl, hh = own_share * (_ONE - rest_share), own_share * rest_share
    tile = tiles[row]
    corner = FIRST_CORNER + (3 * own + rest) * TILE
    far, close = tile[corner : corner + 5 * TILE], tile[corner + 9 * TILE : corner + 14 * TILE]
    for i in range(TILE):
        dx = max(max(tile[i] - x, x - tile[3 * TILE + i]), _ZERO)
        dy = max(max(tile[TILE + i] - y, y - tile[4 * TILE + i]), _ZERO)
        dz = max(max(tile[2 * TILE + i] - z, z - tile[5 * TILE + i]), _ZERO)
        most_near = upper_bound_near(dx * dx + dy * dy + dz * dz, unit, bend, bend_more)
        at_0 = ll * far[i] + lh * far[TILE + i] + hl * far[3 * TILE + i] + hh * far[4 * TILE + i]
        at_1 = ll * close[i] + lh * close[TILE + i] + hl * close[3 * TILE + i] + hh * close[4 * TILE + i]
        tops[i] = (_ONE - most_near) * at_0 + most_near * at_1


@kernel
def bound_row(bodies: NDArray[np.float32], row: int, query: NDArray[np.float32], values: NDArray[np.float32]) -> int:
    """Write by how much the postings of a row may pass, and return how many may; never underestimates.

    No branch, and always a whole row, so that it runs on many postings at once.
    """
    x, y, z, weight, later = query[POINT_X], query[POINT_Y], query[POINT_Z], query[WEIGHT], query[LATER]
    unit, bend, bend_more = query[UNIT], query[BEND], query[BEND_MORE]
    n_open = 0
    for i in range(LANES):
        dx, dy, dz = bodies[row, AT_X + i] - x, bodies[row, AT_Y + i] - y, bodies[row, AT_Z + i] - z
        most_near = upper_bound_near(dx * dx + dy * dy + dz * dz, unit, bend, bend_more)
        text = bodies[row, AT_OWN + i] * weight + bodies[row, AT_REST + i] * later
        value = bodies[row, AT_ALPHA + i] * most_near + text - bodies[row, AT_THRESHOLD + i]
        values[i] = value
        n_open += value >= _ZERO
    return n_open


@kernel
def collect(
    bodies: NDArray[np.float32],
    words: NDArray[np.int32],
    lanes: tuple[int, int, int],
    values: NDArray[np.float32],
    later: float,
    hits: NDArray[np.uint8],
    found: NDArray[np.int32],
    n: int,
) -> int:
    """Add the postings of a row, from lane to lane, that may pass to the `n` found; return how many there are.

    What later terms may bring is looked at again: nothing, if the message shares no other term.
    """
    row, low, high = lanes
    for lane in range(low, high):
        value = values[lane]
        if value >= _ZERO:
            others = int(words[row, AT_OTHERS + lane])
            shares = hits[others & 255] | hits[(others >> 8) & 255]
            shares |= hits[(others >> 16) & 255] | hits[(others >> 24) & 255]
            found[n] = (row << LANE_BITS) + lane
            n += shares != 0 or value - bodies[row, AT_REST + lane] * later >= _ZERO
    return n


@kernel
def open_groups(
    tiles: NDArray[np.float32],
    start: int,
    stop: int,
    query: NDArray[np.float32],
    tops: NDArray[np.float32],
    groups: NDArray[np.int32],
    n: int,
) -> int:
    """Add the groups of a list with bounds in which some posting may pass to `n`; return how many there are."""
    low, high = start >> LANE_BITS, (stop + LANES - 1) >> LANE_BITS
    for tile in range(low >> TILE_BITS, (high + TILE - 1) >> TILE_BITS):
        bound_tile(tiles, tile, query, tops)
        base = tile << TILE_BITS
        for group in range(max(low, base), min(high, base + TILE)):
            groups[n] = group
            n += tops[group - base] >= _ZERO
    return n


@kernel
def all_groups(start: int, stop: int, groups: NDArray[np.int32], n: int) -> int:
    """Add the rows that a list without bounds lies in to `n`; return how many there are."""
    for row in range(start >> LANE_BITS, (stop + LANES - 1) >> LANE_BITS):
        groups[n] = row
        n += 1
    return n


@kernel
def gather(
    state: TopKState, units: NDArray[np.float64], scratch: TopKScratch, order: NDArray[np.int64], base: int
) -> None:
    """Write the groups of the lists of a message's terms that no bound rules out, and ask for their memory."""
    starts, lengths, classes = state.lists.starts, state.lists.lengths, state.lists.classes
    bodies, tiles, numbers = state.postings.bodies, state.postings.tiles, scratch.numbers
    query, tops, groups, ends, laters = scratch.query, scratch.tops, scratch.groups, scratch.ends, scratch.laters
    n = 0
    for i in range(order.size):
        term = numbers[order[i] - base]
        start, stop, before = starts[term], starts[term] + lengths[term], n
        query[WEIGHT], query[LATER] = units[order[i]], laters[i]
        if classes[term] >= GROUPED:
            n = open_groups(tiles, start, stop, query, tops, groups, n)
        else:
            n = all_groups(start, stop, groups, n)
        ends[i] = n
        for j in range(before, min(n, _ROWS_AHEAD)):
            prefetch_row(bodies, groups[j])


@kernel
def scan(
    state: TopKState,
    units: NDArray[np.float64],
    scratch: TopKScratch,
    order: NDArray[np.int64],
    base: int,
    first: int,
) -> tuple[int, int, int]:
    """Find the postings that no bound rules out in the groups of a message's terms, from the `first` term on.

    Return how many, the term that has no room, if any, and how many were looked at. One call for all lists: handing
    arrays on from a structure costs more than a short list.
    """
    starts, lengths, bodies, words = (
        state.lists.starts,
        state.lists.lengths,
        state.postings.bodies,
        state.postings.words,
    )
    query, values, groups, ends, laters = scratch.query, scratch.values, scratch.groups, scratch.ends, scratch.laters
    hits, found, found_by, numbers = scratch.hits, scratch.found, scratch.found_by, scratch.numbers
    slots = state.postings.slots
    n, visited, n_groups = 0, 0, ends[order.size - 1]
    for i in range(first, order.size):
        term = numbers[order[i] - base]
        start, stop = starts[term], starts[term] + lengths[term]
        if n + lengths[term] > found.size:
            return n, i, visited
        query[WEIGHT], query[LATER] = units[order[i]], laters[i]
        before = n
        for j in range(ends[i - 1] if i > 0 else 0, ends[i]):
            if j + _ROWS_AHEAD < n_groups:
                prefetch_row(bodies, groups[j + _ROWS_AHEAD])
            row = groups[j]
            at = row << LANE_BITS
            low, high = max(start - at, 0), min(stop - at, LANES)
            visited += high - low
            if bound_row(bodies, row, query, values):
                n = collect(bodies, words, (row, low, high), values, query[LATER], hits, found, n)
        for j in range(before, n):
            found_by[j] = order[i]
            prefetch(slots, found[j])
    return n, order.size, visited


@kernel
def hold(held: NDArray[np.int32], number: int, place: int) -> None:
    """Note where a term of the message stands."""
    last = held.shape[0] - 1
    at = number & last
    while held[at, 0] >= 0:
        at = (at + 1) & last
    held[at, 0] = number
    held[at, 1] = place


@kernel
def drop(held: NDArray[np.int32], number: int) -> None:
    """Empty the run of places that a term may be in; all of them belong to the message that goes."""
    last = held.shape[0] - 1
    at = number & last
    while held[at, 0] >= 0:
        held[at, 0] = -1
        at = (at + 1) & last


@kernel
def weigh(state: TopKState, batch: TopKColumns, base: int, scratch: TopKScratch, n_found: int) -> int:
    """Write what text brings to candidates, and keep those that may pass with it; return how many.

    Only those are kept that were found by the first shared term, in the common order: each is met there once. Terms
    are added up in the order of their numbers, as the reference does.
    """
    found, found_by, query, held = scratch.found, scratch.found_by, scratch.query, scratch.held
    slots, heads, bodies = state.postings.slots, state.profiles.heads, state.postings.bodies
    run_lists, run_units = state.posted.run_lists, state.profiles.run_units
    idfs, units, last, n = batch.idfs, batch.units, held.shape[0] - 1, 0
    for i in range(n_found):
        at = found[i]
        slot = slots[at]
        run = heads[slot, RUN]
        first, text = -1, 0.0
        for j in range(run, run + heads[slot, LENGTH]):
            number = run_lists[j]
            spot = number & last
            while held[spot, 0] >= 0 and held[spot, 0] != number:
                spot = (spot + 1) & last
            if held[spot, 0] >= 0:
                place = base + held[spot, 1]
                text += run_units[j] * units[place]
                if first < 0 or idfs[place] > idfs[first]:
                    first = place
        if first != found_by[i]:
            continue
        body, lane = bodies[at >> LANE_BITS], at & (LANES - 1)
        dx, dy = body[AT_X + lane] - query[POINT_X], body[AT_Y + lane] - query[POINT_Y]
        dz = body[AT_Z + lane] - query[POINT_Z]
        most_near = upper_bound_near(dx * dx + dy * dy + dz * dz, query[UNIT], query[BEND], query[BEND_MORE])
        alpha = body[AT_ALPHA + lane]
        found[n] = slot
        scratch.texts[n] = text
        n += alpha * most_near + (1.0 - alpha) * text >= body[AT_THRESHOLD + lane]
    return n


@kernel
def verify(
    state: TopKState,
    batch: TopKColumns,
    row: int,
    base: int,
    scratch: TopKScratch,
    n_found: int,
    out: TopKOutput,
    total: int,
) -> int:
    """Score candidates and write the matches; return how many there are in all, or -1 if they do not fit."""
    found, slots, heads, thresholds = (
        scratch.found,
        state.postings.slots,
        state.profiles.heads,
        state.posted.thresholds,
    )
    points, on_sphere, max_distance = state.profiles.points, state.projection.on_sphere, state.projection.max_distance
    if total + n_found > out.slots.size:
        return -1
    for i in range(n_found):
        prefetch(heads, slots[found[i]])
        prefetch(points, slots[found[i]])
        prefetch(thresholds, slots[found[i]])
    for i in range(n_found):
        run = heads[slots[found[i]], RUN]
        prefetch(state.posted.run_lists, run)
        prefetch(state.profiles.run_units, run)
    n = weigh(state, batch, base, scratch, n_found)
    x, y = batch.xs[row], batch.ys[row]
    for i in range(n):
        slot = found[i]
        alpha = points[slot, ALPHA]
        nearness = near(points[slot, X], points[slot, Y], x, y, on_sphere, max_distance)
        score = alpha * nearness + (1.0 - alpha) * scratch.texts[i]
        if score >= thresholds[slot]:
            out.slots[total] = slot
            out.scores[total] = score
            total += 1
    out.work[VERIFIED] += n
    return total


@kernel
def set_query(state: TopKState, x: float, y: float, query: NDArray[np.float32]) -> None:
    """Write what is asked of every list of a message."""
    query[POINT_X], query[POINT_Y], query[POINT_Z] = to_frame(state.projection, x, y)
    query[UNIT] = state.projection.unit
    query[BEND] = _BEND if state.projection.on_sphere else _ZERO
    query[BEND_MORE] = _BEND_MORE if state.projection.on_sphere else _ZERO


@kernel
def match_row(
    state: TopKState,
    batch: TopKColumns,
    row: int,
    scratch: TopKScratch,
    order: NDArray[np.int64],
    base: int,
    out: TopKOutput,
    total: int,
) -> int:
    """Match one message, whose terms are arranged; return how many matches there are in all, or -1."""
    numbers, held, hits, laters = scratch.numbers, scratch.held, scratch.hits, scratch.laters
    set_query(state, batch.xs[row], batch.ys[row], scratch.query)
    units, later = batch.units, 0.0
    for i in range(order.size - 1, -1, -1):
        laters[i] = later
        later = max(later, units[order[i]])
        hold(held, numbers[order[i] - base], order[i] - base)
        hits[print_of(numbers[order[i] - base])] = 1
    gather(state, units, scratch, order, base)
    done = 0
    while done < order.size and total >= 0:
        n, done, visited = scan(state, units, scratch, order, base, done)
        out.work[VISITED] += visited
        out.work[CANDIDATES] += n
        total = verify(state, batch, row, base, scratch, n, out, total)
    for i in order:
        drop(held, numbers[i - base])
        hits[print_of(numbers[i - base])] = 0
    return total


@kernel
def match_rows(
    state: TopKState, batch: TopKColumns, start: int, stop: int, first: int, scratch: TopKScratch, out: TopKOutput
) -> int:
    """Match messages from `start` on; return where it stopped: `stop`, or a message whose matches do not fit.

    `ends[row - first]` tells where the matches of a row end. While a message is matched, the lists of the next are on
    their way.
    """
    total = int(out.ends[start - first - 1]) if start > first else 0
    before = np.empty(4, np.int64)
    half = scratch.order.size // 2
    numbers, base = scratch.numbers, batch.indptr[start]
    find_numbers(state.table, batch.term_ids[base : batch.indptr[stop]], numbers)
    n_next = arrange(state, batch, start, numbers, scratch.order, base) if start < stop else 0
    for row in range(start, stop):
        own = (row - start) % 2 * half
        order = scratch.order[own : own + n_next]
        if row + 1 < stop:
            other = scratch.order[half - own : 2 * half - own]
            n_next = arrange(state, batch, row + 1, numbers, other, base)
            aim(state, numbers, other[:n_next], base)
        before[:] = out.work
        total = match_row(state, batch, row, scratch, order, base, out, total)
        if total < 0:
            out.work[:] = before
            return row
        out.ends[row - first] = total
    return stop
