"""Matching of messages against boolean subscriptions: find the lists, filter by box, then by terms.

The passes have no branches that depend on data, because which posting passes is as good as random.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch
from nearcast.index._kernels.boolean.geometry import low_step, pack_lanes, quantize
from nearcast.index._kernels.boolean.layout import (
    BITS,
    CHECK_EXPRESSION,
    CHILDREN,
    FAN,
    GUARDS,
    KIND,
    LENGTH,
    LINE,
    LOW,
    ONES,
    PLAIN,
    START,
    TOTAL_BITS,
    WANTED,
    BooleanScratch,
    Forest,
    MessageColumns,
)
from nearcast.index._kernels.shared.output import CANDIDATES, VERIFIED, VISITED, MatchOutput
from nearcast.index._kernels.shared.term_numbers import find_numbers


@kernel
def holds_term(held: NDArray[np.int32], number: int) -> bool:
    """Return whether the message holds a term."""
    last = held.size - 1
    place = number & last
    found = held[place]
    while (found != number) & (found != 0):  # one test that is rarely true instead of two that often are
        place = (place + 1) & last
        found = held[place]
    return bool(found == number)


@kernel
def hold_term(held: NDArray[np.int32], number: int) -> None:
    """Add a term of the message to the hash set."""
    last = held.size - 1
    place = number & last
    while held[place] != 0:
        place = (place + 1) & last
    held[place] = number


@kernel
def clear_term(held: NDArray[np.int32], number: int) -> None:
    """Empty the run of entries that a term can be in; all of them belong to the same message."""
    last = held.size - 1
    place = number & last
    while held[place] != 0:
        held[place] = 0
        place = (place + 1) & last


@kernel
def is_inside(forest: Forest, slot: int, x: float, y: float) -> bool:
    """Return whether the box of a subscription holds a point."""
    box = forest.boxes[slot]
    return bool(x >= box[0] and y >= box[1] and x <= box[2] and y <= box[3])


@kernel
def is_first_true(forest: Forest, slot: int, branch: int, held: NDArray[np.int32]) -> bool:
    """Return whether a branch of an expression is true and no branch before it is."""
    words = forest.words
    at = int(forest.records[slot]) + 1
    for earlier in range(branch + 1):
        length = int(words[at])
        is_true = True
        for term in range(at + 1, at + 1 + length):
            if not holds_term(held, int(words[term])):
                is_true = False
                break
        if is_true:
            return earlier == branch
        at += 1 + length
    return False


@kernel
def find_lists(forest: Forest, x: int, y: int, numbers: NDArray[np.int32], lists: NDArray[np.int64]) -> int:
    """Write the lists of some terms on the paths to a point; return how many."""
    nodes = forest.nodes
    n = 0
    for i in range(numbers.size):
        node = int(numbers[i])
        depth = 0
        while node != 0:
            if nodes[node, LENGTH] != 0:
                lists[n, 0], lists[n, 1], lists[n, 2] = nodes[node, START], nodes[node, LENGTH], depth
                n += 1
            node = int(nodes[node, CHILDREN])
            if node != 0:
                depth += 1
                shift = TOTAL_BITS - BITS * depth
                node += (((y >> shift) & (FAN - 1)) << BITS) + ((x >> shift) & (FAN - 1))
    return n


@kernel
def prefetch_lists(
    forest: Forest, messages: MessageColumns, row: int, numbers: NDArray[np.int32], lists: NDArray[np.int64]
) -> int:
    """Write the lists of a message and prefetch their postings; return how many lists there are."""
    frame = forest.frame
    x, y = quantize(messages.xs[row] * 0.5, frame[0], frame[2]), quantize(messages.ys[row] * 0.5, frame[1], frame[3])
    n = find_lists(forest, x, y, numbers, lists)
    for i in range(n):
        first, last = lists[i, 0], lists[i, 0] + lists[i, 1]
        for posting in range(first, last, LINE):
            prefetch(forest.sides, posting)
        for posting in range(first, last, 2 * LINE):
            prefetch(forest.slots, posting)
    return n


@kernel
def prefetch_roots(forest: Forest, numbers: NDArray[np.int32]) -> None:
    """Prefetch the roots of some terms."""
    for number in numbers:
        prefetch(forest.nodes, number)


@kernel
def filter_boxes(forest: Forest, entry: NDArray[np.int64], x: int, y: int, rows: NDArray[np.int64], n: int) -> int:
    """Append the postings of a list whose box may hold a point to `rows`; return its length.

    An item is the row of the posting, then in 4 bits its kind and whether the box is sure to hold the point.
    """
    start, length, depth = entry[0], entry[1], entry[2]
    x, y = low_step(x, depth, 0), low_step(y, depth, 0)
    weak = pack_lanes(x, x, y, y) | GUARDS
    strict = weak - ONES
    sides = forest.sides[start : start + length]
    for i in range(length):
        side = sides[i]
        sure = ((strict - side) & GUARDS) == GUARDS
        rows[n] = ((start + i) << 4) | ((side >> KIND) << 1) | sure
        n += ((weak - side) & GUARDS) == GUARDS
    return n


@kernel
def take_plain(
    forest: Forest, rows: NDArray[np.int64], n: int, slots: NDArray[np.int32], n_filled: int
) -> tuple[int, int]:
    """Append the slots of postings that their box decides; return the number of slots and of remaining rows."""
    n_left = 0
    for i in range(n):
        row = rows[i]
        is_decided = (row & (PLAIN << 1 | 1)) == (PLAIN << 1 | 1)
        slots[n_filled] = forest.slots[row >> 4]
        n_filled += is_decided
        rows[n_left] = row
        n_left += not is_decided
    return n_filled, n_left


@kernel
def take_others(
    forest: Forest, scratch: BooleanScratch, n: int, x: float, y: float, slots: NDArray[np.int32], n_filled: int
) -> tuple[int, int]:
    """Append the slots of postings whose other terms, box and expression agree.

    Return the number of slots, and of the postings that only the box or the expression rejected.
    """
    held, rows = scratch.held, scratch.rows
    for i in range(n):
        prefetch(forest.others, rows[i] >> 4)
    n_rejected = 0
    for i in range(n):
        row = rows[i] >> 4
        others, slot = forest.others[row], forest.slots[row]
        wanted, check = (rows[i] & (WANTED << 1)) != 0, (rows[i] & (CHECK_EXPRESSION << 1)) != 0
        passes = (holds_term(held, others & LOW) == wanted) & ((holds_term(held, others >> 32) == wanted) | check)
        if passes & (check | ((rows[i] & 1) == 0)):
            passes = is_inside(forest, slot, x, y) and (not check or is_first_true(forest, slot, others >> 32, held))
            n_rejected += not passes
        slots[n_filled] = slot
        n_filled += passes
    return n_filled, n_rejected


@kernel
def match_rows(
    forest: Forest,
    messages: MessageColumns,
    start: int,
    stop: int,
    first: int,
    scratch: BooleanScratch,
    out: MatchOutput,
) -> int:
    """Match messages from row `start` on; return the row that does not fit, or `stop`.

    `out.ends[row - first]` is the end of the matches of a row. While a message is matched, the lists of the next one
    and the roots of the one after it are prefetched. A kernel per message would cost 13 % more: a call passes the
    arrays of all its structures.
    """
    indptr, frame, work = messages.term_indptr, forest.frame, out.work
    numbers, lists, rows, held = scratch.numbers, scratch.lists, scratch.rows, scratch.held
    total = int(out.ends[start - first - 1]) if start > first else 0
    base, half, n_next = indptr[start], lists.shape[0] // 2, 0
    find_numbers(forest.table, messages.term_ids[base : indptr[stop]], 0, numbers)
    if start < stop:
        n_next = prefetch_lists(forest, messages, start, numbers[: indptr[start + 1] - base], lists[:half])
    for row in range(start, stop):
        n, own = n_next, (row - start) % 2 * half
        if row + 2 < stop:
            prefetch_roots(forest, numbers[indptr[row + 2] - base : indptr[row + 3] - base])
        if row + 1 < stop:
            upcoming = numbers[indptr[row + 1] - base : indptr[row + 2] - base]
            n_next = prefetch_lists(forest, messages, row + 1, upcoming, lists[half - own : 2 * half - own])
        needed = 1
        for i in range(own, own + n):
            needed += lists[i, 1]
        scratch.needed[0] = needed
        if needed > rows.size:
            return row
        x, y, n_rows = messages.xs[row], messages.ys[row], 0
        left, bottom = quantize(x * 0.5, frame[0], frame[2]), quantize(y * 0.5, frame[1], frame[3])
        for i in range(own, own + n):
            n_rows = filter_boxes(forest, lists[i], left, bottom, rows, n_rows)
        if total + n_rows > out.slots.size:
            return row
        current = numbers[indptr[row] - base : indptr[row + 1] - base]
        for number in current:
            if number != 0:
                hold_term(held, number)
        n_filled, n_left = take_plain(forest, rows, n_rows, out.slots, total)
        n_filled, n_rejected = take_others(forest, scratch, n_left, x, y, out.slots, n_filled)
        for number in current:
            clear_term(held, number)
        n_candidates = n_filled - total + n_rejected
        work[VISITED] += needed - 1
        work[CANDIDATES] += n_candidates
        work[VERIFIED] += n_candidates
        total = out.ends[row - first] = n_filled
    return stop
