"""Which messages of the window score best for a subscription of kind `social`? Those with its words, or of friends.

    lists of its terms, and places its user is close to ────┐
    places less close, if theta is no more than 1 + SLACK ──┼── bound of each message ── the best, exactly ── theta
    everyone else, if theta is no more than 1 ──────────────┘             all that may reach theta, exactly

    rows    message -> signs of its terms, spot, place, number of terms, mark, the message before it of its place
    heads   place -> its newest message

What shares no term scores 1 at most, and what social closeness its place has. Messages of a place are a
chain through their rows that ends where the window begins, so nothing has to be taken off it.
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
    NEXT_BITS,
    NEXT_MASK,
    TAG_MASK,
    TAIL,
    WEIGHT_BITS,
    ListArrays,
    bucket_of,
    is_dead,
    tag_of,
)
from nearcast.window._kernels.search import (
    AHEAD,
    N_BINS,
    SCANNED,
    SCORED,
    Scratch,
    n_to_read,
    sign_of,
    sort_found,
    theta_of,
    wanted,
)
from nearcast.window._kernels.world import SPOT_BITS, SPOT_MASK, World, spot_of, to_frame
from nearcast.window.store import WindowArrays

SIGN, SPOT, PLACE, N_TERMS, MARK, BEFORE = 0, 1, 2, 3, 4, 5
"""Columns of a row."""
ROW = 8
LISTED, KNOWN, STAMP, N_MET = 0, 1, 2, 3
"""Places in the state: the first number that has no row yet, how many places were known, searches, places met."""


NO_GRAPH = GraphArrays(
    np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(1, np.int64), np.zeros(0, np.int32),
    np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0),
)  # fmt: skip
"""Of kinds that have none."""


class FriendArrays(NamedTuple):
    """What a window knows of places and friends; all of it is empty for kinds that have none."""

    graph: GraphArrays
    users: NDArray[np.int32]
    """int32 (n_slots,): the user of a subscription."""
    rows: NDArray[np.int64]
    """int64 (as many as the window has places, ROW): see the columns."""
    heads: NDArray[np.int64]
    """int64 (n_places,): the number of the newest message of a place, or -1."""
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
    world: World,
    window: WindowArrays,
    signs: NDArray[np.int64],
    friends: FriendArrays,
    start: int,
    places: NDArray[np.int32],
) -> None:
    """Write the rows of messages from `start` on, whose places are given."""
    rows, heads, mask = friends.rows, friends.heads, window.xs.size - 1
    for i in range(places.size):
        number = start + i
        at = number & mask
        rows[at, SIGN], rows[at, SPOT] = signs[at], spot_of(world, window.xs[at], window.ys[at], 0.0)
        rows[at, PLACE], rows[at, N_TERMS], rows[at, MARK], rows[at, BEFORE] = places[i], window.n_terms[at], 0, -1
        if places[i] >= 0:
            rows[at, BEFORE] = heads[places[i]]
            heads[places[i]] = number
    friends.state[LISTED] = start + places.size


@kernel
def _gather(
    lists: ListArrays,
    profiles: ProfileArrays,
    friends: FriendArrays,
    slot: int,
    first: int,
    keys: NDArray[np.int64],
    horizon: int,
    in_order: bool,
    gathered: NDArray[np.int64],
) -> int:
    """Mark and gather messages that may share a term, and those of places above SLACK; return how many."""
    rows, items, buckets, base = friends.rows, lists.items, lists.buckets, lists.counts[BASE]
    n, mask, stamp, run = 0, rows.shape[0] - 1, friends.state[STAMP], profiles.heads[slot, RUN]
    for turn in range(run, run + profiles.heads[slot, LENGTH]):
        term = profiles.run_terms[turn]
        bucket, tag = bucket_of(buckets.shape[0], term), tag_of(term)
        chunk, at = buckets[bucket, HEAD], buckets[bucket, EDGES] & EDGE_MASK
        tail, end = buckets[bucket, TAIL], buckets[bucket, EDGES] >> EDGE_BITS
        while chunk >= 0:
            stop = end if chunk == tail else LEAST_CHUNK << (items[chunk] >> NEXT_BITS)
            for place in range(chunk + at, chunk + stop):
                if place + AHEAD < items.size:
                    prefetch(rows, ((items[place + AHEAD] >> 32) + base) & mask)
                if (items[place] >> WEIGHT_BITS) & TAG_MASK != tag:
                    continue
                number = (items[place] >> 32) + base
                if rows[number & mask, MARK] != stamp and not is_dead(number, first, keys, horizon, in_order):
                    rows[number & mask, MARK] = stamp
                    gathered[n] = number
                    n += 1
            chunk, at = (items[chunk] & NEXT_MASK) - 1, 1
    return _gather_friends(friends, SLACK, first, keys, horizon, in_order, gathered, n)


@kernel
def _gather_friends(
    friends: FriendArrays,
    above: float,
    first: int,
    keys: NDArray[np.int64],
    horizon: int,
    in_order: bool,
    gathered: NDArray[np.int64],
    n: int,
) -> int:
    """Mark and gather messages of places above a social score that are not marked, after `n`; return how many."""
    rows, state, heads, socials, met = friends.rows, friends.state, friends.heads, friends.socials, friends.met
    mask, stamp = rows.shape[0] - 1, state[STAMP]
    for i in range(state[N_MET]):
        if socials[met[i]] > above:
            number = heads[met[i]]
            while number >= first:
                if rows[number & mask, MARK] != stamp and not is_dead(number, first, keys, horizon, in_order):
                    rows[number & mask, MARK] = stamp
                    gathered[n] = number
                    n += 1
                number = rows[number & mask, BEFORE]
    return n


@kernel
def _gather_rest(
    friends: FriendArrays,
    first: int,
    keys: NDArray[np.int64],
    horizon: int,
    in_order: bool,
    gathered: NDArray[np.int64],
) -> int:
    """Gather all messages that are not marked; return how many."""
    rows, n = friends.rows, 0
    mask, stamp = rows.shape[0] - 1, friends.state[STAMP]
    for number in range(first, friends.state[LISTED]):
        gathered[n] = number
        n += rows[number & mask, MARK] != stamp and not is_dead(number, first, keys, horizon, in_order)
    return n


@kernel
def _bound(
    world: World,
    profiles: ProfileArrays,
    friends: FriendArrays,
    slot: int,
    n_gathered: int,
    may_share: bool,
    floor: float,
    scratch: Scratch,
    n: int,
) -> int:
    """Note those of the messages that were gathered whose bound reaches a floor; return how many there are then.

    Unless they may share a term, they are on none of its lists.
    """
    rows, socials, gathered, shared = friends.rows, friends.socials, scratch.later, scratch.shared
    bounds, numbers = scratch.bounds, scratch.numbers
    mask, run, n_own = rows.shape[0] - 1, profiles.heads[slot, RUN], profiles.heads[slot, LENGTH]
    px, py, pz = to_frame(world.on_sphere, profiles.points[slot, X], profiles.points[slot, Y])
    px, py, pz = world.x0 - px, world.y0 - py, world.z0 - pz
    on_sphere, margin, unit, lost = world.on_sphere, world.margin, world.unit, world.near_a_unit
    for j in range(n_own):
        shared[j] = sign_of(profiles.run_terms[run + j])
    for i in range(n_gathered):
        if i + AHEAD < n_gathered:
            prefetch(rows, gathered[i + AHEAD] & mask)
        at = gathered[i] & mask
        sign, spot, place, n_terms = rows[at, SIGN], rows[at, SPOT], rows[at, PLACE], rows[at, N_TERMS]
        dx = px + (spot & SPOT_MASK) * unit
        dy = py + ((spot >> SPOT_BITS) & SPOT_MASK) * unit
        dz = pz + ((spot >> 2 * SPOT_BITS) & SPOT_MASK) * unit
        chord = sqrt(dx * dx + dy * dy + dz * dz)
        if on_sphere:  # the arc is longer than this
            chord *= 1.0 + chord * chord * (1.0 / 24.0)
        n_shared = 0
        if may_share:
            for j in range(n_own):
                n_shared += (sign >> shared[j]) & 1
        bound = max(0.0, 1.0 - lost * chord) + 2.0 * min(n_shared, n_terms) / (n_own + n_terms) + margin
        if place >= 0:
            bound += socials[place]
        bounds[n], numbers[n] = np.float32(bound), gathered[i]
        n += bound >= floor
    return n


@kernel
def _score(
    world: World,
    window: WindowArrays,
    profiles: ProfileArrays,
    friends: FriendArrays,
    slot: int,
    scratch: Scratch,
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
        score = near(x, y, xs[at], ys[at], world.on_sphere, world.max_distance) + 2.0 * shared / (n_own + n_terms)
        if place >= 0:
            score += socials[place]
        if score >= floor:
            scores[n_found], found[n_found] = score, number
            n_found += 1
    return n_found


@kernel
def _choose(scratch: Scratch, n: int, now: int, more: int) -> int:
    """Choose the best messages up to `now` by their bounds, a few more than are needed; return how many."""
    bounds, numbers, bins, chosen = scratch.bounds, scratch.numbers, scratch.bins, scratch.chosen
    greatest = np.float32(0.0)
    for i in range(n):
        greatest = max(greatest, bounds[i])
    scale = (N_BINS - 1) / max(float(greatest), 1e-30)
    bins[:] = 0
    for i in range(n):
        bins[int(bounds[i] * scale)] += numbers[i] <= now
    cut, above = N_BINS, 0
    while cut > 0 and above < more:
        cut -= 1
        above += bins[cut]
    n_chosen = 0
    for i in range(n):
        if int(bounds[i] * scale) >= cut and numbers[i] <= now:
            chosen[n_chosen] = i
            n_chosen += 1
    return n_chosen


@kernel
def search_friends(
    world: World,
    lists: ListArrays,
    window: WindowArrays,
    profiles: ProfileArrays,
    friends: FriendArrays,
    slot: int,
    now: int,
    first: int,
    keys: NDArray[np.int64],
    horizon: int,
    in_order: bool,
    scratch: Scratch,
) -> tuple[int, float, int]:
    """Find the best messages up to `now`; return how many, the theta they all reach, and how many may be to come.

    As `search`: everything in the window that reaches theta is found, and theta is -inf if there is nothing else.
    """
    state, socials, met = friends.state, friends.socials, friends.met
    for i in range(state[N_MET]):
        socials[met[i]] = 0.0
    state[N_MET] = all_places_near(friends.graph, friends.users[slot], socials, met, friends.counts, friends.others)
    state[STAMP] += 1
    k = profiles.heads[slot, K]
    need = wanted(world, k, n_to_read(lists, profiles, slot))
    more, theta = need + need // 8 + 4, -np.inf
    n = 0
    for turn in range(3):
        if turn == 0:
            most = 1.0 + SLACK  # of who is not gathered yet
            n_gathered = _gather(lists, profiles, friends, slot, first, keys, horizon, in_order, scratch.later)
        elif turn == 1:
            most, above = 1.0, max(0.0, theta - 1.0 - world.margin)
            n_gathered = _gather_friends(friends, above, first, keys, horizon, in_order, scratch.later, 0)
        else:
            most = -np.inf
            n_gathered = _gather_rest(friends, first, keys, horizon, in_order, scratch.later)
        scratch.counts[SCANNED] += n_gathered
        before = n
        n = _bound(world, profiles, friends, slot, n_gathered, turn == 0, theta, scratch, n)
        if n > before:
            n_chosen = _choose(scratch, n, now, more)
            n_found = _score(world, window, profiles, friends, slot, scratch, n_chosen, -np.inf)
            sort_found(scratch.scores, scratch.found, n_found)
            theta = max(theta, theta_of(world, k, need, scratch.scores, n_found))
        if theta > most + world.margin:
            break
    n_later, n_chosen = 0, 0
    for i in range(n):
        if scratch.numbers[i] > now:
            scratch.later[n_later] = i
            n_later += 1
        elif scratch.bounds[i] >= theta:
            scratch.chosen[n_chosen] = i
            n_chosen += 1
    n_found = _score(world, window, profiles, friends, slot, scratch, n_chosen, theta)
    sort_found(scratch.scores, scratch.found, n_found)
    theta = theta_of(world, k, need, scratch.scores, n_found)
    while n_found > 0 and scratch.scores[n_found - 1] < theta:
        n_found -= 1
    return n_found, theta, n_later


@kernel
def score_friends_later(
    world: World,
    window: WindowArrays,
    profiles: ProfileArrays,
    friends: FriendArrays,
    slot: int,
    scratch: Scratch,
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
    n_found = _score(world, window, profiles, friends, slot, scratch, n_chosen, floor)
    kept = 0
    for i in range(n_found):
        if scratch.scores[i] < ceiling:
            scratch.scores[kept], scratch.found[kept] = scratch.scores[i], scratch.found[i]
            kept += 1
    return kept
