"""Matching of messages against subscriptions of kind `social`: collect candidates in three ways, then verify them.

A subscription that none of the ways finds is out of reach: outside the neighbourhood of the place the graph
contributes SLACK at most, and without shared terms nearness must contribute the rest. A mark ensures that each
candidate is found once; it is verified with the score of the reference.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import PostingArrays, kernel, postings_first, postings_next, prefetch, table_get
from nearcast.index._kernels.shared.output import CANDIDATES, VERIFIED, VISITED, MatchOutput
from nearcast.index._kernels.shared.projection import (
    BEND,
    BEND_MORE,
    Projection,
    to_frame,
    upper_bound_near,
    upper_bound_near_f32,
)
from nearcast.index._kernels.shared.term_order import order_by_weight
from nearcast.index._kernels.social.change import facet_user_key
from nearcast.index._kernels.social.layout import (
    AHEAD,
    LANES,
    N_TERMS,
    QUERY_SOCIAL,
    QUERY_TERMS,
    QUERY_X,
    QUERY_Y,
    QUERY_Z,
    REST_BITS,
    REST_MASK,
    THRESHOLD,
    USER,
    SocialColumns,
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

_ZERO = np.float32(0.0)
_ERROR_F32 = 2.0**-20  # more than rounding to float32 costs a coordinate of the frame or a threshold


class SiteBound(NamedTuple):
    """The point of a message and the constants of the bound of nearness to a site."""

    x: float
    y: float
    z: float
    bend: float
    unit: float
    margin: float


@kernel
def site_bound(projection: Projection, query: NDArray[np.float64]) -> SiteBound:
    """Return what `near_site` needs of a message."""
    bend = BEND if projection.on_sphere else 0.0
    return SiteBound(query[QUERY_X], query[QUERY_Y], query[QUERY_Z], bend, projection.unit, projection.margin)


@kernel
def near_site(bound: SiteBound, sites: NDArray[np.float64], slot: int) -> float:
    """Return the nearness of a message to a site; never underestimates."""
    dx, dy, dz = sites[slot, X] - bound.x, sites[slot, Y] - bound.y, sites[slot, Z] - bound.z
    return upper_bound_near(dx, dy, dz, bound.bend, bound.unit, bound.margin)


@kernel
def collect_by_graph(state: SocialState, scratch: SocialScratch, n_users: int, work: NDArray[np.int64]) -> int:
    """Find subscriptions of the users near the message's place in the graph; return the number of candidates."""
    users, near_users, socials, n = state.users, scratch.near_users, scratch.socials, 0
    heads, lengths, items, sites = users.heads, users.lengths, users.items, state.sites
    for i in range(n_users):
        if i + 2 * AHEAD < n_users and near_users[i + 2 * AHEAD] < heads.size:
            prefetch(items, heads[near_users[i + 2 * AHEAD]])
        if i + AHEAD < n_users and near_users[i + AHEAD] < heads.size and lengths[near_users[i + AHEAD]] > 0:
            prefetch(sites, items[heads[near_users[i + AHEAD]], 0])
        user = near_users[i]
        if user < heads.size:
            n = collect_of_user(state, users, user, scratch, socials[user], work, n)
    return n


@kernel
def collect_by_graph_and_facet(
    state: SocialState, scratch: SocialScratch, n_users: int, facet: int, work: NDArray[np.int64]
) -> int:
    """Find subscriptions with a facet, as `collect_by_graph` does those without; return the number of candidates."""
    n = 0
    for i in range(n_users):
        user = scratch.near_users[i]
        row = table_get(state.facet_table, facet_user_key(facet, user), -1)
        if row >= 0:
            n = collect_of_user(state, state.facet_users, row, scratch, scratch.socials[user], work, n)
    return n


@kernel
def collect_of_user(
    state: SocialState,
    users: PostingArrays,
    row: int,
    scratch: SocialScratch,
    social: float,
    work: NDArray[np.int64],
    n: int,
) -> int:
    """Append subscriptions of a user with a social score to the `n` candidates; return their number."""
    sites, marks, found, stamp = state.sites, scratch.marks, scratch.found, scratch.stamp[0]
    bound, n_terms = site_bound(state.projection, scratch.query), scratch.query[QUERY_TERMS]
    chunk, n_items = postings_first(users, row)
    while n_items > 0:
        work[VISITED] += n_items
        for place in range(n_items):
            slot = users.items[chunk, place]
            own = sites[slot, N_TERMS]
            text = 2.0 * min(own, n_terms) / (own + n_terms)
            if near_site(bound, sites, slot) + text + social >= sites[slot, THRESHOLD]:
                marks[slot] = stamp
                found[n] = slot
                n += 1
        chunk, n_items = postings_next(users, row, chunk)
    return n


@kernel
def collect_by_terms(
    state: SocialState,
    batch: SocialColumns,
    scratch: SocialScratch,
    order: NDArray[np.int64],
    work: NDArray[np.int64],
    n: int,
) -> int:
    """Append subscriptions that may share enough terms to the `n` candidates; return their number.

    Terms have one order, rising frequency. A subscription found first by its i-th term and the j-th term of the
    message shares none before these, so it shares at most what remains of either.
    """
    sites, terms, items = state.sites, state.terms, state.terms.items
    marks, found, query, stamp = scratch.marks, scratch.found, scratch.query, scratch.stamp[0]
    bound, n_terms = site_bound(state.projection, query), query[QUERY_TERMS]
    social, margin, width = query[QUERY_SOCIAL], state.projection.margin, items.shape[1]
    for j in range(order.size):
        term = table_get(state.table, batch.term_ids[order[j]], -1)
        if term < 0:
            continue
        n_left = order.size - j
        chunk, n_items = postings_first(terms, term)
        while n_items > 0:
            work[VISITED] += n_items
            for place in range(n_items):
                if place + AHEAD < width:
                    prefetch(sites, items[chunk, place + AHEAD] >> REST_BITS)
                slot = items[chunk, place] >> REST_BITS
                rest = min(n_left, items[chunk, place] & REST_MASK)
                threshold = sites[slot, THRESHOLD]
                text = 2.0 * rest / (sites[slot, N_TERMS] + n_terms) + social
                if text + 1.0 + margin < threshold or marks[slot] == stamp:
                    continue
                if text + near_site(bound, sites, slot) >= threshold:
                    marks[slot] = stamp
                    found[n] = slot
                    n += 1
            chunk, n_items = postings_next(terms, term, chunk)
    return n


@kernel(allocates=True)
def collect_by_nearness(
    state: SocialState, scratch: SocialScratch, facet: int, work: NDArray[np.int64], n: int
) -> int:
    """Append open subscriptions that nearness alone may reach to the `n` candidates; return their number.

    LANES of them are bounded at once, without branches, in float32; those that pass are bounded again in float64.
    """
    sites, open_slots, open_lanes = state.sites, state.open_slots, state.open_lanes
    marks, found, stamp = scratch.marks, scratch.found, scratch.stamp[0]
    bound, social = site_bound(state.projection, scratch.query), scratch.query[QUERY_SOCIAL]
    x, y, z = np.float32(bound.x), np.float32(bound.y), np.float32(bound.z)
    unit, bend = np.float32(bound.unit), np.float32(bound.bend)
    bend_more = np.float32(BEND_MORE if state.projection.on_sphere else 0.0)
    extra = np.float32(social + bound.margin + _ERROR_F32 * (1.0 + bound.unit))
    values = np.empty(LANES, np.float32)
    work[VISITED] += open_slots.lengths[facet]
    chunk, n_items = postings_first(open_slots, facet)
    while n_items > 0:
        lanes = open_lanes[chunk]
        for i in range(LANES):
            dx, dy, dz = lanes[i] - x, lanes[LANES + i] - y, lanes[2 * LANES + i] - z
            most_near = upper_bound_near_f32(dx * dx + dy * dy + dz * dz, unit, bend, bend_more)
            values[i] = most_near + extra - lanes[3 * LANES + i]
        for i in range(n_items):
            if values[i] >= _ZERO:
                slot = open_slots.items[chunk, i]
                if near_site(bound, sites, slot) + social >= sites[slot, THRESHOLD] and marks[slot] != stamp:
                    marks[slot] = stamp
                    found[n] = slot
                    n += 1
        chunk, n_items = postings_next(open_slots, facet, chunk)
    return n


@kernel
def n_shared_terms(
    run_terms: NDArray[np.int64],
    run: int,
    run_stop: int,
    term_ids: NDArray[np.int64],
    start: int,
    stop: int,
    value: int,
) -> int:
    """Return how many terms two ascending runs share, of which the second is combined with a facet value."""
    n = 0
    while run < run_stop and start < stop:
        one, other = run_terms[run], term_ids[start] ^ value
        n += one == other
        run += one <= other
        start += other <= one
    return n


@kernel
def verify(
    state: SocialState,
    batch: SocialColumns,
    row: int,
    scratch: SocialScratch,
    n_found: int,
    out: MatchOutput,
    total: int,
) -> int:
    """Score candidates and append the matches to the output, which must have room; return its length.

    The graph is searched for a user outside the neighbourhood of the place only where that can decide.
    """
    sites, graph, projection = state.sites, state.graph, state.projection
    found, socials, most = scratch.found, scratch.socials, scratch.query[QUERY_SOCIAL]
    points, heads, run_terms = state.profiles.points, state.profiles.heads, state.profiles.run_terms
    start, stop, x, y = batch.indptr[row], batch.indptr[row + 1], batch.xs[row], batch.ys[row]
    stamps, stamp, counts, others = scratch.stamps, scratch.stamp[0], scratch.counts, scratch.others
    on_sphere, max_distance, margin = projection.on_sphere, projection.max_distance, projection.margin
    value, verified, is_reached = state.facet_values[batch.facets[row]], 0, False
    for i in range(n_found):
        if i + AHEAD < n_found:
            prefetch(heads, found[i + AHEAD])
            prefetch(points, found[i + AHEAD])
        if i + AHEAD // 2 < n_found:
            prefetch(run_terms, heads[found[i + AHEAD // 2], RUN])
        slot = found[i]
        run, length = heads[slot, RUN], heads[slot, LENGTH]
        n_shared = n_shared_terms(run_terms, run, run + length, batch.term_ids, start, stop, value)
        text = 2.0 * n_shared / (length + stop - start)
        nearness = near(points[slot, PROFILE_X], points[slot, PROFILE_Y], x, y, on_sphere, max_distance)
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
def load_message(state: SocialState, batch: SocialColumns, row: int, scratch: SocialScratch) -> tuple[int, int]:
    """Set up a message: its terms in order, its query and its social scores; return its terms and near users."""
    graph, query, base = state.graph, scratch.query, batch.indptr[row]
    n_terms, place = batch.indptr[row + 1] - base, batch.places[row]
    order_by_weight(batch.idfs, base, base + n_terms, scratch.order)
    has_users = place >= 0 and graph.place_indptr[place] < graph.place_indptr[place + 1]
    query[QUERY_X], query[QUERY_Y], query[QUERY_Z] = to_frame(state.projection, batch.xs[row], batch.ys[row])
    query[QUERY_TERMS], query[QUERY_SOCIAL] = n_terms, SLACK if has_users else 0.0
    scratch.stamp[0] += 1
    return n_terms, users_near(graph, place, scratch.socials, scratch.near_users)


@kernel(allocates=True)
def match_rows(
    state: SocialState,
    batch: SocialColumns,
    start: int,
    stop: int,
    first: int,
    scratch: SocialScratch,
    out: MatchOutput,
) -> int:
    """Match messages from row `start` on; return the row whose candidates do not fit, or `stop`.

    `out.ends[row - first]` is the end of the matches of a row.
    """
    total = int(out.ends[start - first - 1]) if start > first else 0
    before = np.empty(4, np.int64)
    for row in range(start, stop):
        facet = batch.facets[row]
        if facet < 0:
            out.ends[row - first] = total
            continue
        before[:] = out.work
        n_terms, n_users = load_message(state, batch, row, scratch)
        if facet == 0:
            n = collect_by_graph(state, scratch, n_users, out.work)
        else:
            n = collect_by_graph_and_facet(state, scratch, n_users, facet, out.work)
        n = collect_by_terms(state, batch, scratch, scratch.order[:n_terms], out.work, n)
        n = collect_by_nearness(state, scratch, facet, out.work, n)
        fits = total + n <= out.slots.size
        if fits:
            total = verify(state, batch, row, scratch, n, out, total)
            out.ends[row - first] = total
        for i in range(n_users):
            scratch.socials[scratch.near_users[i]] = 0.0
        if not fits:
            out.work[:] = before
            return row
    return stop
