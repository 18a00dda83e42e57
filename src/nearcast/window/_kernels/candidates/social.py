"""Candidates of kind `social`: messages of places that are close in the social graph, nearby, or with its words.

    lists of places that its user is close to ────────────────┐
    lists of its terms ───────────────────────────────────────┤
    less close places, if the floor is no more than 1 + SLACK ┼── bound ── those that reach the floor ── exact scores
    all other messages, if the floor is no more than 1 ───────┘      └── as many as needed raise the floor

    rows    message -> signature of its terms, spot, place, number of terms, mark

Bounds of a piece of a list are computed at once from its spots, without a row: the list determines the place of a
message, or that it shares a term, and the spot its location and its number of terms. A message that shares no term
scores 1 at most, plus the social score of its place. A message that is on no list of places read before has a social
score of SLACK at most. Only the row of a message that may reach the floor is read, and the row is marked, since the
message may be on several lists. Its nearness and social score are a lower bound of its score, so the floor rises as
messages are noted.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch
from nearcast.model._kernels.filters import FilterArrays, MessageRows, passes
from nearcast.model._kernels.profiles import LENGTH, RUN, K, ProfileArrays, X, Y, near
from nearcast.social._kernels.graph import SLACK, GraphArrays, all_places_near
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
    MIN_CHUNK,
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
    list_length,
    tag_of,
)
from nearcast.window._kernels.lists import append_messages as append_to_lists
from nearcast.window._kernels.params import MAX_EXTRA, SPOT_BITS, SPOT_MASK, BufferParams, spot_of, to_frame
from nearcast.window._kernels.search import (
    AHEAD,
    ALL_OTHERS,
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

SIGNATURE, SPOT, PLACE, N_TERMS = 0, 1, 2, 3
"""Columns of a row."""
ROW = 4
NEXT_ROW, N_PLACES = 0, 1
"""Positions in the state of the rows: the first number without a row, and the number of known places."""
END, STAMP, N_CLOSE = 0, 1, 2
"""Positions in the state of searches: the first number without a row, the number of searches, close places."""
MAX_SHARED, EXTRA = OTHERS, ALL_OTHERS
"""Positions in a query instead of weights: how many terms may be shared, and the social score."""
FEW_MESSAGES = 256  # in the window: fewer than the lists of close places that a search would look at
CLOSE = 0.5  # places above this are read first, so that the floor is high when the others are read
MAX_SCORE = 3.0

_ZERO, _ONE, _TWO = np.float32(0.0), np.float32(1.0), np.float32(2.0)
_CUT_OFF = np.float32(MAX_EXTRA - 1)
_BIN_WIDTH = MAX_SCORE / N_BINS


class SocialArrays(NamedTuple):
    """The social graph, and the messages of a window by place."""

    graph: GraphArrays
    users: NDArray[np.int32]
    """int32 (n_slots,): the user of a subscription."""
    rows: NDArray[np.int64]
    """int64 (size of the window's rings, ROW): see the columns."""
    places: ListArrays
    """The messages of each place, by its number."""
    state: NDArray[np.int64]
    """int64 (4,): see the positions."""
    marks: NDArray[np.int64]
    """int64 (size of the window's rings,): the last search that noted each message."""
    scores: NDArray[np.float64]
    """float64 (n_places,): social scores for the user of the last search."""
    close_places: NDArray[np.int32]
    """int32 (n_places,): the places whose score is not 0."""
    counts: NDArray[np.int32]
    others: NDArray[np.int32]
    """int32 (n_users,): scratch space to find them."""


class SocialSource(NamedTuple):
    """The arrays that a search by place, location and terms reads."""

    params: BufferParams
    lists: ListArrays
    window: WindowArrays
    profiles: ProfileArrays
    social: SocialArrays
    scratch: SearchScratch
    filters: FilterArrays
    message_rows: MessageRows
    """The messages of the window as filters read them."""
    keys: KeyArrays


class SocialSearch(NamedTuple):
    """What one search looks for."""

    slot: int
    now: int
    need: int
    """How many witnesses raise the floor."""
    horizon: Horizon


class Progress(NamedTuple):
    """The state of a search."""

    n_noted: int
    floor: float
    n_collected: int
    """Messages read from lists whose rows are still to be read."""


@kernel
def count_terms(window: WindowArrays, first: int, n: int) -> int:
    """Return the number of terms of a message."""
    return int(n)


@kernel
def write_rows(
    params: BufferParams,
    window: WindowArrays,
    signatures: NDArray[np.int64],
    rows: NDArray[np.int64],
    start: int,
    places: NDArray[np.int32],
) -> None:
    """Write the rows of messages from `start` on, given their places."""
    mask = window.xs.size - 1
    for i in range(places.size):
        at = (start + i) & mask
        n_terms = int(window.n_terms[at])
        rows[at, SIGNATURE], rows[at, PLACE], rows[at, N_TERMS] = signatures[at], places[i], n_terms
        rows[at, SPOT] = spot_of(params, window.xs[at], window.ys[at], n_terms)


@kernel
def append_places(lists: ListArrays, rows: NDArray[np.int64], start: int, stop: int) -> int:
    """Append messages to the lists of their places; return the first number for which there was no room."""
    buckets, items, spots, state = lists.buckets, lists.items, lists.spots, lists.state
    base, mask, room = lists.counts[BASE], rows.shape[0] - 1, MIN_CHUNK << (N_CLASSES - 1)
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
def drop_places(lists: ListArrays, rows: NDArray[np.int64], leaving: NDArray[np.int64], horizon: Horizon) -> None:
    """Remove expired messages from the lists of their places, as far as they are at the head."""
    for number in leaving:
        place = rows[number & (rows.shape[0] - 1), PLACE]
        if place >= 0:
            drop_front(lists, bucket_of(lists.buckets.shape[0], place), horizon)


@kernel
def _aim(params: BufferParams, profiles: ProfileArrays, slot: int, query: NDArray[np.float32]) -> None:
    """Write the part of the query that is the same for all lists."""
    px, py, pz = to_frame(params.on_sphere, profiles.points[slot, X], profiles.points[slot, Y])
    query[AT_X], query[AT_Y], query[AT_Z], query[UNIT] = params.x0 - px, params.y0 - py, params.z0 - pz, params.unit
    query[LOST], query[MARGIN] = params.near_per_unit, params.margin + ROUNDING
    query[OWN] = query[MAX_SHARED] = profiles.heads[slot, LENGTH]
    query[BEND] = 1.0 / 24.0 if params.on_sphere else 0.0  # the arc is longer than this


@kernel
def _bound_piece(
    spots: NDArray[np.int64], start: int, stop: int, query: NDArray[np.float32], values: NDArray[np.float32]
) -> None:
    """Write the bounds of a piece of a list; there is no branch, so the loop is vectorised."""
    x, y, z, unit, lost, bend = query[AT_X], query[AT_Y], query[AT_Z], query[UNIT], query[LOST], query[BEND]
    own, most_shared, extra, margin = query[OWN], query[MAX_SHARED], query[EXTRA], query[MARGIN]
    here = spots[start:stop]
    for i in range(stop - start):
        spot = here[i]
        dx = x + np.float32(np.int32(spot & SPOT_MASK)) * unit
        dy = y + np.float32(np.int32((spot >> SPOT_BITS) & SPOT_MASK)) * unit
        dz = z + np.float32(np.int32((spot >> 2 * SPOT_BITS) & SPOT_MASK)) * unit
        square = dx * dx + dy * dy + dz * dz
        far = np.sqrt(square) * (_ONE + square * bend)
        n_terms = np.float32(np.int32(spot >> 3 * SPOT_BITS)) - _ONE  # a lower bound where the bits end
        shared = most_shared if n_terms >= _CUT_OFF else min(most_shared, n_terms)
        values[i] = max(_ZERO, _ONE - lost * far) + _TWO * shared / (own + n_terms) + extra + margin


@kernel
def _collect(
    lists: ListArrays, key: int, place: int, floor: float, horizon: Horizon, scratch: SearchScratch, n: int
) -> int:
    """Collect the messages of one list whose bound reaches the floor; return how many are collected in total.

    `place` is the place that the messages must come from, or -1.
    """
    items, spots, buckets, base = lists.items, lists.spots, lists.buckets, lists.counts[BASE]
    values, query = scratch.values, scratch.query
    numbers, bounds, places = scratch.pending, scratch.scores, scratch.found
    first, keys, horizon_key, in_order = horizon.first, horizon.keys, horizon.key, horizon.in_order
    bucket, tag = bucket_of(buckets.shape[0], key), tag_of(key)
    chunk, at = buckets[bucket, HEAD], buckets[bucket, EDGES] & EDGE_MASK
    tail, end = buckets[bucket, TAIL], buckets[bucket, EDGES] >> EDGE_BITS
    while chunk >= 0:
        stop = end if chunk == tail else MIN_CHUNK << (items[chunk] >> NEXT_BITS)
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
            reaches = values[i] >= floor and (posting >> WEIGHT_BITS) & TAG_MASK == tag and number >= first
            n += reaches and (in_order or keys[number & (keys.size - 1)] > horizon_key)
        chunk, at = after, 1
    return n


@kernel
def _note(source: SocialSource, search: SocialSearch, progress: Progress) -> Progress:
    """Note the collected messages that may reach the floor, each once, and raise the floor.

    A message that was collected for a place and comes from another is skipped: it is on a list of its own. All arrays
    are local variables, and one call handles many messages: passing tuples of arrays costs more than a message.
    """
    params, social, scratch, n, floor = source.params, source.social, source.scratch, progress.n_noted, progress.floor
    rows, marks, scores, stamp = social.rows, social.marks, social.scores, social.state[STAMP]
    mask = rows.shape[0] - 1
    bins, counts, bits, query = scratch.bins, scratch.counts, scratch.bits, scratch.query
    collected, collected_bounds, collected_places = scratch.pending, scratch.scores, scratch.found
    bounds, numbers, n_collected, now, need = (
        scratch.bounds,
        scratch.numbers,
        progress.n_collected,
        search.now,
        search.need,
    )
    px, py, pz, unit = float(query[AT_X]), float(query[AT_Y]), float(query[AT_Z]), params.unit
    lost, margin, on_sphere, n_own = params.near_per_unit, params.margin + ROUNDING, params.on_sphere, int(query[OWN])
    counts[SCANNED] += n_collected
    for i in range(n_collected):
        if i + AHEAD < n_collected:
            prefetch(rows, collected[i + AHEAD] & mask)
        if collected_bounds[i] < floor:
            continue
        number = collected[i]
        at = number & mask
        place, n_terms, signature, spot = rows[at, PLACE], rows[at, N_TERMS], rows[at, SIGNATURE], rows[at, SPOT]
        if collected_places[i] >= 0 and place != collected_places[i]:
            continue
        dx = px + (spot & SPOT_MASK) * unit
        dy = py + ((spot >> SPOT_BITS) & SPOT_MASK) * unit
        dz = pz + ((spot >> 2 * SPOT_BITS) & SPOT_MASK) * unit
        far = sqrt(dx * dx + dy * dy + dz * dz)
        bend = far * far if on_sphere else 0.0
        n_shared = 0
        for j in range(n_own):
            n_shared += (signature >> bits[j]) & 1
        closeness = scores[place] if place >= 0 else 0.0
        bound = max(0.0, 1.0 - lost * far * (1.0 + bend * (1.0 / 24.0))) + closeness + margin
        bound += 2.0 * min(n_shared, n_terms) / (n_own + n_terms)
        if bound < floor or marks[at] == stamp:
            continue
        marks[at] = stamp
        if not passes(source.filters, search.slot, source.message_rows, number):
            continue
        bounds[n], numbers[n] = np.float32(bound), number
        n += 1
        if number <= now:
            least = max(0.0, 1.0 - lost * (far * (1.0 + bend * (1.0 / 24.0 + bend * MAX_BEND)) + unit)) + closeness
            level = int((least - ROUNDING) * (N_BINS / MAX_SCORE))
            if level >= counts[CUT]:
                bins[min(N_BINS - 1, level)] += 1
                counts[WITNESSED] += 1
                if counts[WITNESSED] - bins[counts[CUT]] >= need:
                    floor = raise_floor(params, bins, counts, need, floor, _BIN_WIDTH)
    return Progress(n, floor, 0)


@kernel
def _score(source: SocialSource, slot: int, n_chosen: int, floor: float, need: int) -> int:
    """Score the chosen messages exactly as the reference does; return how many reach the floor, which may rise."""
    params, window, profiles, scratch = source.params, source.window, source.profiles, source.scratch
    xs, ys, term_starts, term_ids = window.xs, window.ys, window.term_starts, window.term_ids
    rows, social_scores, run_terms = source.social.rows, source.social.scores, profiles.run_terms
    scores, found, chosen, numbers = scratch.scores, scratch.found, scratch.chosen, scratch.numbers
    x, y, run, n_own = (
        profiles.points[slot, X], profiles.points[slot, Y], profiles.heads[slot, RUN], profiles.heads[slot, LENGTH]
    )  # fmt: skip
    mask, lane, n_found = xs.size - 1, term_ids.size - 1, 0
    bounds, bins, counts = scratch.bounds, scratch.bins, scratch.counts
    begin_floor(scratch)
    for i in range(n_chosen):
        if bounds[chosen[i]] < floor:
            if n_chosen > FEW and bounds[chosen[i]] + _BIN_WIDTH < floor:
                break  # they are sorted by bins
            continue
        counts[SCORED] += 1
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
            score += social_scores[place]
        if score >= floor:
            scores[n_found], found[n_found] = score, number
            n_found += 1
            floor = raise_by_score(source.params, bins, counts, need, floor, score, _BIN_WIDTH)
    return n_found


@kernel
def _prepare(source: SocialSource, slot: int) -> int:
    """Compute the social scores of all places and the query of a subscription; return how many messages it needs."""
    social, profiles, scratch = source.social, source.profiles, source.scratch
    state, scores, close_places = social.state, social.scores, social.close_places
    for i in range(state[N_CLOSE]):
        scores[close_places[i]] = 0.0
    state[N_CLOSE] = all_places_near(
        social.graph, social.users[slot], scores, close_places, social.counts, social.others
    )
    state[STAMP] += 1
    sort_terms(source.lists, profiles, slot, scratch.order)
    for j in range(profiles.heads[slot, LENGTH]):
        scratch.bits[j] = signature_bit(profiles.run_terms[scratch.order[j]])
    scratch.bins[:], scratch.counts[WITNESSED], scratch.counts[CUT] = 0, 0, 0
    _aim(source.params, profiles, slot, scratch.query)
    return target_size(source.params, int(profiles.heads[slot, K]), count_postings(source.lists, profiles, slot))


@kernel
def _note_places(
    source: SocialSource, search: SocialSearch, least: float, most: float, progress: Progress
) -> Progress:
    """Collect and note the messages of places whose social score is above `least` and at most `most`."""
    social, scratch = source.social, source.scratch
    for i in range(social.state[N_CLOSE]):
        place = int(social.close_places[i])
        if least < social.scores[place] <= most:
            scratch.query[EXTRA] = social.scores[place]
            if progress.n_collected + list_length(social.places, place) > scratch.pending.size:
                progress = _note(source, search, progress)
            n_noted, floor, n = progress.n_noted, progress.floor, progress.n_collected
            n = _collect(social.places, place, place, floor, search.horizon, scratch, n)
            progress = Progress(n_noted, floor, n)
    return _note(source, search, progress)


@kernel
def _note_terms(source: SocialSource, search: SocialSearch, progress: Progress) -> Progress:
    """Collect and note the messages that share a term; their places have a social score of SLACK at most."""
    lists, profiles, scratch = source.lists, source.profiles, source.scratch
    n_own = profiles.heads[search.slot, LENGTH]
    for j in range(n_own):
        scratch.query[MAX_SHARED], scratch.query[EXTRA] = n_own - j, SLACK
        term = profiles.run_terms[scratch.order[j]]
        if progress.n_collected + list_length(lists, term) > scratch.pending.size:
            progress = _note(source, search, progress)
        n_noted, floor, n = progress.n_noted, progress.floor, progress.n_collected
        progress = Progress(n_noted, floor, _collect(lists, term, -1, floor, search.horizon, scratch, n))
    return _note(source, search, progress)


@kernel
def _note_all(source: SocialSource, search: SocialSearch, progress: Progress) -> Progress:
    """Note all messages of the window."""
    scratch, n = source.scratch, 0
    for number in range(search.horizon.first, source.social.state[END]):
        scratch.pending[n], scratch.scores[n], scratch.found[n] = number, np.inf, -1
        n += not is_dead(search.horizon, number)
    return _note(source, search, Progress(progress.n_noted, progress.floor, n))


@kernel
def search_social(source: SocialSource, slot: int, now: int, horizon: Horizon) -> tuple[int, float, int]:
    """Find the best messages up to `now`; see `SourceKernels.search`."""
    scratch, slack = source.scratch, 2.0 * (source.params.margin + ROUNDING)
    need = _prepare(source, slot)
    search = SocialSearch(slot, now, need, horizon)
    option, _ = find_option(source.keys, slot, (source.social.state[END] - horizon.first) // COST)
    if option >= 0:
        n = note_option(source.keys, option, slot, horizon, source.filters, source.message_rows, scratch)
        return _choose(source, search, Progress(n, -np.inf, 0))
    if source.social.state[END] - horizon.first <= FEW_MESSAGES:  # such as after a silence
        return _choose(source, search, _note_all(source, search, Progress(0, -np.inf, 0)))
    progress = _note_places(source, search, CLOSE, np.inf, Progress(0, -np.inf, 0))
    progress = _note_places(source, search, SLACK, CLOSE, progress)
    progress = _note_terms(source, search, progress)
    scratch.query[MAX_SHARED] = 0  # a message that shares a term was on a term list, where SLACK is accounted for
    progress = _note_places(source, search, max(0.0, progress.floor - 1.0 - slack), SLACK, progress)
    if progress.floor <= 1.0 + slack:
        progress = _note_all(source, search, progress)
    return _choose(source, search, progress)


@kernel
def _choose(source: SocialSource, search: SocialSearch, progress: Progress) -> tuple[int, float, int]:
    """Score the noted messages and choose the best; see `SourceKernels.search`."""
    scratch, slot = source.scratch, search.slot
    n_chosen, n_pending = split_noted(scratch, progress.n_noted, progress.floor, search.now, _BIN_WIDTH)
    n_found = _score(source, slot, n_chosen, progress.floor, search.need)
    sort_found(scratch.scores, scratch.found, n_found)
    theta = theta_of(source.params, int(source.profiles.heads[slot, K]), search.need, scratch.scores, n_found)
    return cut_below(scratch.scores, n_found, theta), theta, n_pending


@kernel
def score_pending_social(source: SocialSource, slot: int, n_pending: int, floor: float, ceiling: float) -> int:
    """Score messages that arrive later; see `SourceKernels.score_pending`."""
    n_chosen = choose_pending(source.scratch, n_pending, floor)
    return drop_from(source.scratch, _score(source, slot, n_chosen, floor, 0), ceiling)


@kernel
def max_noted_social(source: SocialSource, slot: int) -> int:
    """Return an upper bound of the messages that a search notes: all of the window."""
    return int(source.social.rows.shape[0])


@kernel
def append_messages(params: BufferParams, lists: ListArrays, window: WindowArrays, start: int, stop: int) -> int:
    """Append messages to term lists; see `lists.append_messages`."""
    return append_to_lists(params, lists, window, start, stop, count_terms)


@kernel
def begin(
    context: BufferContext, slots: NDArray[np.int32], start: int, now: int, horizon: Horizon, changes: ChangeBuffer
) -> tuple[int, int]:
    """Start buffers; see `buffers.begin`."""
    kernels = SourceKernels(search_social, score_pending_social, max_noted_social)
    return begin_buffers(context, kernels, slots, start, now, horizon, changes)


@kernel
def publish(context: BufferContext, batch: BatchSteps, changes: ChangeBuffer, pending: PendingArrivals) -> int:
    """Publish a batch; see `buffers.publish`."""
    kernels = SourceKernels(search_social, score_pending_social, max_noted_social)
    return publish_buffers(context, kernels, batch, changes, pending)
