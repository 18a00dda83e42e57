"""Lists of the messages of a window by filter key, and the messages that an option of a subscription names.

options of a slot ── lengths of their lists ── the shortest ── its messages, once each ── those that pass the filters
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch
from nearcast.model._kernels.filters import FilterArrays, MessageRows, passes
from nearcast.model._kernels.slot_words import RUN, SlotWordArrays
from nearcast.window._kernels.horizon import Horizon, is_dead
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
from nearcast.window._kernels.search import SCANNED, SearchScratch

COST = 16
"""The most postings of terms that cost as much as one of a key, whose message is looked at in any case."""
_AHEAD = 16


class KeyArrays(NamedTuple):
    """What a search by filter keys reads."""

    options: SlotWordArrays
    """The options by slot: their number, and for each its family, the number of its keys, and the keys."""
    used: NDArray[np.bool_]
    """bool (n_families,): the families that are listed."""
    known: NDArray[np.int64]
    """int64 (n_attributes, N_RANKS): the key of each of the coarsest cells of numbers, or 0 if no message had it."""
    lists: ListArrays
    """The messages of the window by key."""
    term_lists: ListArrays
    """The messages of the window by term."""


@kernel
def append_keys(lists: ListArrays, keys: NDArray[np.int64], start: int, stop: int) -> int:
    """Append messages to the lists of their keys; return the first number for which there was no room."""
    buckets, items, spots, state = lists.buckets, lists.items, lists.spots, lists.state
    base, n_keys = lists.counts[BASE], keys.shape[1]
    room = n_keys * (MIN_CHUNK << (N_CLASSES - 1))
    for number in range(start, stop):
        if state[0] + room > items.size:
            state[1] = room
            return number
        for i in range(n_keys):
            key = keys[number - start, i]
            if key != 0:
                append_posting(
                    buckets, items, spots, state, key, ((number - base) << 32) | (tag_of(key) << WEIGHT_BITS), 0
                )
                lists.counts[N_POSTINGS] += 1
        lists.counts[LISTED] = number + 1
    return stop


@kernel
def drop_keys(lists: ListArrays, keys: NDArray[np.int64], horizon: Horizon) -> None:
    """Remove expired messages from the lists of their keys, as far as they are at the head."""
    for at in range(keys.shape[0]):
        for i in range(keys.shape[1]):
            if keys[at, i] != 0:
                drop_front(lists, bucket_of(lists.buckets.shape[0], keys[at, i]), horizon)


@kernel
def _range_length(keys: KeyArrays, attribute: int, low: int, high: int) -> int:
    """Return the number of postings of the cells of an attribute between two ranks."""
    total = 0
    for rank in range(low, high + 1):
        if keys.known[attribute, rank] != 0:
            total += list_length(keys.lists, keys.known[attribute, rank])
    return total


@kernel
def find_option(keys: KeyArrays, slot: int, most: int) -> tuple[int, int]:
    """Return where the option of a slot with the shortest lists stands, and their length; -1 if none is below `most`.

    A family beyond those that are listed is that of an attribute whose coarsest cells are given as two ranks.
    """
    best, least = -1, most
    if slot >= keys.options.heads.shape[0] or keys.options.heads[slot, RUN] < 0:
        return best, least
    words, at = keys.options.words, keys.options.heads[slot, RUN] + 1
    for _ in range(words[at - 1]):
        family, n = words[at], words[at + 1]
        if family >= keys.used.size:
            total = _range_length(keys, family - keys.used.size, words[at + 2], words[at + 3])
        elif family >= 0 and not keys.used[family]:
            total = most
        else:
            total = 0
            for i in range(at + 2, at + 2 + n):
                total += list_length(keys.term_lists if family < 0 else keys.lists, words[i])
        if total < least:
            best, least = at, total
        at += 2 + n
    return best, least


@kernel
def _collect(lists: ListArrays, key: int, horizon: Horizon, numbers: NDArray[np.int64], n: int) -> int:
    """Add the live messages on the list of a key to n others; return how many there are."""
    items, buckets, base, tag = lists.items, lists.buckets, lists.counts[BASE], tag_of(key)
    row = bucket_of(buckets.shape[0], key)
    chunk, at = buckets[row, HEAD], buckets[row, EDGES] & EDGE_MASK
    tail, end = buckets[row, TAIL], buckets[row, EDGES] >> EDGE_BITS
    while chunk >= 0:
        stop = end if chunk == tail else MIN_CHUNK << (items[chunk] >> NEXT_BITS)
        for i in range(chunk + at, chunk + stop):
            number = (items[i] >> 32) + base
            if (items[i] >> WEIGHT_BITS) & TAG_MASK == tag and not is_dead(horizon, number):
                numbers[n] = number
                n += 1
        chunk, at = (items[chunk] & NEXT_MASK) - 1, 1
    return n


@kernel
def _collect_option(keys: KeyArrays, at: int, horizon: Horizon, numbers: NDArray[np.int64]) -> int:
    """Write the live messages of an option; return how many there are, repetitions included."""
    words, n = keys.options.words, 0
    family = words[at]
    if family >= keys.used.size:
        attribute = family - keys.used.size
        for rank in range(words[at + 2], words[at + 3] + 1):
            if keys.known[attribute, rank] != 0:
                n = _collect(keys.lists, keys.known[attribute, rank], horizon, numbers, n)
        return n
    for i in range(at + 2, at + 2 + words[at + 1]):
        n = _collect(keys.term_lists if family < 0 else keys.lists, words[i], horizon, numbers, n)
    return n


@kernel
def note_option(
    keys: KeyArrays,
    at: int,
    slot: int,
    horizon: Horizon,
    filters: FilterArrays,
    rows: MessageRows,
    scratch: SearchScratch,
) -> int:
    """Note the live messages of an option that pass the filters, each once; return how many there are."""
    numbers = scratch.numbers
    n = _collect_option(keys, at, horizon, numbers)
    scratch.counts[SCANNED] += n
    _sort(numbers, n)
    n_noted, last = 0, -1
    for i in range(n):
        if i + _AHEAD < n:
            prefetch(rows.xs, numbers[i + _AHEAD] & rows.masks[0])
            prefetch(rows.term_starts, numbers[i + _AHEAD] & rows.masks[0])
        number = numbers[i]
        if number != last and passes(filters, slot, rows, number):
            numbers[n_noted], scratch.bounds[n_noted], scratch.firsts[n_noted] = number, np.float32(np.inf), -1
            n_noted += 1
        last = number
    return n_noted


@kernel
def _sort(numbers: NDArray[np.int64], n: int) -> None:
    """Sort the first n numbers; most lists are short, or sorted already as they are appended to."""
    for root in range(n // 2 - 1, -1, -1):
        _sift(numbers, root, n)
    for end in range(n - 1, 0, -1):
        numbers[0], numbers[end] = numbers[end], numbers[0]
        _sift(numbers, 0, end)


@kernel
def _sift(numbers: NDArray[np.int64], root: int, end: int) -> None:
    while 2 * root + 1 < end:
        child = 2 * root + 1
        if child + 1 < end and numbers[child + 1] > numbers[child]:
            child += 1
        if numbers[child] <= numbers[root]:
            return
        numbers[root], numbers[child] = numbers[child], numbers[root]
        root = child
