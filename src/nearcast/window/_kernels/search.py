"""Which messages of the window score best for a subscription? Its lists are read, then few messages are scored.

    lists of its terms, longest first ── bound of each posting ── those that reach the floor ── exact scores ── theta
                                                    └── witnesses, a histogram: as many as are wanted lift the floor

The bound of a posting is that of a message whose first shared term it stands for: what the term brings, what the
others can bring at most (a message's weights have length 1, so what is left of it is known), and the nearness of its
point. It is worked out for a piece of a list at once, without a branch. A message that stands on several lists is
scored for the first of them only. Messages that came after `now` are noted apart: to a batch that is under way they
are yet to come.

A message that shares no term of a list read before is a witness: it scores little less than its bound. The floor is
what as many witnesses as are wanted promise. Should they not keep it (terms of one tag and bucket are taken for each
other), the scores tell, and the window is searched again without a floor.
"""

from __future__ import annotations

from math import log, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, mix, prefetch
from nearcast.model._kernels.profiles import ALPHA, LENGTH, RUN, K, ProfileArrays, X, Y, near
from nearcast.window._kernels.lists import (
    BASE,
    EDGE_BITS,
    EDGE_MASK,
    EDGES,
    HEAD,
    LEAST_CHUNK,
    MOST_WEIGHT,
    N_CLASSES,
    NEXT_BITS,
    NEXT_MASK,
    TAG_MASK,
    TAIL,
    WEIGHT_BITS,
    ListArrays,
    bucket_of,
    tag_of,
)
from nearcast.window._kernels.lists import LENGTH as N_LISTED
from nearcast.window._kernels.params import BOUNDED, FACTOR, MOST_EXTRA, SPOT_BITS, SPOT_MASK, BufferParams, to_frame
from nearcast.window.store import WindowArrays

N_BINS = 1024
AHEAD = 16  # postings whose messages are on their way
PIECE = LEAST_CHUNK << (N_CLASSES - 1)
ROUNDING = 2.0**-18  # more than numbers of 32 bits cost a bound

SCANNED, SCORED, WITNESSED, CUT, AGAIN = 0, 1, 3, 4, 5
"""Places in the counts of the scratch; of witnesses there are those at or above the cut of the histogram."""
AT_X, AT_Y, AT_Z, UNIT, AT_ALPHA, LOST, OWN, OTHERS, ALL_OTHERS, MARGIN, BEND = range(11)
"""What is asked of a list: the point, a step of the grid, alpha and what a unit of the frame takes of it; weights of
the term and of others, all times 1 - alpha."""

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_A_WEIGHT, _A_GREATEST = np.float32(1.0 / MOST_WEIGHT), np.float32(1.0 / MOST_EXTRA)
_LEFT_OVER = np.float32(4.0 / MOST_WEIGHT)
MOST_BEND = 0.0254  # an arc of chord c is at most c + c**3 / 24 + this * c**5
_LINE = 8  # postings of a cache line


class SearchScratch(NamedTuple):
    """Room to look for messages."""

    bounds: NDArray[np.float32]
    """float32 (n,): the bound of each posting that was read."""
    numbers: NDArray[np.int64]
    """int64 (n,): its message."""
    firsts: NDArray[np.int16]
    """int16 (n,): the term of the subscription that it stands for."""
    bins: NDArray[np.int32]
    """int32 (N_BINS,): witnesses by what they score at least."""
    query: NDArray[np.float32]
    """float32 (16,): what is asked of a list."""
    values: NDArray[np.float32]
    """float32 (PIECE,): bounds of a piece of it."""
    scores: NDArray[np.float64]
    """float64 (n + 1,): what was found, best first."""
    found: NDArray[np.int64]
    """int64 (n + 1,): its message."""
    later: NDArray[np.int64]
    """int64 (n,): messages yet to come; places of their postings."""
    chosen: NDArray[np.int64]
    """int64 (n,): places of postings whose messages are to be scored."""
    order: NDArray[np.int64]
    """int64 (n_terms,): terms of the subscription, those on the shortest lists first."""
    shared: NDArray[np.int64]
    """int64 (n_terms,): the bits that stand for them."""
    line: NDArray[np.int32]
    """int32 (n,): subscriptions that a message leaves."""
    counts: NDArray[np.int64]
    """int64 (8,): postings read, messages scored, searches done again; see the places."""


@kernel
def sign_of(term: int) -> int:
    """Return which of 63 bits stands for a term."""
    return (mix(term) >> 32) % 63


@kernel
def sign_messages(window: WindowArrays, signs: NDArray[np.int64], start: int, stop: int) -> None:
    """Write down a bit for each term of messages."""
    mask, lane = window.xs.size - 1, window.term_ids.size - 1
    for number in range(start, stop):
        place = number & mask
        first, held = window.term_starts[place] & lane, 0
        for i in range(first, first + window.n_terms[place]):
            held |= 1 << sign_of(window.term_ids[i])
        signs[place] = held


@kernel
def n_to_read(lists: ListArrays, profiles: ProfileArrays, slot: int) -> int:
    """Return how many postings the lists of a subscription hold."""
    total, run = 0, profiles.heads[slot, RUN]
    for i in range(run, run + profiles.heads[slot, LENGTH]):
        total += lists.buckets[bucket_of(lists.buckets.shape[0], profiles.run_terms[i]), N_LISTED]
    return total


@kernel
def sort_terms(lists: ListArrays, profiles: ProfileArrays, slot: int, order: NDArray[np.int64]) -> None:
    """Write the terms of a subscription, those on the shortest lists first."""
    run, n = profiles.heads[slot, RUN], profiles.heads[slot, LENGTH]
    for i in range(n):
        length = lists.buckets[bucket_of(lists.buckets.shape[0], profiles.run_terms[run + i]), N_LISTED]
        at = i
        while at > 0:
            other = profiles.run_terms[order[at - 1]]
            if lists.buckets[bucket_of(lists.buckets.shape[0], other), N_LISTED] <= length:
                break
            order[at] = order[at - 1]
            at -= 1
        order[at] = run + i


@kernel
def _bound_piece(
    items: NDArray[np.int64],
    spots: NDArray[np.int64],
    start: int,
    stop: int,
    query: NDArray[np.float32],
    values: NDArray[np.float32],
) -> None:
    """Write the bounds of a piece of a list; no branch, so that it runs on many postings at once."""
    x, y, z, unit, alpha, lost = query[AT_X], query[AT_Y], query[AT_Z], query[UNIT], query[AT_ALPHA], query[LOST]
    own, others, all_others, margin, bend = query[OWN], query[OTHERS], query[ALL_OTHERS], query[MARGIN], query[BEND]
    here, there = items[start:stop], spots[start:stop]
    for i in range(stop - start):
        spot = there[i]
        weight = np.float32(np.int32(here[i] & MOST_WEIGHT)) * _A_WEIGHT
        dx = x + np.float32(np.int32(spot & SPOT_MASK)) * unit
        dy = y + np.float32(np.int32((spot >> SPOT_BITS) & SPOT_MASK)) * unit
        dz = z + np.float32(np.int32((spot >> 2 * SPOT_BITS) & SPOT_MASK)) * unit
        square = dx * dx + dy * dy + dz * dz
        far = np.sqrt(square) * (_ONE + square * bend)
        left = max(_ZERO, _ONE - weight * weight) + _LEFT_OVER  # the message has length 1
        greatest = np.float32(np.int32(spot >> 3 * SPOT_BITS)) * _A_GREATEST
        rest = min(np.sqrt(others * left), all_others * greatest)
        values[i] = max(_ZERO, alpha - lost * far) + own * weight + rest + margin


@kernel
def _read(
    params: BufferParams,
    lists: ListArrays,
    profiles: ProfileArrays,
    signs: NDArray[np.int64],
    slot: int,
    turn: int,
    floor: float,
    now: int,
    first: int,
    keys: NDArray[np.int64],
    horizon: int,
    in_order: bool,
    scratch: SearchScratch,
    n: int,
    need: int,
) -> tuple[int, float]:
    """Bound the postings of one list of a subscription; return how many are noted then, with those before.

    What falls short of the floor is not noted. Messages may share terms whose turn comes later. The floor rises as
    soon as the witnesses that are needed have reached it, if any are: it is the second that is returned.
    """
    bounds, numbers, firsts = scratch.bounds, scratch.numbers, scratch.firsts
    order, shared, bins, picked, values = scratch.order, scratch.shared, scratch.bins, scratch.chosen, scratch.values
    items, spots, buckets, base = lists.items, lists.spots, lists.buckets, lists.counts[BASE]
    run_units, query, counts = profiles.run_units, scratch.query, scratch.counts
    on_sphere, margin, unit, mask = params.on_sphere, params.margin + ROUNDING, params.unit, signs.size - 1
    alpha, scale = profiles.points[slot, ALPHA], 1.0 / MOST_WEIGHT
    px, py, pz = to_frame(on_sphere, profiles.points[slot, X], profiles.points[slot, Y])
    px, py, pz = params.x0 - px, params.y0 - py, params.z0 - pz
    lost, text, n_terms = alpha * params.near_a_unit, 1.0 - alpha, profiles.heads[slot, LENGTH]
    term, own = profiles.run_terms[order[turn]], text * run_units[order[turn]]
    others, all_others = 0.0, 0.0
    for j in range(turn + 1, n_terms):
        shared[j] = sign_of(profiles.run_terms[order[j]])
        others += run_units[order[j]] * run_units[order[j]]
        all_others += run_units[order[j]]
    query[AT_X], query[AT_Y], query[AT_Z], query[UNIT], query[AT_ALPHA], query[LOST] = px, py, pz, unit, alpha, lost
    query[OWN], query[OTHERS], query[ALL_OTHERS], query[MARGIN] = own, text * text * others, text * all_others, margin
    query[BEND] = 1.0 / 24.0 if on_sphere else 0.0  # the arc is longer than this
    row, tag = bucket_of(buckets.shape[0], term), tag_of(term)
    chunk, at = buckets[row, HEAD], buckets[row, EDGES] & EDGE_MASK
    tail, end = buckets[row, TAIL], buckets[row, EDGES] >> EDGE_BITS
    while chunk >= 0:
        stop = end if chunk == tail else LEAST_CHUNK << (items[chunk] >> NEXT_BITS)
        start, after, n_picked = chunk + at, (items[chunk] & NEXT_MASK) - 1, 0
        if after >= 0:
            for line in range(0, 4 * _LINE, _LINE):
                prefetch(items, after + line)
                prefetch(spots, after + line)
        _bound_piece(items, spots, start, chunk + stop, query, values)
        for i in range(stop - at):
            picked[n_picked] = start + i
            n_picked += values[i] >= floor
        for i in range(n_picked):
            prefetch(signs, ((items[picked[i]] >> 32) + base) & mask)
        for i in range(n_picked):
            posting, spot = items[picked[i]], spots[picked[i]]
            number = (posting >> 32) + base
            if (posting >> WEIGHT_BITS) & TAG_MASK != tag:
                continue
            if number < first or (not in_order and keys[number & mask] <= horizon):
                continue
            rest, total, held = 0.0, 0.0, signs[number & mask]
            for j in range(turn + 1, n_terms):
                if (held >> shared[j]) & 1:
                    other = run_units[order[j]]
                    rest += other * other
                    total += other
            weight = (posting & MOST_WEIGHT) * scale
            dx = px + (spot & SPOT_MASK) * unit
            dy = py + ((spot >> SPOT_BITS) & SPOT_MASK) * unit
            dz = pz + ((spot >> 2 * SPOT_BITS) & SPOT_MASK) * unit
            far = sqrt(dx * dx + dy * dy + dz * dz)
            bend = far * far if on_sphere else 0.0
            bound = max(0.0, alpha - lost * far * (1.0 + bend * (1.0 / 24.0))) + own * weight + margin
            if rest > 0.0:
                left = max(0.0, 1.0 - weight * weight) + 4.0 * scale
                greatest = (spot >> 3 * SPOT_BITS) * (1.0 / MOST_EXTRA)
                bound += text * min(sqrt(rest * left), total * greatest)
            if bound >= floor:
                bounds[n], numbers[n], firsts[n] = np.float32(bound), number, turn
                n += 1
                if need > 0 and rest == 0.0 and number <= now:
                    least = max(0.0, alpha - lost * (far * (1.0 + bend * (1.0 / 24.0 + bend * MOST_BEND)) + unit))
                    level = int((least + own * (weight - scale) - ROUNDING) * N_BINS)
                    if level >= counts[CUT]:
                        bins[min(N_BINS - 1, level)] += 1
                        counts[WITNESSED] += 1
        if need > 0 and counts[WITNESSED] >= need:
            cut, above = counts[CUT], counts[WITNESSED]
            while above - bins[cut] >= need:
                above -= bins[cut]
                cut += 1
            counts[CUT], counts[WITNESSED] = cut, above
            floor = max(floor, promised(params, cut / N_BINS))
        chunk, at = after, 1
    return n, floor


@kernel
def _score(
    params: BufferParams,
    window: WindowArrays,
    profiles: ProfileArrays,
    slot: int,
    scratch: SearchScratch,
    n_chosen: int,
    floor: float,
    are_distinct: bool,
) -> int:
    """Score the messages of postings that were chosen; return how many reach the floor.

    Unless all are of distinct messages, one counts where its posting stands for the first shared term, in the order
    of the lists.
    """
    n_found = 0
    xs, ys, term_starts, n_terms = window.xs, window.ys, window.term_starts, window.n_terms
    term_ids, units = window.term_ids, window.units
    run_terms, run_units, order = profiles.run_terms, profiles.run_units, scratch.order
    scores, found, picked = scratch.scores, scratch.found, scratch.chosen
    numbers, firsts = scratch.numbers, scratch.firsts
    x, y, alpha = profiles.points[slot, X], profiles.points[slot, Y], profiles.points[slot, ALPHA]
    run = profiles.heads[slot, RUN]
    n_own = profiles.heads[slot, LENGTH]
    mask, lane = xs.size - 1, term_ids.size - 1
    scratch.counts[SCORED] += n_chosen
    for chosen in range(n_chosen):
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
        if first < 0 or (not are_distinct and first != firsts[i]):
            continue
        score = (
            alpha * near(x, y, xs[place], ys[place], params.on_sphere, params.max_distance) + (1.0 - alpha) * total
        )
        if score >= floor:
            scores[n_found], found[n_found] = score, number
            n_found += 1
    return n_found


@kernel
def _is_worse(scores: NDArray[np.float64], numbers: NDArray[np.int64], a: int, b: int) -> bool:
    return bool(scores[a] < scores[b] or (scores[a] == scores[b] and numbers[a] < numbers[b]))


@kernel
def sort_found(scores: NDArray[np.float64], numbers: NDArray[np.int64], n: int) -> None:
    """Put what was found into order, best first, and of equal scores the newest."""
    # A heap with the worst on top, taken down from the end.
    for root in range(n // 2 - 1, -1, -1):
        _sift(scores, numbers, root, n)
    for end in range(n - 1, 0, -1):
        scores[0], scores[end] = scores[end], scores[0]
        numbers[0], numbers[end] = numbers[end], numbers[0]
        _sift(scores, numbers, 0, end)


@kernel
def _sift(scores: NDArray[np.float64], numbers: NDArray[np.int64], root: int, end: int) -> None:
    while 2 * root + 1 < end:
        child = 2 * root + 1
        if child + 1 < end and _is_worse(scores, numbers, child + 1, child):
            child += 1
        if not _is_worse(scores, numbers, child, root):
            return
        scores[root], scores[child] = scores[child], scores[root]
        numbers[root], numbers[child] = numbers[child], numbers[root]
        root = child


@kernel
def wanted(params: BufferParams, k: int, n_read: int) -> int:
    """Return how many messages a buffer should start with: the n of least cost (Skype, equations 9 to 13).

    With n messages of the window at or above theta, prob(theta) is n over the size of the window, which falls out of
    the comparison. Keeping them costs prob(theta) times the length of a k-skyband and a trip to memory; they run out
    after the time that a random walk from n down to k - 1 takes, and looking again costs what there is to read.
    """
    if params.policy == BOUNDED:
        return max(k, int(k * params.factor))
    if params.policy == FACTOR:
        return k
    best, best_cost, n, step = k, np.inf, k, max(1, k // 8)
    while n <= 4 * k + 8:
        keep = n * (k * (1.0 + log(n / k)) * NS_A_PLACE + NS_A_TOUCH)
        again = OFTENER * (NS_A_SEARCH + NS_A_POSTING * n_read) * n / ((n - k + 1.0) * (3.0 * n - k + 2.0))
        if keep + again > best_cost:
            break
        best, best_cost = n, keep + again
        n += step
    return best


NS_A_PLACE, NS_A_TOUCH, NS_A_SEARCH, NS_A_POSTING = 0.5, 150.0, 20_000.0, 8.0
"""What things cost, in nanoseconds: a place of a buffer, going there, a search, and a posting that it reads."""
OFTENER = 2.0
"""How much oftener than the walk says a buffer is taken to run short: messages leave in the order they came."""


@kernel
def search(
    params: BufferParams,
    lists: ListArrays,
    window: WindowArrays,
    profiles: ProfileArrays,
    signs: NDArray[np.int64],
    slot: int,
    now: int,
    first: int,
    keys: NDArray[np.int64],
    horizon: int,
    in_order: bool,
    scratch: SearchScratch,
) -> tuple[int, float, int]:
    """Find the best messages up to `now`; return how many, the theta they all reach, and how many may be to come.

    Everything in the window that reaches theta is found. Theta is -inf if there is nothing else.
    """
    k, n_terms = profiles.heads[slot, K], profiles.heads[slot, LENGTH]
    sort_terms(lists, profiles, slot, scratch.order)
    n_read = n_to_read(lists, profiles, slot)
    scratch.counts[SCANNED] += n_read
    need = n_witnesses = wanted(params, k, n_read)
    while True:
        n, floor = 0, -np.inf
        scratch.bins[:], scratch.counts[WITNESSED], scratch.counts[CUT] = 0, 0, 0
        for turn in range(n_terms - 1, -1, -1):
            n, floor = _read(
                params, lists, profiles, signs, slot, turn, floor, now, first, keys, horizon, in_order, scratch, n,
                n_witnesses,
            )  # fmt: skip
        n_later, n_chosen = 0, 0
        for i in range(n):
            if scratch.bounds[i] < floor:
                continue
            if scratch.numbers[i] <= now:
                scratch.chosen[n_chosen] = i
                n_chosen += 1
            else:
                scratch.later[n_later] = i
                n_later += 1
        n_found = _score(params, window, profiles, slot, scratch, n_chosen, floor, n_terms == 1)
        sort_found(scratch.scores, scratch.found, n_found)
        theta = theta_of(params, int(k), need, scratch.scores, n_found)
        if theta >= floor:
            break
        n_witnesses = 0  # they did not keep their promise: no floor
        scratch.counts[AGAIN] += 1
    while n_found > 0 and scratch.scores[n_found - 1] < theta:
        n_found -= 1
    return n_found, theta, n_later


@kernel
def promised(params: BufferParams, least: float) -> float:
    """Return a floor below theta if the witnesses that are needed score this at the least."""
    return (least * params.factor if params.policy == FACTOR else least) - ROUNDING


@kernel
def theta_of(params: BufferParams, k: int, need: int, scores: NDArray[np.float64], n: int) -> float:
    """Return what the scores of so many messages as are needed reach, sorted; -inf if there are fewer."""
    if n < need:
        return -np.inf
    return round_down(scores[k - 1] * params.factor if params.policy == FACTOR else scores[need - 1])


@kernel
def score_later(
    params: BufferParams,
    window: WindowArrays,
    profiles: ProfileArrays,
    slot: int,
    scratch: SearchScratch,
    n_later: int,
    floor: float,
    ceiling: float,
) -> int:
    """Score messages to come that reach the floor and stay below the ceiling; return how many were found.

    They are written where what was found stood.
    """
    n_chosen = 0
    for i in range(n_later):
        place = scratch.later[i]
        if scratch.bounds[place] >= floor:
            scratch.chosen[n_chosen] = place
            n_chosen += 1
    n_found = _score(params, window, profiles, slot, scratch, n_chosen, floor, False)
    kept = 0
    for i in range(n_found):
        if scratch.scores[i] < ceiling:
            scratch.scores[kept], scratch.found[kept] = scratch.scores[i], scratch.found[i]
            kept += 1
    return kept


@kernel
def round_down(value: float) -> float:
    """Return the greatest number of 32 bits that is no greater."""
    short = np.float32(value)
    if short > value:
        short = np.nextafter(short, np.float32(-np.inf))
    return float(short)


@kernel
def round_up(value: float) -> float:
    """Return the least number of 32 bits that is greater."""
    short = np.float32(value)
    if short <= value:
        short = np.nextafter(short, np.float32(np.inf))
    return float(short)
