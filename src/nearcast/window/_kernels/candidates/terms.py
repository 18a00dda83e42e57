"""Candidates of kind `topk`: the messages that share a term with a subscription, found on its term lists.

    lists of its terms, longest first ── bound of each posting ── those that reach the floor ── exact scores ── theta
                                                    └── witnesses, a histogram: as many as needed raise the floor

The bound of a posting is that of a message whose first shared term it stands for: the contribution of the term, the
most that the other terms can contribute (the weights of a message have length 1, so the remainder is known), and the
nearness of its point. Bounds are computed for a piece of a list at once, without a branch. A message that is on
several lists is scored for the first of them only. Messages that arrive after `now` are noted separately: the batch
has yet to publish them.

Where the lists of a subscription hold a posting for a good part of the window, many messages are on several of them,
and what the other terms can contribute says little. Then the weights of each message are added up first, over all
lists, so that its bound equals its score but for rounding, and it is noted once.

A message that shares no term of a list read before is a witness: it scores little less than its bound. The floor is
the score that enough witnesses reach. Two terms of one tag and bucket are indistinguishable on a list, so a witness
can be false; the exact scores show it, and the search is repeated without a floor.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch
from nearcast.model._kernels.filters import FilterArrays, MessageRows, passes
from nearcast.model._kernels.profiles import ALPHA, LENGTH, RUN, K, ProfileArrays, X, Y, topk_score
from nearcast.window._kernels.buffers import BatchSteps, BufferContext, ChangeBuffer, PendingArrivals
from nearcast.window._kernels.buffers import begin as begin_buffers
from nearcast.window._kernels.buffers import publish as publish_buffers
from nearcast.window._kernels.candidates.source import SourceKernels
from nearcast.window._kernels.horizon import Horizon, is_dead
from nearcast.window._kernels.keys import COST, KeyArrays, find_option, note_option
from nearcast.window._kernels.lists import (
    BASE,
    EDGE_BITS,
    EDGE_MASK,
    EDGES,
    HEAD,
    LISTED,
    MAX_WEIGHT,
    MIN_CHUNK,
    NEXT_BITS,
    NEXT_MASK,
    TAG_MASK,
    TAIL,
    WEIGHT_BITS,
    ListArrays,
    bucket_of,
    tag_of,
)
from nearcast.window._kernels.lists import append_messages as append_to_lists
from nearcast.window._kernels.params import MAX_EXTRA, SPOT_BITS, SPOT_MASK, BufferParams, to_frame
from nearcast.window._kernels.search import (
    ALL_OTHERS,
    AT_ALPHA,
    AT_X,
    AT_Y,
    AT_Z,
    BEND,
    CUT,
    FEW,
    LOST,
    MARGIN,
    MAX_BEND,
    N_BINS,
    N_RETRIES,
    OTHERS,
    OWN,
    ROUNDING,
    SCANNED,
    SCORED,
    UNIT,
    WITNESSED,
    SearchScratch,
    begin_floor,
    choose_pending,
    count_postings,
    cut_below,
    drop_from,
    raise_by_score,
    raise_floor,
    signature_bit,
    sort_found,
    sort_terms,
    split_noted,
    target_size,
    theta_of,
)
from nearcast.window.store import WindowArrays

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_PER_WEIGHT, _PER_EXTRA = np.float32(1.0 / MAX_WEIGHT), np.float32(1.0 / MAX_EXTRA)
_LEFT_OVER = np.float32(4.0 / MAX_WEIGHT)
_WEIGHT_STEP = 1.0 / MAX_WEIGHT
_BIN_WIDTH = 1.0 / N_BINS
_LINE = 8  # postings per cache line
_PRESENT = (
    2.0**-40
)  # added to the sum of a message for each term, so that it is above 0 also where words do not count
_DENSE = 8  # weights are added up where there is a posting for each of so many messages


class TermSource(NamedTuple):
    """The arrays that a search by terms reads."""

    params: BufferParams
    lists: ListArrays
    window: WindowArrays
    profiles: ProfileArrays
    signatures: NDArray[np.int64]
    """int64 (a power of two,): signatures by number modulo the size."""
    scratch: SearchScratch
    filters: FilterArrays
    rows: MessageRows
    """The messages of the window as filters read them."""
    keys: KeyArrays
    sums: NDArray[np.float64]
    """float64 (a power of two,): by number modulo the size, 0 between searches."""


class TermSearch(NamedTuple):
    """What one search looks for."""

    slot: int
    now: int
    need: int
    """How many witnesses raise the floor; 0 for none."""
    horizon: Horizon


class TermQuery(NamedTuple):
    """The query of one list, in 64 bits."""

    turn: int
    """Position of the term among those of the subscription, the shortest list first."""
    n_terms: int
    x: float
    y: float
    z: float
    alpha: float
    lost: float
    """Alpha times the nearness lost per unit of the frame."""
    own: float
    """The weight of the term, times 1 - alpha."""


@kernel
def greatest_weight(window: WindowArrays, first: int, n: int) -> int:
    """Return the weight of the heaviest term of a message, in eight bits."""
    greatest = 0.0
    for i in range(first, first + n):
        greatest = max(greatest, window.units[i])
    return int(greatest * MAX_EXTRA)


@kernel
def _bound_piece(
    items: NDArray[np.int64],
    spots: NDArray[np.int64],
    start: int,
    stop: int,
    query: NDArray[np.float32],
    values: NDArray[np.float32],
) -> None:
    """Write the bounds of a piece of a list; there is no branch, so the loop is vectorised."""
    x, y, z, unit, alpha, lost = query[AT_X], query[AT_Y], query[AT_Z], query[UNIT], query[AT_ALPHA], query[LOST]
    own, others, all_others, margin, bend = query[OWN], query[OTHERS], query[ALL_OTHERS], query[MARGIN], query[BEND]
    here, there = items[start:stop], spots[start:stop]
    for i in range(stop - start):
        spot = there[i]
        weight = np.float32(np.int32(here[i] & MAX_WEIGHT)) * _PER_WEIGHT
        dx = x + np.float32(np.int32(spot & SPOT_MASK)) * unit
        dy = y + np.float32(np.int32((spot >> SPOT_BITS) & SPOT_MASK)) * unit
        dz = z + np.float32(np.int32((spot >> 2 * SPOT_BITS) & SPOT_MASK)) * unit
        square = dx * dx + dy * dy + dz * dz
        far = np.sqrt(square) * (_ONE + square * bend)
        left = max(_ZERO, _ONE - weight * weight) + _LEFT_OVER  # the message has length 1
        greatest = np.float32(np.int32(spot >> 3 * SPOT_BITS)) * _PER_EXTRA
        rest = min(np.sqrt(others * left), all_others * greatest)
        values[i] = max(_ZERO, alpha - lost * far) + own * weight + rest + margin


@kernel
def _aim(source: TermSource, slot: int, turn: int) -> TermQuery:
    """Write the query of one list of a subscription, and return it in 64 bits."""
    params, profiles, order, query = source.params, source.profiles, source.scratch.order, source.scratch.query
    run_units, n_terms = profiles.run_units, profiles.heads[slot, LENGTH]
    px, py, pz = to_frame(params.on_sphere, profiles.points[slot, X], profiles.points[slot, Y])
    px, py, pz = params.x0 - px, params.y0 - py, params.z0 - pz
    alpha = profiles.points[slot, ALPHA]
    lost, text = alpha * params.near_per_unit, 1.0 - alpha
    own, others, all_others = text * run_units[order[turn]], 0.0, 0.0
    for j in range(turn + 1, n_terms):
        source.scratch.bits[j] = signature_bit(profiles.run_terms[order[j]])
        others += run_units[order[j]] * run_units[order[j]]
        all_others += run_units[order[j]]
    query[AT_X], query[AT_Y], query[AT_Z], query[UNIT] = px, py, pz, params.unit
    query[AT_ALPHA], query[LOST], query[MARGIN] = alpha, lost, params.margin + ROUNDING
    query[OWN], query[OTHERS], query[ALL_OTHERS] = own, text * text * others, text * all_others
    query[BEND] = 1.0 / 24.0 if params.on_sphere else 0.0  # the arc is longer than this
    return TermQuery(turn, int(n_terms), px, py, pz, alpha, lost, own)


@kernel
def _read(source: TermSource, search: TermSearch, turn: int, floor: float, n: int) -> tuple[int, float]:
    """Bound the postings of one list; return how many are noted, including earlier lists, and the raised floor.

    Postings below the floor are not noted. Messages may share terms whose turn comes later. The floor rises as soon
    as as many witnesses as needed reach it.
    """
    params, lists, scratch = source.params, source.lists, source.scratch
    items, spots, buckets, signatures = lists.items, lists.spots, lists.buckets, source.signatures
    chosen, values, bins, counts = scratch.chosen, scratch.values, scratch.bins, scratch.counts
    base, mask, need = lists.counts[BASE], signatures.size - 1, search.need
    query = _aim(source, search.slot, turn)
    row = bucket_of(buckets.shape[0], source.profiles.run_terms[scratch.order[turn]])
    chunk, at = buckets[row, HEAD], buckets[row, EDGES] & EDGE_MASK
    tail, end = buckets[row, TAIL], buckets[row, EDGES] >> EDGE_BITS
    while chunk >= 0:
        stop = end if chunk == tail else MIN_CHUNK << (items[chunk] >> NEXT_BITS)
        start, after, n_chosen = chunk + at, (items[chunk] & NEXT_MASK) - 1, 0
        if after >= 0:
            for line in range(0, 4 * _LINE, _LINE):
                prefetch(items, after + line)
                prefetch(spots, after + line)
        _bound_piece(items, spots, start, chunk + stop, scratch.query, values)
        for i in range(stop - at):
            chosen[n_chosen] = start + i
            n_chosen += values[i] >= floor
        for i in range(n_chosen):
            prefetch(signatures, ((items[chosen[i]] >> 32) + base) & mask)
        if n_chosen > 0:
            n = _note(source, search, query, n_chosen, floor, n)
        if need > 0 and counts[WITNESSED] >= need:
            floor = raise_floor(params, bins, counts, need, floor, _BIN_WIDTH)
        chunk, at = after, 1
    return n, floor


@kernel
def _note(source: TermSource, search: TermSearch, query: TermQuery, n_chosen: int, floor: float, n: int) -> int:
    """Note the chosen postings whose exact bound reaches the floor and that pass the filters; return their number."""
    items, spots, base, signatures = (
        source.lists.items,
        source.lists.spots,
        source.lists.counts[BASE],
        source.signatures,
    )
    run_units, scratch, horizon = source.profiles.run_units, source.scratch, search.horizon
    order, bits, chosen, bins, counts = scratch.order, scratch.bits, scratch.chosen, scratch.bins, scratch.counts
    bounds, numbers, firsts = scratch.bounds, scratch.numbers, scratch.firsts
    on_sphere, unit, mask = source.params.on_sphere, source.params.unit, signatures.size - 1
    alpha, lost, own, margin = query.alpha, query.lost, query.own, source.params.margin + ROUNDING
    tag = tag_of(source.profiles.run_terms[order[query.turn]])
    for i in range(n_chosen):
        posting, spot = items[chosen[i]], spots[chosen[i]]
        number = (posting >> 32) + base
        if (posting >> WEIGHT_BITS) & TAG_MASK != tag or is_dead(horizon, number):
            continue
        rest, total, signature = 0.0, 0.0, signatures[number & mask]
        for j in range(query.turn + 1, query.n_terms):
            if (signature >> bits[j]) & 1:
                other = run_units[order[j]]
                rest += other * other
                total += other
        weight = (posting & MAX_WEIGHT) * _WEIGHT_STEP
        dx = query.x + (spot & SPOT_MASK) * unit
        dy = query.y + ((spot >> SPOT_BITS) & SPOT_MASK) * unit
        dz = query.z + ((spot >> 2 * SPOT_BITS) & SPOT_MASK) * unit
        far = sqrt(dx * dx + dy * dy + dz * dz)
        bend = far * far if on_sphere else 0.0
        bound = max(0.0, alpha - lost * far * (1.0 + bend * (1.0 / 24.0))) + own * weight + margin
        if rest > 0.0:
            left = max(0.0, 1.0 - weight * weight) + 4.0 * _WEIGHT_STEP
            greatest = (spot >> 3 * SPOT_BITS) * (1.0 / MAX_EXTRA)
            bound += (1.0 - alpha) * min(sqrt(rest * left), total * greatest)
        if bound < floor or not passes(source.filters, search.slot, source.rows, number):
            continue
        bounds[n], numbers[n], firsts[n] = np.float32(bound), number, query.turn
        n += 1
        if search.need > 0 and rest == 0.0 and number <= search.now:
            least = max(0.0, alpha - lost * (far * (1.0 + bend * (1.0 / 24.0 + bend * MAX_BEND)) + unit))
            level = int((least + own * (weight - _WEIGHT_STEP) - ROUNDING) * N_BINS)
            if level >= counts[CUT]:
                bins[min(N_BINS - 1, level)] += 1
                counts[WITNESSED] += 1
    return n


@kernel
def _is_dense(source: TermSource, search: TermSearch, n_postings: int) -> bool:
    """Return whether weights are to be added up before messages are noted."""
    n_messages = source.lists.counts[LISTED] - search.horizon.first
    return bool(source.profiles.heads[search.slot, LENGTH] > 1 and n_postings * _DENSE > n_messages)


@kernel
def _read_sums(source: TermSource, search: TermSearch) -> tuple[int, float]:
    """Note the messages that reach the floor by the sum of their weights; return how many, and the raised floor."""
    n, floor, n_terms = 0, -np.inf, source.profiles.heads[search.slot, LENGTH]
    for turn in range(n_terms):
        _add_weights(source, search, turn)
    for turn in range(n_terms):
        n, floor = _note_list(source, search, turn, floor, n)
    for turn in range(n_terms):
        _forget_sums(source, search.slot, turn)
    return n, floor


@kernel
def _add_weights(source: TermSource, search: TermSearch, turn: int) -> None:
    """Add the contribution of one term to the sums of the messages on its list.

    A message that was withdrawn may stay on a list until its position in the ring is that of another one.
    """
    items, buckets, sums, base = source.lists.items, source.lists.buckets, source.sums, source.lists.counts[BASE]
    slot, first = search.slot, search.horizon.first
    term, mask = source.profiles.run_terms[source.scratch.order[turn]], sums.size - 1
    unit = source.profiles.run_units[source.scratch.order[turn]] * (1.0 - source.profiles.points[slot, ALPHA])
    tag, row, per_step = tag_of(term), bucket_of(buckets.shape[0], term), unit * _WEIGHT_STEP
    chunk, at = buckets[row, HEAD], buckets[row, EDGES] & EDGE_MASK
    tail, end = buckets[row, TAIL], buckets[row, EDGES] >> EDGE_BITS
    while chunk >= 0:
        stop = end if chunk == tail else MIN_CHUNK << (items[chunk] >> NEXT_BITS)
        for i in range(chunk + at, chunk + stop):
            posting = items[i]
            number = (posting >> 32) + base
            counts = ((posting >> WEIGHT_BITS) & TAG_MASK == tag) & (number >= first)
            sums[number & mask] += ((posting & MAX_WEIGHT) * per_step + _PRESENT) * counts
        chunk, at = (items[chunk] & NEXT_MASK) - 1, 1


@kernel
def _forget_sums(source: TermSource, slot: int, turn: int) -> None:
    """Set the sums of the messages on one list to 0."""
    items, buckets, sums, base = source.lists.items, source.lists.buckets, source.sums, source.lists.counts[BASE]
    row, mask = bucket_of(buckets.shape[0], source.profiles.run_terms[source.scratch.order[turn]]), sums.size - 1
    chunk, at = buckets[row, HEAD], buckets[row, EDGES] & EDGE_MASK
    tail, end = buckets[row, TAIL], buckets[row, EDGES] >> EDGE_BITS
    while chunk >= 0:
        stop = end if chunk == tail else MIN_CHUNK << (items[chunk] >> NEXT_BITS)
        for i in range(chunk + at, chunk + stop):
            sums[((items[i] >> 32) + base) & mask] = 0.0
        chunk, at = (items[chunk] & NEXT_MASK) - 1, 1


@kernel
def _note_list(source: TermSource, search: TermSearch, turn: int, floor: float, n: int) -> tuple[int, float]:
    """Note the messages of one list whose sum and nearness reach the floor, each once; return count and floor."""
    params, lists, scratch, sums = source.params, source.lists, source.scratch, source.sums
    items, spots, buckets, base, mask = lists.items, lists.spots, lists.buckets, lists.counts[BASE], sums.size - 1
    chosen, values, counts, need = scratch.chosen, scratch.values, scratch.counts, search.need
    first = search.horizon.first
    query = _aim(source, search.slot, turn)
    scratch.query[OWN] = scratch.query[OTHERS] = scratch.query[ALL_OTHERS] = 0.0  # nearness alone
    row = bucket_of(buckets.shape[0], source.profiles.run_terms[scratch.order[turn]])
    chunk, at = buckets[row, HEAD], buckets[row, EDGES] & EDGE_MASK
    tail, end = buckets[row, TAIL], buckets[row, EDGES] >> EDGE_BITS
    while chunk >= 0:
        stop = end if chunk == tail else MIN_CHUNK << (items[chunk] >> NEXT_BITS)
        start, n_chosen = chunk + at, 0
        _bound_piece(items, spots, start, chunk + stop, scratch.query, values)
        for i in range(stop - at):
            number = (items[start + i] >> 32) + base
            total = sums[number & mask]
            chosen[n_chosen] = start + i
            n_chosen += total > 0.0 and values[i] + total >= floor and number >= first
        if n_chosen > 0:
            n = _note_sums(source, search, query, n_chosen, floor, n)
        if need > 0 and counts[WITNESSED] >= need:
            floor = raise_floor(params, scratch.bins, counts, need, floor, _BIN_WIDTH)
        chunk, at = (items[chunk] & NEXT_MASK) - 1, 1
    return n, floor


@kernel
def _note_sums(source: TermSource, search: TermSearch, query: TermQuery, n_chosen: int, floor: float, n: int) -> int:
    """Note the messages of chosen postings that reach the floor and pass the filters; return their number."""
    items, spots, base, sums = source.lists.items, source.lists.spots, source.lists.counts[BASE], source.sums
    scratch, horizon, mask, unit = source.scratch, search.horizon, source.sums.size - 1, source.params.unit
    chosen, bins, counts = scratch.chosen, scratch.bins, scratch.counts
    bounds, numbers, firsts = scratch.bounds, scratch.numbers, scratch.firsts
    alpha, lost, margin, on_sphere = query.alpha, query.lost, source.params.margin + ROUNDING, source.params.on_sphere
    rounded = query.n_terms * (_WEIGHT_STEP + _PRESENT) + ROUNDING  # weights are rounded up
    for i in range(n_chosen):
        number, spot = (items[chosen[i]] >> 32) + base, spots[chosen[i]]
        total = sums[number & mask]
        dx = query.x + (spot & SPOT_MASK) * unit
        dy = query.y + ((spot >> SPOT_BITS) & SPOT_MASK) * unit
        dz = query.z + ((spot >> 2 * SPOT_BITS) & SPOT_MASK) * unit
        far = sqrt(dx * dx + dy * dy + dz * dz)
        bend = far * far if on_sphere else 0.0
        bound = max(0.0, alpha - lost * far * (1.0 + bend * (1.0 / 24.0))) + total + margin
        if bound < floor:
            continue
        sums[number & mask] = 0.0
        if is_dead(horizon, number) or not passes(source.filters, search.slot, source.rows, number):
            continue
        bounds[n], numbers[n], firsts[n] = np.float32(bound), number, -1
        n += 1
        if search.need > 0 and number <= search.now:
            least = max(0.0, alpha - lost * (far * (1.0 + bend * (1.0 / 24.0 + bend * MAX_BEND)) + unit))
            level = int((least + total - rounded) * N_BINS)
            if level >= counts[CUT]:
                bins[min(N_BINS - 1, level)] += 1
                counts[WITNESSED] += 1
    return n


@kernel
def _score(source: TermSource, slot: int, n_chosen: int, floor: float, need: int) -> int:
    """Score the messages of chosen postings; return how many reach the floor, which `need` scores raise.

    A message counts where its posting stands for the first shared term, in the order of the lists, or for none (-1).
    """
    window, profiles, scratch, n_found = source.window, source.profiles, source.scratch, 0
    xs, ys, term_starts, n_terms = window.xs, window.ys, window.term_starts, window.n_terms
    term_ids, units = window.term_ids, window.units
    run_terms, run_units, order = profiles.run_terms, profiles.run_units, scratch.order
    scores, found, picked = scratch.scores, scratch.found, scratch.chosen
    numbers, firsts = scratch.numbers, scratch.firsts
    px, py, alpha = profiles.points[slot, X], profiles.points[slot, Y], profiles.points[slot, ALPHA]
    run, n_own = profiles.heads[slot, RUN], profiles.heads[slot, LENGTH]
    on_sphere, max_distance = source.params.on_sphere, source.params.max_distance
    mask, lane, bounds, bins, counts = xs.size - 1, term_ids.size - 1, scratch.bounds, scratch.bins, scratch.counts
    begin_floor(scratch)
    for chosen in range(n_chosen):
        if bounds[picked[chosen]] < floor:
            if n_chosen > FEW and bounds[picked[chosen]] + _BIN_WIDTH < floor:
                break  # they are sorted by bins
            continue
        counts[SCORED] += 1
        if chosen + 16 < n_chosen:
            ahead = numbers[picked[chosen + 16]] & mask
            prefetch(term_starts, ahead)
            prefetch(n_terms, ahead)
            prefetch(xs, ahead)
            prefetch(ys, ahead)
        if chosen + 8 < n_chosen:
            ahead = term_starts[numbers[picked[chosen + 8]] & mask] & lane
            prefetch(term_ids, ahead)
            prefetch(term_ids, ahead + 8)
            prefetch(units, ahead)
        i = picked[chosen]
        number = numbers[i]
        place = number & mask
        start = term_starts[place] & lane
        stop, at, total, first = start + n_terms[place], run, 0.0, -1
        while at < run + n_own and start < stop:
            mine, other = run_terms[at], term_ids[start]
            if mine == other:
                total += run_units[at] * units[start]
                for j in range(n_own if first < 0 else first):
                    if order[j] == at:
                        first = j
                        break
            at += mine <= other
            start += other <= mine
        if first < 0 or (firsts[i] >= 0 and first != firsts[i]):
            continue
        score = topk_score(px, py, alpha, xs[place], ys[place], total, on_sphere, max_distance)
        if score >= floor:
            scores[n_found], found[n_found] = score, number
            n_found += 1
            floor = raise_by_score(source.params, bins, counts, need, floor, score, _BIN_WIDTH)
    return n_found


@kernel
def search_terms(source: TermSource, slot: int, now: int, horizon: Horizon) -> tuple[int, float, int]:
    """Find the best messages up to `now`; see `SourceKernels.search`."""
    params, lists, profiles, scratch = source.params, source.lists, source.profiles, source.scratch
    k, n_terms = int(profiles.heads[slot, K]), profiles.heads[slot, LENGTH]
    sort_terms(lists, profiles, slot, scratch.order)
    n_postings = count_postings(lists, profiles, slot)
    option, n_keyed = find_option(source.keys, slot, n_postings // COST)
    if option >= 0:
        return _search_option(source, TermSearch(slot, now, target_size(params, k, n_keyed), horizon), option)
    scratch.counts[SCANNED] += n_postings
    need = target_size(params, k, n_postings)
    search = TermSearch(slot, now, need, horizon)
    is_dense = _is_dense(source, search, n_postings)
    while True:
        n, floor = 0, -np.inf
        begin_floor(scratch)
        if is_dense:
            n, floor = _read_sums(source, search)
        else:
            for turn in range(n_terms - 1, -1, -1):
                n, floor = _read(source, search, turn, floor, n)
        n_chosen, n_pending = split_noted(scratch, n, floor, now, _BIN_WIDTH)
        n_found = _score(source, slot, n_chosen, floor, need)
        sort_found(scratch.scores, scratch.found, n_found)
        theta = theta_of(params, k, need, scratch.scores, n_found)
        if theta >= floor:
            break
        search = TermSearch(slot, now, 0, horizon)  # some witnesses were false: no floor
        scratch.counts[N_RETRIES] += 1
    return cut_below(scratch.scores, n_found, theta), theta, n_pending


@kernel
def _search_option(source: TermSource, search: TermSearch, option: int) -> tuple[int, float, int]:
    """Find the best of the messages that have the filter keys of an option."""
    scratch, slot = source.scratch, search.slot
    n = note_option(source.keys, option, slot, search.horizon, source.filters, source.rows, scratch)
    n_chosen, n_pending = split_noted(scratch, n, -np.inf, search.now, _BIN_WIDTH)
    n_found = _score(source, slot, n_chosen, -np.inf, search.need)
    sort_found(scratch.scores, scratch.found, n_found)
    theta = theta_of(source.params, int(source.profiles.heads[slot, K]), search.need, scratch.scores, n_found)
    return cut_below(scratch.scores, n_found, theta), theta, n_pending


@kernel
def score_pending_terms(source: TermSource, slot: int, n_pending: int, floor: float, ceiling: float) -> int:
    """Score messages that arrive later; see `SourceKernels.score_pending`."""
    n_chosen = choose_pending(source.scratch, n_pending, floor)
    return drop_from(source.scratch, _score(source, slot, n_chosen, floor, 0), ceiling)


@kernel
def max_noted_terms(source: TermSource, slot: int) -> int:
    """Return an upper bound of the postings that a search notes: all that its lists hold."""
    return count_postings(source.lists, source.profiles, slot)


@kernel
def append_messages(params: BufferParams, lists: ListArrays, window: WindowArrays, start: int, stop: int) -> int:
    """Append messages to term lists; see `lists.append_messages`."""
    return append_to_lists(params, lists, window, start, stop, greatest_weight)


@kernel
def begin(
    context: BufferContext, slots: NDArray[np.int32], start: int, now: int, horizon: Horizon, changes: ChangeBuffer
) -> tuple[int, int]:
    """Start buffers; see `buffers.begin`."""
    kernels = SourceKernels(search_terms, score_pending_terms, max_noted_terms)
    return begin_buffers(context, kernels, slots, start, now, horizon, changes)


@kernel
def publish(context: BufferContext, batch: BatchSteps, changes: ChangeBuffer, pending: PendingArrivals) -> int:
    """Publish a batch; see `buffers.publish`."""
    kernels = SourceKernels(search_terms, score_pending_terms, max_noted_terms)
    return publish_buffers(context, kernels, batch, changes, pending)
