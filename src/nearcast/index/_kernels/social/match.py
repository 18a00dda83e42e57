"""Which bars does a message reach? Those of friends, of those who share words, and of those nearby.

A subscription that is none of these is out of reach: without friends the graph brings SLACK at most, without words
nearness has to do the rest. Whoever may reach its bar is found once, by a mark, and verified as the reference scores.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, postings_first, postings_next, prefetch, table_get
from nearcast.index._kernels.social.frame import to_frame, upper_bound_near
from nearcast.index._kernels.social.layout import (
    AHEAD,
    CANDIDATES,
    LANE_BITS,
    LANES,
    N_OPEN,
    N_TERMS,
    REST_BITS,
    REST_MASK,
    THRESHOLD,
    USER,
    VERIFIED,
    VISITED,
    SocialColumns,
    SocialOutput,
    SocialScratch,
    SocialState,
    X,
    Y,
    Z,
)
from nearcast.model._kernels.profiles import LENGTH, RUN, near
from nearcast.model._kernels.profiles import X as PROFILE_X
from nearcast.model._kernels.profiles import Y as PROFILE_Y
from nearcast.social._kernels.graph import SLACK, reach, social_score, upper_bound_social, users_near

ASK_X, ASK_Y, ASK_Z, ASK_TERMS, ASK_SOCIAL = 0, 1, 2, 3, 4
_BEND = 1.0 / 24.0
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_SHORT = 2.0**-20  # more than numbers of 32 bits cost a coordinate of the frame, or a bar


@kernel
def meet_neighbours(
    state: SocialState, scratch: SocialScratch, n_met: int, stamp: int, work: NDArray[np.int64]
) -> int:
    """Find subscriptions of the users that the message's place is close to; return how many."""
    sites, users, projection = state.sites, state.users, state.projection
    marks, found, met, socials, query = scratch.marks, scratch.found, scratch.met, scratch.socials, scratch.query
    heads, lengths, items = users.heads, users.lengths, users.items
    x, y, z, n_terms = query[ASK_X], query[ASK_Y], query[ASK_Z], query[ASK_TERMS]
    bend, unit, margin = _BEND if projection.on_sphere else 0.0, projection.unit, projection.margin
    n = 0
    for i in range(n_met):
        if i + 2 * AHEAD < n_met and met[i + 2 * AHEAD] < heads.size:
            prefetch(items, heads[met[i + 2 * AHEAD]])
        if i + AHEAD < n_met and met[i + AHEAD] < heads.size and lengths[met[i + AHEAD]] > 0:
            prefetch(sites, items[heads[met[i + AHEAD]], 0])
        user = met[i]
        if user >= heads.size:
            continue
        chunk, n_items = postings_first(users, user)
        while n_items > 0:
            work[VISITED] += n_items
            for place in range(n_items):
                slot = items[chunk, place]
                dx, dy, dz = sites[slot, X] - x, sites[slot, Y] - y, sites[slot, Z] - z
                bound = upper_bound_near(dx, dy, dz, bend, unit, margin)
                own = sites[slot, N_TERMS]
                if bound + 2.0 * min(own, n_terms) / (own + n_terms) + socials[user] >= sites[slot, THRESHOLD]:
                    marks[slot] = stamp
                    found[n] = slot
                    n += 1
            chunk, n_items = postings_next(users, user, chunk)
    return n


@kernel
def meet_words(
    state: SocialState,
    batch: SocialColumns,
    scratch: SocialScratch,
    order: NDArray[np.int64],
    stamp: int,
    work: NDArray[np.int64],
    n: int,
) -> int:
    """Find subscriptions that may share enough terms; return how many there are with those before.

    Terms have one order, rising frequency. Whoever is met by its i-th term and the j-th of the message, for the first
    time, shares none before: no more than what is left of either.
    """
    sites, terms, projection = state.sites, state.terms, state.projection
    marks, found, query = scratch.marks, scratch.found, scratch.query
    items, x, y, z, n_terms = terms.items, query[ASK_X], query[ASK_Y], query[ASK_Z], query[ASK_TERMS]
    bend, unit, margin = _BEND if projection.on_sphere else 0.0, projection.unit, projection.margin
    more, width = query[ASK_SOCIAL], items.shape[1]
    for j in range(order.size):
        term = table_get(state.table, batch.term_ids[order[j]], -1)
        if term < 0:
            continue
        left = order.size - j
        chunk, n_items = postings_first(terms, term)
        while n_items > 0:
            work[VISITED] += n_items
            for place in range(n_items):
                if place + AHEAD < width:
                    prefetch(sites, items[chunk, place + AHEAD] >> REST_BITS)
                slot = items[chunk, place] >> REST_BITS
                rest = min(left, items[chunk, place] & REST_MASK)
                threshold = sites[slot, THRESHOLD]
                text = 2.0 * rest / (sites[slot, N_TERMS] + n_terms) + more
                if text + 1.0 + margin < threshold or marks[slot] == stamp:
                    continue
                dx, dy, dz = sites[slot, X] - x, sites[slot, Y] - y, sites[slot, Z] - z
                bound = upper_bound_near(dx, dy, dz, bend, unit, margin)
                if text + bound >= threshold:
                    marks[slot] = stamp
                    found[n] = slot
                    n += 1
            chunk, n_items = postings_next(terms, term, chunk)
    return n


@kernel
def meet_near(state: SocialState, scratch: SocialScratch, stamp: int, n: int) -> int:
    """Find open subscriptions that nearness alone may reach; return how many there are with those before.

    LANES of them are bounded at once, without a branch, in numbers of 32 bits; who passes is bounded again.
    """
    sites, opens, fronts, projection = state.sites, state.opens, state.fronts, state.projection
    marks, found, query, n_open = scratch.marks, scratch.found, scratch.query, state.counts[N_OPEN]
    x, y, z, more = query[ASK_X], query[ASK_Y], query[ASK_Z], query[ASK_SOCIAL]
    bend, unit, margin = _BEND if projection.on_sphere else 0.0, projection.unit, projection.margin
    x_, y_, z_, unit_, bend_ = np.float32(x), np.float32(y), np.float32(z), np.float32(unit), np.float32(bend)
    most = np.float32(more + margin + _SHORT * (1.0 + unit))
    values = np.empty(LANES, np.float32)
    for row in range((n_open + LANES - 1) >> LANE_BITS):
        front = fronts[row]
        for i in range(LANES):
            dx, dy, dz = front[i] - x_, front[LANES + i] - y_, front[2 * LANES + i] - z_
            square = dx * dx + dy * dy + dz * dz
            far = np.sqrt(square) * (_ONE + square * bend_)
            values[i] = max(_ZERO, _ONE - unit_ * far) + most - front[3 * LANES + i]
        for i in range(LANES):
            if values[i] >= _ZERO and (row << LANE_BITS) + i < n_open:
                slot = opens[(row << LANE_BITS) + i]
                dx_, dy_, dz_ = sites[slot, X] - x, sites[slot, Y] - y, sites[slot, Z] - z
                bound = upper_bound_near(dx_, dy_, dz_, bend, unit, margin)
                if bound + more >= sites[slot, THRESHOLD] and marks[slot] != stamp:
                    marks[slot] = stamp
                    found[n] = slot
                    n += 1
    return n


@kernel
def verify(
    state: SocialState,
    batch: SocialColumns,
    row: int,
    scratch: SocialScratch,
    n_found: int,
    out: SocialOutput,
    total: int,
) -> int:
    """Score candidates and write the matches; return how many there are in all. There is room for them."""
    sites, graph, projection = state.sites, state.graph, state.projection
    found, socials, most = scratch.found, scratch.socials, scratch.query[ASK_SOCIAL]
    points, heads, run_terms, term_ids = (
        state.profiles.points, state.profiles.heads, state.profiles.run_terms, batch.term_ids
    )  # fmt: skip
    start, stop, x, y = batch.indptr[row], batch.indptr[row + 1], batch.xs[row], batch.ys[row]
    stamps, stamp, counts, others = scratch.stamps, scratch.stamp[0], scratch.counts, scratch.others
    verified, is_reached, margin = 0, False, projection.margin
    for i in range(n_found):
        if i + AHEAD < n_found:
            prefetch(heads, found[i + AHEAD])
            prefetch(points, found[i + AHEAD])
        if i + AHEAD // 2 < n_found:
            prefetch(run_terms, heads[found[i + AHEAD // 2], RUN])
        slot = found[i]
        own, last, at, shared = heads[slot, RUN], heads[slot, RUN] + heads[slot, LENGTH], start, 0
        while own < last and at < stop:
            one, two = run_terms[own], term_ids[at]
            shared += one == two
            own += one <= two
            at += two <= one
        text = 2.0 * shared / (heads[slot, LENGTH] + stop - start)
        nearness = near(
            points[slot, PROFILE_X], points[slot, PROFILE_Y], x, y, projection.on_sphere, projection.max_distance
        )
        user, threshold = int(sites[slot, USER]), sites[slot, THRESHOLD]
        social = socials[user]
        if social == 0.0 and most > 0.0:
            if nearness + text + most + margin < threshold:
                continue
            if not is_reached:
                reach(graph, batch.places[row], stamps, stamp)
                is_reached = True
            bound = upper_bound_social(graph, user, stamps, stamp)
            if nearness + text + bound + margin < threshold:
                continue
            if bound > 0.0:
                social = social_score(graph, user, socials, counts, others)
        verified += 1
        score = nearness + text + social
        if score >= threshold:
            out.slots[total], out.scores[total] = slot, score
            total += 1
    out.work[CANDIDATES] += n_found
    out.work[VERIFIED] += verified
    return total


@kernel
def match_rows(
    state: SocialState,
    batch: SocialColumns,
    start: int,
    stop: int,
    first: int,
    scratch: SocialScratch,
    out: SocialOutput,
) -> int:
    """Match messages from `start` on; return where it stopped: `stop`, or a message whose matches might not fit.

    `ends[row - first]` tells where the matches of a row end.
    """
    graph, query, socials, met, order = state.graph, scratch.query, scratch.socials, scratch.met, scratch.order
    idfs, total = batch.idfs, int(out.ends[start - first - 1]) if start > first else 0
    before = np.empty(4, np.int64)
    for row in range(start, stop):
        before[:] = out.work
        base, n_terms = batch.indptr[row], batch.indptr[row + 1] - batch.indptr[row]
        for i in range(n_terms):  # by falling idf; of equal ones the least number first
            at = i
            while at > 0 and idfs[order[at - 1]] < idfs[base + i]:
                order[at] = order[at - 1]
                at -= 1
            order[at] = base + i
        place = batch.places[row]
        has_fans = place >= 0 and graph.place_indptr[place] < graph.place_indptr[place + 1]
        query[ASK_X], query[ASK_Y], query[ASK_Z] = to_frame(state.projection, batch.xs[row], batch.ys[row])
        query[ASK_TERMS], query[ASK_SOCIAL] = n_terms, SLACK if has_fans else 0.0
        scratch.stamp[0] += 1
        stamp = scratch.stamp[0]
        n_met = users_near(graph, place, socials, met)
        n = meet_neighbours(state, scratch, n_met, stamp, out.work)
        n = meet_words(state, batch, scratch, order[:n_terms], stamp, out.work, n)
        out.work[VISITED] += state.counts[N_OPEN]
        n = meet_near(state, scratch, stamp, n)
        fits = total + n <= out.slots.size
        if fits:
            total = verify(state, batch, row, scratch, n, out, total)
            out.ends[row - first] = total
        for i in range(n_met):
            socials[met[i]] = 0.0
        if not fits:
            out.work[:] = before
            return row
    return stop
