"""Which subscriptions does a message concern? Find lists, sift postings, take what is left."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch, table_find, table_home
from nearcast.index._kernels.boolean.geometry import lanes_of, low_step, quantize
from nearcast.index._kernels.boolean.layout import (
    BASE,
    BITS,
    CANDIDATES,
    CHECK_OTHERS,
    FAN,
    FILLED,
    GUARDS,
    KIDS,
    KIND,
    LENGTH,
    LINE,
    LOW,
    NEEDED,
    ONES,
    PLAIN,
    START,
    TOTAL_BITS,
    VISITED,
    WANTED,
    BooleanWorkspace,
    Forest,
    Messages,
)

_AHEAD = 16  # terms whose entries are on their way


@kernel
def _holds(held: NDArray[np.int32], number: int) -> bool:
    """Say whether the message holds a term."""
    last = held.size - 1
    place = number & last
    found = held[place]
    while (found != number) & (found != 0):  # one test that hardly ever succeeds, not two that do
        place = (place + 1) & last
        found = held[place]
    return bool(found == number)


@kernel
def _hold(held: NDArray[np.int32], number: int) -> None:
    last = held.size - 1
    place = number & last
    while held[place] != 0:
        place = (place + 1) & last
    held[place] = number


@kernel
def _drop(held: NDArray[np.int32], number: int) -> None:
    """Empty the run of places that a term may be in; all of them belong to the message that goes."""
    last = held.size - 1
    place = number & last
    while held[place] != 0:
        held[place] = 0
        place = (place + 1) & last


@kernel
def _is_inside(forest: Forest, slot: int, x: float, y: float) -> bool:
    """Ask the box itself."""
    box = forest.boxes[slot]
    return bool(x >= box[0] and y >= box[1] and x <= box[2] and y <= box[3])


@kernel
def _is_first(forest: Forest, slot: int, branch: int, held: NDArray[np.int32]) -> bool:
    """Ask the expression: whether a branch holds and none before it does."""
    words = forest.words
    at = int(forest.records[slot]) + 1
    for earlier in range(branch + 1):
        length = int(words[at])
        holds = True
        for term in range(at + 1, at + 1 + length):
            if not _holds(held, int(words[term])):
                holds = False
                break
        if holds:
            return earlier == branch
        at += 1 + length
    return False


@kernel
def _find_lists(forest: Forest, x: int, y: int, numbers: NDArray[np.int32], lists: NDArray[np.int64]) -> int:
    """Write the lists of some terms that hold the cells of a point; return how many."""
    nodes = forest.nodes
    n = 0
    for i in range(numbers.size):
        node = int(numbers[i])
        depth = 0
        while node != 0:
            if nodes[node, LENGTH] != 0:
                lists[n, 0], lists[n, 1], lists[n, 2] = nodes[node, START], nodes[node, LENGTH], depth
                n += 1
            node = int(nodes[node, KIDS])
            if node != 0:
                depth += 1
                shift = TOTAL_BITS - BITS * depth
                node += (((y >> shift) & (FAN - 1)) << BITS) + ((x >> shift) & (FAN - 1))
    return n


@kernel
def _aim(forest: Forest, messages: Messages, row: int, workspace: BooleanWorkspace, lists: NDArray[np.int64]) -> int:
    """Find the lists of a message and ask for their memory; return how many there are."""
    frame, base = forest.frame, workspace.work[BASE]
    numbers = workspace.numbers[messages.term_indptr[row] - base : messages.term_indptr[row + 1] - base]
    x, y = quantize(messages.xs[row] * 0.5, frame[0], frame[2]), quantize(messages.ys[row] * 0.5, frame[1], frame[3])
    n = _find_lists(forest, x, y, numbers, lists)
    for i in range(n):
        first, last = lists[i, 0], lists[i, 0] + lists[i, 1]
        for posting in range(first, last, LINE):
            prefetch(forest.sides, posting)
        for posting in range(first, last, 2 * LINE):
            prefetch(forest.slots, posting)
    return n


@kernel
def _aim_roots(forest: Forest, messages: Messages, row: int, workspace: BooleanWorkspace) -> None:
    """Ask for the memory of the roots of a message's terms."""
    base = workspace.work[BASE]
    for i in range(messages.term_indptr[row] - base, messages.term_indptr[row + 1] - base):
        prefetch(forest.nodes, workspace.numbers[i])


@kernel
def _sift(forest: Forest, one: NDArray[np.int64], x: int, y: int, rows: NDArray[np.int64], n: int) -> int:
    """Write the postings of a list whose box may hold a point from `n` on; return where they end.

    What is written is the row, then in 4 bits the kind and whether the box does hold the point. Nothing here is a
    branch: which posting passes is as good as random.
    """
    start, length, depth = one[0], one[1], one[2]
    x, y = low_step(x, depth, 0), low_step(y, depth, 0)
    weak = lanes_of(x, x, y, y) | GUARDS
    strict = weak - ONES
    sides = forest.sides[start : start + length]
    for i in range(length):
        side = sides[i]
        sure = ((strict - side) & GUARDS) == GUARDS
        rows[n] = ((start + i) << 4) | ((side >> KIND) << 1) | sure
        n += ((weak - side) & GUARDS) == GUARDS
    return n


@kernel
def _take_plain(forest: Forest, n: int, workspace: BooleanWorkspace, filled: int) -> tuple[int, int]:
    """Write the slots of postings that nothing is left to ask of; return where they end, and how many are left."""
    rows, slots = workspace.rows, workspace.slots
    left = 0
    for i in range(n):
        row = rows[i]
        decided = (row & (PLAIN << 1 | 1)) == (PLAIN << 1 | 1)
        slots[filled] = forest.slots[row >> 4]
        filled += decided
        rows[left] = row
        left += not decided
    return filled, left


@kernel
def _take_others(forest: Forest, n: int, x: float, y: float, workspace: BooleanWorkspace, filled: int) -> int:
    """Write the slots of postings whose other terms, box and expression agree; return where they end."""
    held, slots, rows = workspace.held, workspace.slots, workspace.rows
    for i in range(n):
        prefetch(forest.others, rows[i] >> 4)
    first = filled
    failed = 0
    for i in range(n):
        row = rows[i] >> 4
        others, slot = forest.others[row], forest.slots[row]
        wanted, query = (rows[i] & (WANTED << 1)) != 0, (rows[i] & (CHECK_OTHERS << 1)) != 0
        passes = (_holds(held, others & LOW) == wanted) & ((_holds(held, others >> 32) == wanted) | query)
        if passes & (query | ((rows[i] & 1) == 0)):
            passes = _is_inside(forest, slot, x, y) and (not query or _is_first(forest, slot, others >> 32, held))
            failed += not passes
        slots[filled] = slot
        filled += passes
    workspace.work[CANDIDATES] += filled - first + failed
    return filled


@kernel
def boolean_numbers(forest: Forest, term_ids: NDArray[np.int64], numbers: NDArray[np.int32]) -> None:
    """Write the numbers of terms, 0 for those that no subscription holds."""
    table = forest.table
    last = term_ids.size - 1
    for i in range(term_ids.size):
        home = table_home(table, term_ids[min(i + _AHEAD, last)])
        prefetch(table.tags, home)
        prefetch(table.entries, home)
        slot = table_find(table, term_ids[i])
        numbers[i] = table.entries[slot, 1] if slot >= 0 else 0


@kernel
def boolean_match(forest: Forest, messages: Messages, start: int, stop: int, workspace: BooleanWorkspace) -> int:
    """Match messages from row `start` on; return the row that found no room, or `stop`.

    While a message is matched, the lists of the next and the roots of the one after it are on their way.
    """
    frame, work = forest.frame, workspace.work
    base = work[BASE] = messages.term_indptr[start]
    boolean_numbers(forest, messages.term_ids[base : messages.term_indptr[stop]], workspace.numbers)
    half = workspace.lists.shape[0] // 2
    n_next = _aim(forest, messages, start, workspace, workspace.lists[:half]) if start < stop else 0
    for row in range(start, stop):
        n, own = n_next, (row - start) % 2 * half
        if row + 2 < stop:
            _aim_roots(forest, messages, row + 2, workspace)
        if row + 1 < stop:
            n_next = _aim(forest, messages, row + 1, workspace, workspace.lists[half - own : 2 * half - own])
        before = filled = work[FILLED]
        work[NEEDED] = 1
        for i in range(own, own + n):
            work[NEEDED] += workspace.lists[i, 1]
        if filled + work[NEEDED] > workspace.slots.size or work[NEEDED] > workspace.rows.size:
            return row
        numbers = workspace.numbers[messages.term_indptr[row] - base : messages.term_indptr[row + 1] - base]
        for number in numbers:
            if number != 0:
                _hold(workspace.held, number)
        x, y = messages.xs[row], messages.ys[row]
        left, bottom = quantize(x * 0.5, frame[0], frame[2]), quantize(y * 0.5, frame[1], frame[3])
        n_rows = 0
        for i in range(own, own + n):
            n_rows = _sift(forest, workspace.lists[i], left, bottom, workspace.rows, n_rows)
        filled, n_rows = _take_plain(forest, n_rows, workspace, filled)
        work[CANDIDATES] += filled - before
        filled = _take_others(forest, n_rows, x, y, workspace, filled)
        for number in numbers:
            _drop(workspace.held, number)
        work[VISITED] += work[NEEDED] - 1
        work[FILLED] = filled
        workspace.counts[row] = filled - before
    return stop
