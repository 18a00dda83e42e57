"""Matching of messages against top-k subscriptions: order the terms, scan their lists, verify the candidates."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch
from nearcast.index._kernels.shared.grouped_postings import (
    LANE_BITS,
    LANES,
    TILE,
    TILE_BITS,
    squared_chord,
    squared_gap,
)
from nearcast.index._kernels.shared.output import CANDIDATES, VERIFIED, VISITED, MatchOutput
from nearcast.index._kernels.shared.projection import BEND, BEND_MORE, to_frame, upper_bound_near_f32
from nearcast.index._kernels.shared.term_numbers import find_numbers
from nearcast.index._kernels.shared.term_order import insert_in_order
from nearcast.index._kernels.topk.change import fingerprint
from nearcast.index._kernels.topk.layout import (
    AT_ALPHA,
    AT_OTHERS,
    AT_OWN,
    AT_REST,
    AT_THRESHOLD,
    BEND_AT,
    BEND_MORE_AT,
    FIRST_CORNER,
    GROUPED,
    LATER,
    MIDDLE,
    N_BOUNDS,
    N_FIELDS,
    POINT_X,
    POINT_Y,
    POINT_Z,
    UNIT,
    WEIGHT,
    TopKColumns,
    TopKScratch,
    TopKState,
)
from nearcast.model._kernels.profiles import ALPHA, LENGTH, RUN, X, Y, topk_score

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_LINE = 16  # float32 of a cache line
_MIDDLE = np.float32(MIDDLE)
_ROWS_AHEAD = 16  # rows of postings that are prefetched


@kernel
def order_known_terms(
    state: TopKState, batch: TopKColumns, row: int, numbers: NDArray[np.int32], order: NDArray[np.int64], base: int
) -> int:
    """Write the positions of a message's terms that have postings, by falling idf; return their number."""
    n = 0
    for i in range(batch.indptr[row], batch.indptr[row + 1]):
        number = numbers[i - base]
        if number >= 0 and state.lists.classes[number] >= 0:
            insert_in_order(batch.idfs, i, order, n)
            n += 1
    return n


@kernel
def prefetch_row(bodies: NDArray[np.float32], row: int) -> None:
    """Prefetch a row of postings."""
    body = bodies[row]
    for line in range(0, N_FIELDS * LANES, _LINE):
        prefetch(body, line)


@kernel
def prefetch_lists(state: TopKState, numbers: NDArray[np.int32], order: NDArray[np.int64], base: int) -> None:
    """Prefetch the bounds of lists, and the postings of lists without bounds."""
    lists, bodies, tiles = state.lists, state.postings.bodies, state.postings.tiles
    for i in order:
        term = numbers[i - base]
        start, length = lists.starts[term], lists.lengths[term]
        if lists.classes[term] >= GROUPED:
            first = start >> (LANE_BITS + TILE_BITS)
            for tile in range(first, (start + length) >> (LANE_BITS + TILE_BITS)):
                for line in range(0, N_BOUNDS * TILE, _LINE):
                    prefetch(tiles[tile], line)
        else:
            prefetch_row(bodies, start >> LANE_BITS)


@kernel
def corner_below(weight: Any) -> tuple[int, Any]:
    """Return the corner below a weight, and the share of the way to the next corner, in float32."""
    if weight < _MIDDLE:
        return 0, weight / _MIDDLE
    return 1, min(_ONE, (weight - _MIDDLE) / (_ONE - _MIDDLE))


@kernel
def bound_tile(tiles: NDArray[np.float32], row: int, query: NDArray[np.float32], tops: NDArray[np.float32]) -> None:
    """Write how far some posting of each group of a tile may exceed its threshold; never underestimates."""
    x, y, z = query[POINT_X], query[POINT_Y], query[POINT_Z]
    unit, bend, bend_more = query[UNIT], query[BEND_AT], query[BEND_MORE_AT]
    own, own_share = corner_below(query[WEIGHT])
    rest, rest_share = corner_below(query[LATER])
    ll, lh = (_ONE - own_share) * (_ONE - rest_share), (_ONE - own_share) * rest_share
    hl, hh = own_share * (_ONE - rest_share), own_share * rest_share
    tile = tiles[row]
    corner = FIRST_CORNER + (3 * own + rest) * TILE
    far, close = tile[corner : corner + 5 * TILE], tile[corner + 9 * TILE : corner + 14 * TILE]
    for i in range(TILE):
        most_near = upper_bound_near_f32(squared_gap(tile, i, x, y, z), unit, bend, bend_more)
        at_0 = ll * far[i] + lh * far[TILE + i] + hl * far[3 * TILE + i] + hh * far[4 * TILE + i]
        at_1 = ll * close[i] + lh * close[TILE + i] + hl * close[3 * TILE + i] + hh * close[4 * TILE + i]
        tops[i] = (_ONE - most_near) * at_0 + most_near * at_1


@kernel
def bound_row(bodies: NDArray[np.float32], row: int, query: NDArray[np.float32], values: NDArray[np.float32]) -> int:
    """Write how far the postings of a row may exceed their thresholds; return how many may reach them.

    Never underestimates. The loop has no branch and always covers a whole row, so that it is vectorised.
    """
    x, y, z, weight, later = query[POINT_X], query[POINT_Y], query[POINT_Z], query[WEIGHT], query[LATER]
    unit, bend, bend_more = query[UNIT], query[BEND_AT], query[BEND_MORE_AT]
    n_open = 0
    for i in range(LANES):
        most_near = upper_bound_near_f32(squared_chord(bodies, row, i, x, y, z), unit, bend, bend_more)
        text = bodies[row, AT_OWN + i] * weight + bodies[row, AT_REST + i] * later
        value = bodies[row, AT_ALPHA + i] * most_near + text - bodies[row, AT_THRESHOLD + i]
        values[i] = value
        n_open += value >= _ZERO
    return n_open


@kernel
def collect_row(
    bodies: NDArray[np.float32],
    words: NDArray[np.int32],
    lanes: tuple[int, int, int],
    values: NDArray[np.float32],
    later: float,
    hits: NDArray[np.uint8],
    found: NDArray[np.int32],
    n: int,
) -> int:
    """Append the postings of some lanes of a row that may reach their thresholds to `found`; return its length.

    Postings that fingerprints show to share no other term are tested again without the weight of later terms.
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
def select_bounded(
    tiles: NDArray[np.float32],
    start: int,
    stop: int,
    query: NDArray[np.float32],
    tops: NDArray[np.float32],
    groups: NDArray[np.int32],
    n: int,
) -> int:
    """Append the groups of a list with bounds that no bound rules out to `groups`; return its length."""
    low, high = start >> LANE_BITS, (stop + LANES - 1) >> LANE_BITS
    for tile in range(low >> TILE_BITS, (high + TILE - 1) >> TILE_BITS):
        bound_tile(tiles, tile, query, tops)
        base = tile << TILE_BITS
        for group in range(max(low, base), min(high, base + TILE)):
            groups[n] = group
            n += tops[group - base] >= _ZERO
    return n


@kernel
def select_all(start: int, stop: int, groups: NDArray[np.int32], n: int) -> int:
    """Append all groups of a list without bounds to `groups`; return its length."""
    for row in range(start >> LANE_BITS, (stop + LANES - 1) >> LANE_BITS):
        groups[n] = row
        n += 1
    return n


@kernel
def select_groups(
    state: TopKState, units: NDArray[np.float64], scratch: TopKScratch, order: NDArray[np.int64], base: int
) -> None:
    """Write the groups of all lists of a message that no bound rules out, and prefetch the first ones."""
    starts, lengths, classes = state.lists.starts, state.lists.lengths, state.lists.classes
    bodies, tiles, numbers = state.postings.bodies, state.postings.tiles, scratch.numbers
    query, tops, groups, ends, later_weights = (
        scratch.query,
        scratch.tops,
        scratch.groups,
        scratch.ends,
        scratch.later_weights,
    )
    n = 0
    for i in range(order.size):
        term = numbers[order[i] - base]
        start, stop, before = starts[term], starts[term] + lengths[term], n
        query[WEIGHT], query[LATER] = units[order[i]], later_weights[i]
        if classes[term] >= GROUPED:
            n = select_bounded(tiles, start, stop, query, tops, groups, n)
        else:
            n = select_all(start, stop, groups, n)
        ends[i] = n
        for j in range(before, min(n, _ROWS_AHEAD)):
            prefetch_row(bodies, groups[j])


@kernel
def scan_groups(
    state: TopKState,
    units: NDArray[np.float64],
    scratch: TopKScratch,
    order: NDArray[np.int64],
    base: int,
    first: int,
) -> tuple[int, int, int]:
    """Find the postings that no bound rules out in the selected groups, from the list of the `first` term on.

    Return how many there are, the term whose list has no room in `found`, and how many postings were visited. One
    call serves all lists: unpacking the arrays of a structure costs more than a short list.
    """
    starts, lengths, bodies, words = (
        state.lists.starts,
        state.lists.lengths,
        state.postings.bodies,
        state.postings.words,
    )
    query, values, groups, ends, later_weights = (
        scratch.query,
        scratch.values,
        scratch.groups,
        scratch.ends,
        scratch.later_weights,
    )
    hits, found, found_by, numbers = scratch.hits, scratch.found, scratch.found_by, scratch.numbers
    slots = state.postings.slots
    n, visited, n_groups = 0, 0, ends[order.size - 1]
    for i in range(first, order.size):
        term = numbers[order[i] - base]
        start, stop = starts[term], starts[term] + lengths[term]
        if n + lengths[term] > found.size:
            return n, i, visited
        query[WEIGHT], query[LATER] = units[order[i]], later_weights[i]
        before = n
        for j in range(ends[i - 1] if i > 0 else 0, ends[i]):
            if j + _ROWS_AHEAD < n_groups:
                prefetch_row(bodies, groups[j + _ROWS_AHEAD])
            row = groups[j]
            at = row << LANE_BITS
            low, high = max(start - at, 0), min(stop - at, LANES)
            visited += high - low
            if bound_row(bodies, row, query, values):
                n = collect_row(bodies, words, (row, low, high), values, query[LATER], hits, found, n)
        for j in range(before, n):
            found_by[j] = order[i]
            prefetch(slots, found[j])
    return n, order.size, visited


@kernel
def hold_term(held: NDArray[np.int32], number: int, place: int) -> None:
    """Add a term of the message and its position to the hash set."""
    last = held.shape[0] - 1
    at = number & last
    while held[at, 0] >= 0:
        at = (at + 1) & last
    held[at, 0] = number
    held[at, 1] = place


@kernel
def clear_term(held: NDArray[np.int32], number: int) -> None:
    """Empty the run of entries that a term can be in; all of them belong to the same message."""
    last = held.shape[0] - 1
    at = number & last
    while held[at, 0] >= 0:
        held[at, 0] = -1
        at = (at + 1) & last


@kernel
def score_texts(state: TopKState, batch: TopKColumns, base: int, scratch: TopKScratch, n_found: int) -> int:
    """Compute the cosines of candidates, retain those that may reach their thresholds with them; return how many.

    A subscription is retained only on the list of the first shared term in the common order, so each is reported
    once. Products are added in the order of the term numbers, as the reference does.
    """
    found, found_by, query, held = scratch.found, scratch.found_by, scratch.query, scratch.held
    slots, heads, bodies = state.postings.slots, state.profiles.heads, state.postings.bodies
    run_lists, run_units = state.refs.run_lists, state.profiles.run_units
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
        posting, lane = at >> LANE_BITS, at & (LANES - 1)
        squared = squared_chord(bodies, posting, lane, query[POINT_X], query[POINT_Y], query[POINT_Z])
        most_near = upper_bound_near_f32(squared, query[UNIT], query[BEND_AT], query[BEND_MORE_AT])
        alpha = bodies[posting, AT_ALPHA + lane]
        found[n] = slot
        scratch.texts[n] = text
        n += alpha * most_near + (1.0 - alpha) * text >= bodies[posting, AT_THRESHOLD + lane]
    return n


@kernel
def verify(
    state: TopKState,
    batch: TopKColumns,
    row: int,
    base: int,
    scratch: TopKScratch,
    n_found: int,
    out: MatchOutput,
    total: int,
) -> int:
    """Score candidates and append the matches to the output; return its length, or -1 if they do not fit."""
    found, slots, heads, thresholds = (
        scratch.found,
        state.postings.slots,
        state.profiles.heads,
        state.refs.thresholds,
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
        prefetch(state.refs.run_lists, run)
        prefetch(state.profiles.run_units, run)
    n = score_texts(state, batch, base, scratch, n_found)
    x, y = batch.xs[row], batch.ys[row]
    for i in range(n):
        slot = found[i]
        px, py, alpha = points[slot, X], points[slot, Y], points[slot, ALPHA]
        score = topk_score(px, py, alpha, x, y, scratch.texts[i], on_sphere, max_distance)
        if score >= thresholds[slot]:
            out.slots[total] = slot
            out.scores[total] = score
            total += 1
    out.work[VERIFIED] += n
    return total


@kernel
def set_query(state: TopKState, x: float, y: float, query: NDArray[np.float32]) -> None:
    """Write the part of a query that is the same for all lists of a message."""
    query[POINT_X], query[POINT_Y], query[POINT_Z] = to_frame(state.projection, x, y)
    query[UNIT] = state.projection.unit
    query[BEND_AT] = BEND if state.projection.on_sphere else _ZERO
    query[BEND_MORE_AT] = BEND_MORE if state.projection.on_sphere else _ZERO


@kernel
def match_row(
    state: TopKState,
    batch: TopKColumns,
    row: int,
    scratch: TopKScratch,
    order: NDArray[np.int64],
    base: int,
    out: MatchOutput,
    total: int,
) -> int:
    """Match one message, whose terms are ordered; return the length of the output, or -1 if they do not fit."""
    numbers, held, hits, later_weights = scratch.numbers, scratch.held, scratch.hits, scratch.later_weights
    set_query(state, batch.xs[row], batch.ys[row], scratch.query)
    units, later = batch.units, 0.0
    for i in range(order.size - 1, -1, -1):
        later_weights[i] = later
        later = max(later, units[order[i]])
        hold_term(held, numbers[order[i] - base], order[i] - base)
        hits[fingerprint(numbers[order[i] - base])] = 1
    select_groups(state, units, scratch, order, base)
    done = 0
    while done < order.size and total >= 0:
        n, done, visited = scan_groups(state, units, scratch, order, base, done)
        out.work[VISITED] += visited
        out.work[CANDIDATES] += n
        total = verify(state, batch, row, base, scratch, n, out, total)
    for i in order:
        clear_term(held, numbers[i - base])
        hits[fingerprint(numbers[i - base])] = 0
    return total


@kernel(allocates=True)
def match_rows(
    state: TopKState, batch: TopKColumns, start: int, stop: int, first: int, scratch: TopKScratch, out: MatchOutput
) -> int:
    """Match messages from row `start` on; return the row whose matches do not fit, or `stop`.

    `out.ends[row - first]` is the end of the matches of a row. While a message is matched, the lists of the next one
    are prefetched.
    """
    total = int(out.ends[start - first - 1]) if start > first else 0
    before = np.empty(4, np.int64)
    half = scratch.order.size // 2
    numbers, base = scratch.numbers, batch.indptr[start]
    find_numbers(state.table, batch.term_ids[base : batch.indptr[stop]], -1, numbers)
    n_next = order_known_terms(state, batch, start, numbers, scratch.order, base) if start < stop else 0
    for row in range(start, stop):
        own = (row - start) % 2 * half
        order = scratch.order[own : own + n_next]
        if row + 1 < stop:
            other = scratch.order[half - own : 2 * half - own]
            n_next = order_known_terms(state, batch, row + 1, numbers, other, base)
            prefetch_lists(state, numbers, other[:n_next], base)
        before[:] = out.work
        total = match_row(state, batch, row, scratch, order, base, out, total)
        if total < 0:
            out.work[:] = before
            return row
        out.ends[row - first] = total
    return stop
