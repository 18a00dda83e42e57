"""Shared parts of all searches of the window: scratch space, term signatures, ordering, and the choice of theta.

A search reads lists, bounds each posting, and scores the few messages whose bound reaches a floor. Witnesses are
messages whose score has a known lower bound; a histogram of these bounds raises the floor to the score that as many
witnesses reach as the buffer needs. Messages are scored in the order of their bounds, and their scores raise the
floor further, so those whose bound is below what is found are not scored. Theta is the least score that the buffer
must hold afterwards (Skype, section 6).
"""

from __future__ import annotations

from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, mix
from nearcast.model._kernels.profiles import LENGTH, RUN, ProfileArrays
from nearcast.window._kernels.lists import MIN_CHUNK, N_CLASSES, ListArrays, list_length
from nearcast.window._kernels.params import BOUNDED, FACTOR, BufferParams
from nearcast.window.store import WindowArrays

N_BINS = 1024
AHEAD = 16  # postings whose messages are prefetched
FEW = 64  # noted postings that are scored in any order
PIECE = MIN_CHUNK << (N_CLASSES - 1)
ROUNDING = 2.0**-18  # more than 32-bit arithmetic can change a bound
MAX_BEND = 0.0254  # an arc of chord c is at most c + c**3 / 24 + this * c**5

SCANNED, SCORED, N_PENDING, WITNESSED, CUT, N_RETRIES = 0, 1, 2, 3, 4, 5
"""Positions in the counts of the scratch: postings read, messages scored, messages of the batch that arrive later,
witnesses at or above the cut, the cut of the histogram, searches repeated without a floor."""
AT_X, AT_Y, AT_Z, UNIT, AT_ALPHA, LOST, OWN, OTHERS, ALL_OTHERS, MARGIN, BEND = range(11)
"""Positions in a query: the point, a step of the grid, alpha, nearness lost per unit of the frame, weights of the
term and of the other terms times 1 - alpha, the margin, the curvature."""

NS_PER_PLACE, NS_PER_BUFFER, NS_PER_SEARCH, NS_PER_POSTING, NS_PER_FOUND = 0.5, 150.0, 20_000.0, 8.0, 400.0
"""Costs in nanoseconds: a place of a buffer, access to a buffer, a search, a posting that it reads, and
each message that it finds, scores, sorts and writes beyond the first few, which a search includes."""
UNDERFLOW_RATE = 2.0
"""How many times as often as the random walk predicts a buffer is assumed to run short: expiry follows arrival."""


class SearchScratch(NamedTuple):
    """Scratch space of a search."""

    bounds: NDArray[np.float32]
    """float32 (n,): the bound of each noted posting."""
    numbers: NDArray[np.int64]
    """int64 (n,): its message."""
    firsts: NDArray[np.int16]
    """int16 (n,): the term of the subscription that it stands for."""
    bins: NDArray[np.int32]
    """int32 (N_BINS,): witnesses by the lower bound of their score."""
    query: NDArray[np.float32]
    """float32 (16,): the query of one list; see the positions."""
    values: NDArray[np.float32]
    """float32 (PIECE,): bounds of a piece of a list."""
    scores: NDArray[np.float64]
    """float64 (n + 1,): scores found, best first."""
    found: NDArray[np.int64]
    """int64 (n + 1,): their messages."""
    pending: NDArray[np.int64]
    """int64 (n,): positions of noted postings whose messages arrive later in the batch."""
    chosen: NDArray[np.int64]
    """int64 (n,): positions of noted postings whose messages are to be scored."""
    order: NDArray[np.int64]
    """int64 (n_terms,): terms of the subscription, those on the shortest lists first."""
    bits: NDArray[np.int64]
    """int64 (n_terms,): the signature bits of these terms."""
    queued: NDArray[np.int32]
    """int32 (n,): subscriptions in the queue of an expiring message."""
    counts: NDArray[np.int64]
    """int64 (8,): see the positions."""


@kernel
def signature_bit(term: int) -> int:
    """Return which of 63 bits represents a term in a signature."""
    return (mix(term) >> 32) % 63


@kernel
def sign_messages(window: WindowArrays, signatures: NDArray[np.int64], start: int, stop: int) -> None:
    """Write the signatures of messages: the union of the bits of their terms."""
    mask, lane = window.xs.size - 1, window.term_ids.size - 1
    for number in range(start, stop):
        place = number & mask
        first, signature = window.term_starts[place] & lane, 0
        for i in range(first, first + window.n_terms[place]):
            signature |= 1 << signature_bit(window.term_ids[i])
        signatures[place] = signature


@kernel
def count_postings(lists: ListArrays, profiles: ProfileArrays, slot: int) -> int:
    """Return the number of postings on the lists of a subscription."""
    total, run = 0, profiles.heads[slot, RUN]
    for i in range(run, run + profiles.heads[slot, LENGTH]):
        total += list_length(lists, profiles.run_terms[i])
    return total


@kernel
def sort_terms(lists: ListArrays, profiles: ProfileArrays, slot: int, order: NDArray[np.int64]) -> None:
    """Write the terms of a subscription, those on the shortest lists first."""
    run, n = profiles.heads[slot, RUN], profiles.heads[slot, LENGTH]
    for i in range(n):
        length = list_length(lists, profiles.run_terms[run + i])
        at = i
        while at > 0:
            if list_length(lists, profiles.run_terms[order[at - 1]]) <= length:
                break
            order[at] = order[at - 1]
            at -= 1
        order[at] = run + i


@kernel
def split_noted(scratch: SearchScratch, n: int, floor: float, now: int, width: float) -> tuple[int, int]:
    """Split noted postings that reach the floor into those up to `now` and those that arrive later; return counts.

    Those up to `now` are sorted by their bounds, the greatest first, as far as these differ by the width of a bin.
    """
    bounds, numbers, chosen, starts = scratch.bounds, scratch.numbers, scratch.chosen, scratch.bins
    n_chosen, n_pending, per_bin, sorts = 0, 0, 1.0 / width, n > FEW
    starts[:] = 0
    for i in range(n):
        if bounds[i] < floor:
            continue
        if numbers[i] > now:
            scratch.pending[n_pending] = i
            n_pending += 1
        else:
            chosen[n_chosen] = i
            n_chosen += 1
            if sorts:
                starts[bin_of(bounds[i], per_bin)] += 1
    if sorts:
        total = 0
        for i in range(N_BINS - 1, -1, -1):
            total += starts[i]
            starts[i] = total - starts[i]
        for i in range(n):
            if bounds[i] >= floor and numbers[i] <= now:
                at = bin_of(bounds[i], per_bin)
                chosen[starts[at]] = i
                starts[at] += 1
    return n_chosen, n_pending


@kernel(inline=True)
def bin_of(value: float, per_bin: float) -> int:
    """Return the bin of a score or a bound."""
    return int(max(0.0, min(N_BINS - 1.0, value * per_bin)))


@kernel
def begin_floor(scratch: SearchScratch) -> None:
    """Forget all witnesses, so that exact scores raise the floor from now on."""
    scratch.bins[:], scratch.counts[WITNESSED], scratch.counts[CUT] = 0, 0, 0


@kernel
def choose_pending(scratch: SearchScratch, n_pending: int, floor: float) -> int:
    """Choose the pending postings whose bound reaches the floor; return their count."""
    n_chosen = 0
    for i in range(n_pending):
        if scratch.bounds[scratch.pending[i]] >= floor:
            scratch.chosen[n_chosen] = scratch.pending[i]
            n_chosen += 1
    return n_chosen


@kernel
def drop_from(scratch: SearchScratch, n_found: int, ceiling: float) -> int:
    """Drop the found messages that score the ceiling or more; return how many remain."""
    n = 0
    for i in range(n_found):
        if scratch.scores[i] < ceiling:
            scratch.scores[n], scratch.found[n] = scratch.scores[i], scratch.found[i]
            n += 1
    return n


@kernel
def _is_worse(scores: NDArray[np.float64], numbers: NDArray[np.int64], a: int, b: int) -> bool:
    return bool(scores[a] < scores[b] or (scores[a] == scores[b] and numbers[a] < numbers[b]))


@kernel
def sort_found(scores: NDArray[np.float64], numbers: NDArray[np.int64], n: int) -> None:
    """Sort found messages, best first; of equal scores the newest first."""
    # A heap sort: the worst is at the root and moves to the end.
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
def target_size(params: BufferParams, k: int, n_postings: int) -> int:
    """Return how many messages a buffer should start with: the n of least cost (Skype, equations 9 to 13).

    With n messages of the window at or above theta, prob(theta) is n over the size of the window, which cancels out
    of the comparison. Holding them costs prob(theta) times the length of a k-skyband and a memory access; they run
    out after the time that a random walk takes from n down to k - 1, and a new search costs as many postings as there
    are to read.
    """
    if params.policy == BOUNDED:
        return max(k, int(k * params.factor))
    if params.policy == FACTOR:
        return k
    best, best_cost, n, step = k, np.inf, k, max(1, k // 8)
    while n <= 4 * k + 8:
        hold = n * (k * (1.0 + log(n / k)) * NS_PER_PLACE + NS_PER_BUFFER)
        search_ns = NS_PER_SEARCH + NS_PER_POSTING * n_postings + NS_PER_FOUND * max(0, n - FEW)
        search = UNDERFLOW_RATE * search_ns * n / ((n - k + 1.0) * (3.0 * n - k + 2.0))
        if hold + search > best_cost:
            break
        best, best_cost = n, hold + search
        n += step
    return best


@kernel
def raise_floor(
    params: BufferParams, bins: NDArray[np.int32], counts: NDArray[np.int64], need: int, floor: float, width: float
) -> float:
    """Raise the floor to what `need` witnesses reach, given the width of a bin; requires that many witnesses."""
    cut, above = counts[CUT], counts[WITNESSED]
    while above - bins[cut] >= need:
        above -= bins[cut]
        cut += 1
    counts[CUT], counts[WITNESSED] = cut, above
    least = cut * width
    return float(max(floor, (least * params.factor if params.policy == FACTOR else least) - ROUNDING))


@kernel(inline=True)
def raise_by_score(
    params: BufferParams,
    bins: NDArray[np.int32],
    counts: NDArray[np.int64],
    need: int,
    floor: float,
    score: float,
    width: float,
) -> float:
    """Count a message as a witness of its score, and return the floor, which may have risen."""
    level = bin_of(score, 1.0 / width)
    if need == 0 or level < counts[CUT]:
        return floor
    bins[level] += 1
    counts[WITNESSED] += 1
    if counts[WITNESSED] - bins[counts[CUT]] < need:
        return floor
    return raise_floor(params, bins, counts, need, floor, width)


@kernel
def theta_of(params: BufferParams, k: int, need: int, scores: NDArray[np.float64], n: int) -> float:
    """Return the theta that follows from n sorted scores; -inf if fewer than needed were found."""
    if n < need:
        return -np.inf
    return round_down(scores[k - 1] * params.factor if params.policy == FACTOR else scores[need - 1])


@kernel
def cut_below(scores: NDArray[np.float64], n_found: int, theta: float) -> int:
    """Return how many of the sorted scores reach theta."""
    while n_found > 0 and scores[n_found - 1] < theta:
        n_found -= 1
    return n_found


@kernel
def round_down(value: float) -> float:
    """Return the greatest 32-bit float that is no greater."""
    short = np.float32(value)
    if short > value:
        short = np.nextafter(short, np.float32(-np.inf))
    return float(short)


@kernel
def round_up(value: float) -> float:
    """Return the least 32-bit float that is greater."""
    short = np.float32(value)
    if short <= value:
        short = np.nextafter(short, np.float32(np.inf))
    return float(short)
