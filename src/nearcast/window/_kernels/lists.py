"""Lists of the messages of a window by term or place: they grow at the tail and are consumed at the head.

    bucket ──> [ next, class | posting posting posting ] ──> [ next, class | posting ... ]     tail: room for more
                               ▲ head: earlier postings have expired
    posting    number 32 bits | tag 12 bits | weight 20 bits, rounded up

Terms are assigned to buckets by hash, and tags distinguish most of the terms of a bucket; a reader compares the terms
of the message itself. So no term is ever registered and none has to be deleted. The first chunk of a bucket is small,
each further one twice as large up to a limit. A message that expires early stays on its lists until those before it
have expired too; readers skip it.

Numbers are relative to a base, which is moved long before they exceed 31 bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, mix, prefetch
from nearcast.model._kernels.blocks import give_block, take_block
from nearcast.window._kernels.horizon import Horizon, is_dead
from nearcast.window._kernels.params import BufferParams, spot_of
from nearcast.window.store import WindowArrays

HEAD, TAIL, EDGES, LENGTH = 0, 1, 2, 3
"""Columns of a bucket: first and last chunk or -1; start of the postings in the first and end in the last; count."""
N_CLASSES = 6
MIN_CHUNK = 4
WEIGHT_BITS, TAG_BITS = 20, 12
MAX_WEIGHT = (1 << WEIGHT_BITS) - 1
TAG_MASK = (1 << TAG_BITS) - 1
NEXT_BITS = 40
NEXT_MASK = (1 << NEXT_BITS) - 1
EDGE_BITS = 16
EDGE_MASK = (1 << EDGE_BITS) - 1


class ListArrays(NamedTuple):
    """The lists of a window."""

    buckets: NDArray[np.int32]
    """int32 (a power of two, 4): see the columns."""
    items: NDArray[np.int64]
    """int64 (room,): chunks; the first item of each holds 1 + the next chunk, and the class."""
    spots: NDArray[np.int64]
    """int64 (room,): the spot of the message of each posting; see `params`."""
    state: NDArray[np.int64]
    """int64 (STATE,): see `blocks`."""
    counts: NDArray[np.int64]
    """int64 (4,): the base, the number of postings, the first number that is on no list yet."""


BASE, N_POSTINGS, LISTED = 0, 1, 2


@kernel
def bucket_of(n_buckets: int, term: int) -> int:
    """Return the bucket of a term."""
    return mix(term) & (n_buckets - 1)


@kernel
def tag_of(term: int) -> int:
    """Return the tag of a term."""
    return (mix(term) >> 44) & TAG_MASK


@kernel
def list_length(lists: ListArrays, term: int) -> int:
    """Return the number of postings in the bucket of a term."""
    return int(lists.buckets[bucket_of(lists.buckets.shape[0], term), LENGTH])


@kernel
def _posting(number: int, term: int, unit: float) -> int:
    weight = min(MAX_WEIGHT, int(unit * MAX_WEIGHT) + 1)
    return (number << 32) | (tag_of(term) << WEIGHT_BITS) | weight


@kernel
def _chunk_size(chunk_class: int) -> int:
    return MIN_CHUNK << chunk_class


@kernel
def append_posting(
    buckets: NDArray[np.int32],
    items: NDArray[np.int64],
    spots: NDArray[np.int64],
    state: NDArray[np.int64],
    term: int,
    posting: int,
    spot: int,
) -> None:
    """Append a posting to the list of a term; requires room for a chunk."""
    row = bucket_of(buckets.shape[0], term)
    tail = buckets[row, TAIL]
    end = buckets[row, EDGES] >> EDGE_BITS
    if tail < 0 or end == _chunk_size(items[tail] >> NEXT_BITS):
        chunk_class = 0 if tail < 0 else min(N_CLASSES - 1, (items[tail] >> NEXT_BITS) + 1)
        chunk = take_block(state, items, chunk_class, _chunk_size(chunk_class))
        items[chunk] = chunk_class << NEXT_BITS
        if tail < 0:
            buckets[row, HEAD] = chunk
            buckets[row, EDGES] = 1
        else:
            items[tail] |= chunk + 1
            buckets[row, EDGES] &= EDGE_MASK
        buckets[row, TAIL] = chunk
        tail, end = chunk, 1
    items[tail + end] = posting
    spots[tail + end] = spot
    buckets[row, EDGES] = ((end + 1) << EDGE_BITS) | (buckets[row, EDGES] & EDGE_MASK)
    buckets[row, LENGTH] += 1


@kernel
def append_messages(
    params: BufferParams, lists: ListArrays, window: WindowArrays, start: int, stop: int, extra_of: Any
) -> int:
    """Append messages to the lists of their terms; return the first number for which there was no room.

    `extra_of(window, first, n)` is a kernel that returns the small number stored with a spot, for a message whose n
    terms begin at `first`.
    """
    buckets, items, spots, state = lists.buckets, lists.items, lists.spots, lists.state
    by_message, lane = window.term_starts.size - 1, window.term_ids.size - 1
    base = lists.counts[BASE]
    for number in range(start, stop):
        place = number & by_message
        n = window.n_terms[place]
        if state[0] + n * _chunk_size(N_CLASSES - 1) > items.size:  # more than all free blocks together may save
            state[1] = n * _chunk_size(N_CLASSES - 1)
            return number
        first = window.term_starts[place] & lane
        spot = spot_of(params, window.xs[place], window.ys[place], extra_of(window, first, n))
        for i in range(first, first + n):
            posting = _posting(number - base, window.term_ids[i], window.units[i])
            append_posting(buckets, items, spots, state, window.term_ids[i], posting, spot)
        lists.counts[N_POSTINGS] += n
        lists.counts[LISTED] = number + 1
    return stop


@kernel
def drop_messages(lists: ListArrays, window: WindowArrays, leaving: NDArray[np.int64], horizon: Horizon) -> None:
    """Remove expired messages from the lists of their terms, as far as they are at the head."""
    by_message, lane = window.term_starts.size - 1, window.term_ids.size - 1
    buckets, items, term_ids = lists.buckets, lists.items, window.term_ids
    for at in range(leaving.size):
        place = leaving[at] & by_message
        start = window.term_starts[place] & lane
        stop = start + window.n_terms[place]
        # Messages mostly expire in the order of arrival, so the terms of the next one follow.
        for i in range(stop, min(2 * stop - start, term_ids.size)):
            prefetch(buckets, bucket_of(buckets.shape[0], term_ids[i]))
        for i in range(start, stop):
            row = bucket_of(buckets.shape[0], term_ids[i])
            if buckets[row, HEAD] >= 0:
                prefetch(items, buckets[row, HEAD] + (buckets[row, EDGES] & EDGE_MASK))
        for i in range(start, stop):
            drop_front(lists, bucket_of(buckets.shape[0], term_ids[i]), horizon)


@kernel
def drop_front(lists: ListArrays, row: int, horizon: Horizon) -> None:
    """Remove expired postings from the head of a list."""
    buckets, items, base = lists.buckets, lists.items, lists.counts[BASE]
    while buckets[row, LENGTH] > 0:
        head, at = buckets[row, HEAD], buckets[row, EDGES] & EDGE_MASK
        if at == _chunk_size(items[head] >> NEXT_BITS):
            _drop_chunk(lists, row)
            continue
        if not is_dead(horizon, (items[head + at] >> 32) + base):
            return
        buckets[row, EDGES] += 1
        buckets[row, LENGTH] -= 1
        lists.counts[N_POSTINGS] -= 1
    while buckets[row, HEAD] >= 0:
        _drop_chunk(lists, row)


@kernel
def _drop_chunk(lists: ListArrays, row: int) -> None:
    buckets, items = lists.buckets, lists.items
    head = buckets[row, HEAD]
    after, chunk_class = (items[head] & NEXT_MASK) - 1, items[head] >> NEXT_BITS
    give_block(lists.state, items, chunk_class, head)
    buckets[row, HEAD] = after
    buckets[row, EDGES] = (buckets[row, EDGES] & ~EDGE_MASK) | 1
    if after < 0:
        buckets[row, TAIL] = -1


@kernel
def move_base(lists: ListArrays, by: int) -> None:
    """Add to the base, and subtract the same from all numbers."""
    lists.counts[BASE] += by
    for row in range(lists.buckets.shape[0]):
        chunk = lists.buckets[row, HEAD]
        at = lists.buckets[row, EDGES] & EDGE_MASK
        while chunk >= 0:
            is_last = chunk == lists.buckets[row, TAIL]
            size = _chunk_size(lists.items[chunk] >> NEXT_BITS)
            for i in range(at, lists.buckets[row, EDGES] >> EDGE_BITS if is_last else size):
                lists.items[chunk + i] -= by << 32
            chunk, at = (lists.items[chunk] & NEXT_MASK) - 1, 1
