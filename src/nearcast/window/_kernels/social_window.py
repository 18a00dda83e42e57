"""Which messages of the window score best for a subscription of kind `social`? Those of friends, or with its words.

    lists of places that its user is close to ──────────────┐
    lists of its terms ─────────────────────────────────────┤
    places less close, if the floor is no more than 1 + SLACK ┼── bound ── those that reach the floor ── exact scores
    everyone else, if the floor is no more than 1 ──────────┘      └── as many as are wanted lift the floor

    rows    message -> signs of its terms, spot, place, number of terms, mark

Bounds of a piece of a list are worked out at once from its spots, without a row: a list says which place a message
comes from, or that it shares a term, and a spot where it is and how many terms it has. Who shares no term scores 1 at
most, and what social closeness its place has; who comes from no list of places read before, SLACK of it at most. Only
who may reach the floor has its row looked at, and is marked, since it may stand on several lists. It scores its
nearness and its social closeness at least, so the floor rises as messages are noted.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch
from nearcast.model._kernels.profiles import LENGTH, RUN, K, ProfileArrays, X, Y, near
from nearcast.social._kernels.graph import SLACK, GraphArrays, all_places_near
from nearcast.window._kernels.lists import (
    BASE,
    EDGE_BITS,
    EDGE_MASK,
    EDGES,
    HEAD,
    LEAST_CHUNK,
    LISTED,
    N_CLASSES,
    N_POSTINGS,
    NEXT_BITS,
    NEXT_MASK,
    TAG_MASK,
    TAIL,
    WEIGHT_BITS,
    ListArrays,
    append_posting,
    bucket_of,
    drop_front,
    is_dead,
    tag_of,
)
from nearcast.window._kernels.lists import LENGTH as N_LISTED
from nearcast.window._kernels.params import MOST_EXTRA, SPOT_BITS, SPOT_MASK, BufferParams, spot_of, to_frame
from nearcast.window._kernels.search import (
    AHEAD,
    ALL_OTHERS,
    AT_X,
    AT_Y,
    AT_Z,
    BEND,
    CUT,
    LOST,
    MARGIN,
    MOST_BEND,
    N_BINS,
    OTHERS,
    OWN,
    ROUNDING,
    SCANNED,
    SCORED,
    UNIT,
    WITNESSED,
    SearchScratch,
    n_to_read,
    promised,
    sign_of,
    sort_found,
    sort_terms,
    theta_of,
    wanted,
)
from nearcast.window.store import WindowArrays

SIGN, SPOT, PLACE, N_TERMS, MARK = 0, 1, 2, 3, 4
"""Columns of a row."""
ROW = 8
NOTED, KNOWN, STAMP, N_MET = 0, 1, 2, 3
"""Places in the state: the first number that has no row yet, how many places were known, searches, places met."""
MOST_SHARED, EXTRA = OTHERS, ALL_OTHERS
"""What is asked of a list in place of weights: how many terms may be shared, and the social score."""
CLOSE = 0.5  # places that are read first, so that the floor is high when the others are
MOST_SCORE = 3.0

_ZERO, _ONE, _TWO = np.float32(0.0), np.float32(1.0), np.float32(2.0)
_CUT_OFF = np.float32(MOST_EXTRA - 1)


NO_GRAPH = GraphArrays(
    np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(1, np.int64), np.zeros(0, np.int32),
    np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0),
)  # fmt: skip
"""Of kinds that have none."""


class SocialWindowArrays(NamedTuple):
    """What a window knows of places and friends; all of it is empty for kinds that have none."""

    graph: GraphArrays
    users: NDArray[np.int32]
    """int32 (n_slots,): the user of a subscription."""
    rows: NDArray[np.int64]
    """int64 (as many as the window has places, ROW): see the columns."""
    places: ListArrays
    """The messages of each place, by its number."""
    state: NDArray[np.int64]
    """int64 (4,): see the places."""
    socials: NDArray[np.float64]
    """float64 (n_places,): social scores of the user who was searched for last."""
    met: NDArray[np.int32]
    """int32 (n_places,): which of them are not 0."""
    counts: NDArray[np.int32]
    others: NDArray[np.int32]
    """int32 (n_users,): room to find them."""


@kernel
def note_messages(
    params: BufferParams,
    window: WindowArrays,
    signs: NDArray[np.int64],
    friends: SocialWindowArrays,
    start: int,
    places: NDArray[np.int32],
) -> None:
    """Write the rows of messages from `start` on, whose places are given."""
    rows, mask = friends.rows, window.xs.size - 1
    for i in range(places.size):
        at = (start + i) & mask
        rows[at, SIGN], rows[at, PLACE], rows[at, N_TERMS], rows[at, MARK] = (
            signs[at],
            places[i],
            window.n_terms[at],
            0,
        )
        rows[at, SPOT] = spot_of(params, window.xs[at], window.ys[at], int(window.n_terms[at]))
    friends.state[NOTED] = start + places.size


@kernel
def append_places(lists: ListArrays, rows: NDArray[np.int64], start: int, stop: int) -> int:
    """Put messages on the lists of their places; return the first number for which there was no room."""
    buckets, items, spots, state = lists.buckets, lists.items, lists.spots, lists.state
    base, mask, room = lists.counts[BASE], rows.shape[0] - 1, LEAST_CHUNK << (N_CLASSES - 1)
    for number in range(start, stop):
        place = rows[number & mask, PLACE]
        if place >= 0:
            if state[0] + room > items.size:
                state[1] = room
                return number
            posting = ((number - base) << 32) | (tag_of(place) << WEIGHT_BITS)
            append_posting(buckets, items, spots, state, place, posting, rows[number & mask, SPOT])
            lists.counts[N_POSTINGS] += 1
        lists.counts[LISTED] = number + 1
    return stop


@kernel
def drop_places(
    lists: ListArrays,
    rows: NDArray[np.int64],
    leaving: NDArray[np.int64],
    first: int,
    keys: NDArray[np.int64],
    horizon: int,
    in_order: bool,
) -> None:
    """Take messages that left off the lists of their places, as far as they stand in front."""
    for number in leaving:
        place = rows[number & (rows.shape[0] - 1), PLACE]
        if place >= 0:
            drop_front(lists, bucket_of(lists.buckets.shape[0], place), first, keys, horizon, in_order)


@kernel
def _aim(params: BufferParams, profiles: ProfileArrays, slot: int, query: NDArray[np.float32]) -> None:
    """Write what is asked of every list."""
    px, py, pz = to_frame(params.on_sphere, profiles.points[slot, X], profiles.points[slot, Y])
    query[AT_X], query[AT_Y], query[AT_Z], query[UNIT] = params.x0 - px, params.y0 - py, params.z0 - pz, params.unit
    query[LOST], query[OWN], query[MARGIN] = (
        params.near_a_unit,
        profiles.heads[slot, LENGTH],
        params.margin + ROUNDING,
    )
    query[BEND] = 1.0 / 24.0 if params.on_sphere else 0.0  # the arc is longer than this


@kernel
def _bound_piece(
    spots: NDArray[np.int64], start: int, stop: int, query: NDArray[np.float32], values: NDArray[np.float32]
) -> None:
    """Write the bounds of a piece of a list; no branch, so that it runs on many postings at once."""
    x, y, z, unit, lost, bend = query[AT_X], query[AT_Y], query[AT_Z], query[UNIT], query[LOST], query[BEND]
    own, most_shared, extra, margin = query[OWN], query[MOST_SHARED], query[EXTRA], query[MARGIN]
    here = spots[start:stop]
    for i in range(stop - start):
        spot = here[i]
        dx = x + np.float32(np.int32(spot & SPOT_MASK)) * unit
        dy = y + np.float32(np.int32((spot >> SPOT_BITS) & SPOT_MASK)) * unit
        dz = z + np.float32(np.int32((spot >> 2 * SPOT_BITS) & SPOT_MASK)) * unit
        square = dx * dx + dy * dy + dz * dz
        far = np.sqrt(square) * (_ONE + square * bend)
        n_terms = np.float32(np.int32(spot >> 3 * SPOT_BITS)) - _ONE  # at least; it has more where the bits end
        shared = most_shared if n_terms >= _CUT_OFF else min(most_shared, n_terms)
        values[i] = max(_ZERO, _ONE - lost * far) + _TWO * shared / (own + n_terms) + extra + margin


@kernel
def _length(lists: ListArrays, key: int) -> int:
    """Return how many postings are on the list of a key, and on others of its bucket."""
    return int(lists.buckets[bucket_of(lists.buckets.shape[0], key), N_LISTED])


@kernel
def _collect(
    lists: ListArrays,
    key: int,
    floor: float,
    first: int,
    keys: NDArray[np.int64],
    horizon: int,
    in_order: bool,
    place: int,
    scratch: SearchScratch,
    n: int,
) -> int:
    """Collect the messages of a list whose bound reaches the floor, as of a place or of none; return how many."""
    items, spots, buckets, base = lists.items, lists.spots, lists.buckets, lists.counts[BASE]
    values, query = scratch.values, scratch.query
    numbers, bounds, places = scratch.later, scratch.scores, scratch.found
    bucket, tag = bucket_of(buckets.shape[0], key), tag_of(key)
    chunk, at = buckets[bucket, HEAD], buckets[bucket, EDGES] & EDGE_MASK
    tail, end = buckets[bucket, TAIL], buckets[bucket, EDGES] >> EDGE_BITS
    while chunk >= 0:
        stop = end if chunk == tail else LEAST_CHUNK << (items[chunk] >> NEXT_BITS)
        start, after = chunk + at, (items[chunk] & NEXT_MASK) - 1
        if after >= 0:
            for line in range(0, 2 * AHEAD, AHEAD // 2):
                prefetch(items, after + line)
                prefetch(spots, after + line)
        _bound_piece(spots, start, chunk + stop, query, values)
        for i in range(stop - at):
            posting = items[start + i]
            number = (posting >> 32) + base
            numbers[n], bounds[n], places[n] = number, values[i], place
            is_one = values[i] >= floor and (posting >> WEIGHT_BITS) & TAG_MASK == tag and number >= first
            n += is_one and (in_order or keys[number & (keys.size - 1)] > horizon)
        chunk, at = after, 1
    return n


@kernel
def _note(
    params: BufferParams,
    profiles: ProfileArrays,
    friends: SocialWindowArrays,
    slot: int,
    floor: float,
    now: int,
    need: int,
    scratch: SearchScratch,
    n_collected: int,
    n: int,
) -> tuple[int, float]:
    """Note those that were collected and may reach the floor, each once; return how many there are, and the floor.

    Who was collected as of a place and comes from another is passed over: it is on a list of its own. All arrays are
    at hand as variables, and there is one call for many: handing on tuples of them costs more than a message.
    """
    rows, socials, stamp, mask = friends.rows, friends.socials, friends.state[STAMP], friends.rows.shape[0] - 1
    bins, counts, shared, query = scratch.bins, scratch.counts, scratch.shared, scratch.query
    collected, collected_bounds, collected_places = scratch.later, scratch.scores, scratch.found
    bounds, numbers = scratch.bounds, scratch.numbers
    px, py, pz, unit = float(query[AT_X]), float(query[AT_Y]), float(query[AT_Z]), params.unit
    lost, margin, on_sphere, n_own = params.near_a_unit, params.margin + ROUNDING, params.on_sphere, int(query[OWN])
    for i in range(n_collected):
        if i + AHEAD < n_collected:
            prefetch(rows, collected[i + AHEAD] & mask)
        if collected_bounds[i] < floor:
            continue
        number = collected[i]
        at = number & mask
        place, n_terms, sign, spot = rows[at, PLACE], rows[at, N_TERMS], rows[at, SIGN], rows[at, SPOT]
        if rows[at, MARK] == stamp or (collected_places[i] >= 0 and place != collected_places[i]):
            continue
        dx = px + (spot & SPOT_MASK) * unit
        dy = py + ((spot >> SPOT_BITS) & SPOT_MASK) * unit
        dz = pz + ((spot >> 2 * SPOT_BITS) & SPOT_MASK) * unit
        far = sqrt(dx * dx + dy * dy + dz * dz)
        bend = far * far if on_sphere else 0.0
        n_shared = 0
        for j in range(n_own):
            n_shared += (sign >> shared[j]) & 1
        social = socials[place] if place >= 0 else 0.0
        bound = max(0.0, 1.0 - lost * far * (1.0 + bend * (1.0 / 24.0))) + social + margin
        bound += 2.0 * min(n_shared, n_terms) / (n_own + n_terms)
        if bound < floor:
            continue
        rows[at, MARK] = stamp
        bounds[n], numbers[n] = np.float32(bound), number
        n += 1
        if number <= now:
            least = max(0.0, 1.0 - lost * (far * (1.0 + bend * (1.0 / 24.0 + bend * MOST_BEND)) + unit)) + social
            level = int((least - ROUNDING) * (N_BINS / MOST_SCORE))
            if level >= counts[CUT]:
                bins[min(N_BINS - 1, level)] += 1
                counts[WITNESSED] += 1
                if counts[WITNESSED] - bins[counts[CUT]] >= need:
                    cut, above = counts[CUT], counts[WITNESSED]
                    while above - bins[cut] >= need:
                        above -= bins[cut]
                        cut += 1
                    counts[CUT], counts[WITNESSED] = cut, above
                    floor = max(floor, promised(params, cut * (MOST_SCORE / N_BINS)))
    return n, floor


@kernel
def _score(
    params: BufferParams,
    window: WindowArrays,
    profiles: ProfileArrays,
    friends: SocialWindowArrays,
    slot: int,
    scratch: SearchScratch,
    n_chosen: int,
    floor: float,
) -> int:
    """Score the messages that were chosen, as the reference does; return how many reach the floor."""
    xs, ys, term_starts, term_ids = window.xs, window.ys, window.term_starts, window.term_ids
    rows, socials, run_terms = friends.rows, friends.socials, profiles.run_terms
    scores, found, chosen, numbers = scratch.scores, scratch.found, scratch.chosen, scratch.numbers
    x, y, run, n_own = (
        profiles.points[slot, X], profiles.points[slot, Y], profiles.heads[slot, RUN], profiles.heads[slot, LENGTH]
    )  # fmt: skip
    mask, lane, n_found = xs.size - 1, term_ids.size - 1, 0
    scratch.counts[SCORED] += n_chosen
    for i in range(n_chosen):
        if i + AHEAD < n_chosen:
            ahead = numbers[chosen[i + AHEAD]] & mask
            prefetch(term_starts, ahead)
            prefetch(xs, ahead)
            prefetch(ys, ahead)
        if i + AHEAD // 2 < n_chosen:
            prefetch(term_ids, term_starts[numbers[chosen[i + AHEAD // 2]] & mask] & lane)
        number = numbers[chosen[i]]
        at = number & mask
        own, start, shared = run, term_starts[at] & lane, 0
        n_terms, place = rows[at, N_TERMS], rows[at, PLACE]
        stop = start + n_terms
        while own < run + n_own and start < stop:
            mine, other = run_terms[own], term_ids[start]
            shared += mine == other
            own += mine <= other
            start += other <= mine
        score = near(x, y, xs[at], ys[at], params.on_sphere, params.max_distance) + 2.0 * shared / (n_own + n_terms)
        if place >= 0:
            score += socials[place]
        if score >= floor:
            scores[n_found], found[n_found] = score, number
            n_found += 1
    return n_found


@kernel
def search_social(
    params: BufferParams,
    lists: ListArrays,
    window: WindowArrays,
    profiles: ProfileArrays,
    friends: SocialWindowArrays,
    slot: int,
    now: int,
    first: int,
    keys: NDArray[np.int64],
    horizon: int,
    in_order: bool,
    scratch: SearchScratch,
) -> tuple[int, float, int]:
    """Find the best messages up to `now`; return how many, the theta they all reach, and how many may be to come.

    As `search`: everything in the window that reaches theta is found, and theta is -inf if there is nothing else.
    """
    state, socials, met = friends.state, friends.socials, friends.met
    for i in range(state[N_MET]):
        socials[met[i]] = 0.0
    state[N_MET] = all_places_near(friends.graph, friends.users[slot], socials, met, friends.counts, friends.others)
    state[STAMP] += 1
    k, n_own, query, margin = (
        profiles.heads[slot, K],
        profiles.heads[slot, LENGTH],
        scratch.query,
        params.margin + ROUNDING,
    )
    need = wanted(params, k, n_to_read(lists, profiles, slot))
    sort_terms(lists, profiles, slot, scratch.order)
    for j in range(n_own):
        scratch.shared[j] = sign_of(profiles.run_terms[scratch.order[j]])
    scratch.bins[:], scratch.counts[WITNESSED], scratch.counts[CUT] = 0, 0, 0
    _aim(params, profiles, slot, query)
    n, floor = 0, -np.inf
    for turn in range(4):
        n_collected, least, most = 0, CLOSE, np.inf
        query[MOST_SHARED] = n_own
        if turn == 1:
            least, most = SLACK, CLOSE
        elif turn == 2:
            least = np.inf
            for j in range(n_own):
                query[MOST_SHARED], query[EXTRA], term = n_own - j, SLACK, profiles.run_terms[scratch.order[j]]
                if n_collected + _length(lists, term) > scratch.later.size:
                    n, floor = _note(params, profiles, friends, slot, floor, now, need, scratch, n_collected, n)
                    n_collected = 0
                n_collected = _collect(
                    lists, term, floor, first, keys, horizon, in_order, -1, scratch, n_collected
                )  # fmt: skip
        elif turn == 3:  # who shares a term was on a list of terms, where SLACK is reckoned with
            query[MOST_SHARED], least, most = 0, max(0.0, floor - 1.0 - 2.0 * margin), SLACK
        for i in range(state[N_MET]):
            place = int(met[i])
            if least < socials[place] <= most:
                query[EXTRA] = socials[place]
                if n_collected + _length(friends.places, place) > scratch.later.size:
                    n, floor = _note(params, profiles, friends, slot, floor, now, need, scratch, n_collected, n)
                    n_collected = 0
                n_collected = _collect(
                    friends.places, place, floor, first, keys, horizon, in_order, place, scratch, n_collected
                )  # fmt: skip
        scratch.counts[SCANNED] += n_collected
        n, floor = _note(params, profiles, friends, slot, floor, now, need, scratch, n_collected, n)
    if floor <= 1.0 + 2.0 * margin:
        n_collected = 0
        for number in range(first, state[NOTED]):
            scratch.later[n_collected], scratch.scores[n_collected], scratch.found[n_collected] = number, np.inf, -1
            n_collected += not is_dead(number, first, keys, horizon, in_order)
        scratch.counts[SCANNED] += n_collected
        n, floor = _note(params, profiles, friends, slot, floor, now, need, scratch, n_collected, n)
    n_later, n_chosen = 0, 0
    for i in range(n):
        if scratch.bounds[i] < floor:
            continue
        if scratch.numbers[i] > now:
            scratch.later[n_later] = i
            n_later += 1
        else:
            scratch.chosen[n_chosen] = i
            n_chosen += 1
    n_found = _score(params, window, profiles, friends, slot, scratch, n_chosen, floor)
    sort_found(scratch.scores, scratch.found, n_found)
    theta = theta_of(params, k, need, scratch.scores, n_found)
    while n_found > 0 and scratch.scores[n_found - 1] < theta:
        n_found -= 1
    return n_found, theta, n_later


@kernel
def score_social_later(
    params: BufferParams,
    window: WindowArrays,
    profiles: ProfileArrays,
    friends: SocialWindowArrays,
    slot: int,
    scratch: SearchScratch,
    n_later: int,
    floor: float,
    ceiling: float,
) -> int:
    """Score messages to come that reach the floor and stay below the ceiling; return how many were found.

    As `score_later`; right after the search for the same subscription.
    """
    n_chosen = 0
    for i in range(n_later):
        if scratch.bounds[scratch.later[i]] >= floor:
            scratch.chosen[n_chosen] = scratch.later[i]
            n_chosen += 1
    n_found = _score(params, window, profiles, friends, slot, scratch, n_chosen, floor)
    kept = 0
    for i in range(n_found):
        if scratch.scores[i] < ceiling:
            scratch.scores[kept], scratch.found[kept] = scratch.scores[i], scratch.found[i]
            kept += 1
    return kept
