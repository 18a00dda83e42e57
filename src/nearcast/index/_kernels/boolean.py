"""Loops of the index of kind `boolean`; see `nearcast.index.boolean` for what the arrays mean and why.

    quantize ─> a coordinate as 43 bits, in order      reach   ─> the lists that a box belongs to
    lanes    ─> a point or a box as 4 x 15 bits        insert, delete, match ─> one call a batch

A box against a point is one subtraction: four lanes of 14 bits, each with a guard bit above it. The point sets the
guards, the box is subtracted, and a guard survives where the point's lane is not below the box's:

    lane            0       1               2       3
    point           x       16383 - x       y       16383 - y           + guards
    box             xmin    16383 - xmax    ymin    16383 - ymax

Coordinates in the lanes are those of the list's cell in 8192 steps, plus 1; 0 and 8193 stand for "beyond the cell".
Rounding to steps keeps the order, so unequal steps decide, and equal ones mean: ask the box itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import TableArrays, kernel, table_find, table_get, table_put, table_remove

BITS = 3
"""A node has 2**BITS x 2**BITS children."""
FAN = 1 << BITS
BLOCK = FAN * FAN
DEPTH = 10
"""Levels below a root."""
_STEP_BITS = 13
TOTAL_BITS = BITS * DEPTH + _STEP_BITS
SPLIT = 32
"""A list that is shorter is never split."""
SPAN = 3
"""A box that overlaps more children along an axis stays with the parent."""
TARGETS = 2048
"""More lists than a box can be put in."""
CLASSES = 40

_STEPS = (1 << _STEP_BITS) - 1
_BEYOND = _STEPS + 2
_LANE = 15
_LANE_MAX = (1 << (_LANE - 1)) - 1
_ONES = 1 | (1 << _LANE) | (1 << (2 * _LANE)) | (1 << (3 * _LANE))
_GUARDS = _ONES << (_LANE - 1)
_LOW = 0xFFFFFFFF
_NONE = -1
_LINE = 8  # words of a cache line

# Columns of `nodes`.
_START, _LENGTH, _CLASS, _KIDS = 0, 1, 2, 3
# Kinds of postings: both other terms must be held, or none may be; the expression has the last word; nothing is left
# to ask but the box.
_WANTED, _ASK, _PLAIN = 1, 2, 4
_KIND = 4 * _LANE
# Places in `state`.
ROWS, WORDS, NODES, FREE_BLOCK, FREE_TERM, APPENDED, NEED_ROWS, NEED_WORDS, NEED_NODES, LIVE = range(10)
# Places in `work`.
VISITED, CANDIDATES, FILLED, NEEDED, TOUCHED = range(5)


class Forest(NamedTuple):
    """All trees of lists, and the subscriptions themselves."""

    table: TableArrays
    """Term id -> term number, which is the number of its root."""
    nodes: NDArray[np.int32]
    """int32 (n_nodes, 4): first row of the list, length, 1 + log2 of its room, first of BLOCK children or 0."""
    ids: NDArray[np.int64]
    """int64 (n_nodes,): the id of a term, where the node is a root."""
    refs: NDArray[np.int32]
    """int32 (n_nodes,): how often subscriptions hold that term."""
    sides: NDArray[np.int64]
    """int64 (n_rows,): of each posting the box in lanes, and its kind above them."""
    slots: NDArray[np.int32]
    """int32 (n_rows,): the subscription."""
    others: NDArray[np.int64]
    """int64 (n_rows,): two more terms, or one and the number of the branch."""
    boxes: NDArray[np.float64]
    """float64 (n_slots, 4): xmin, ymin, xmax, ymax."""
    records: NDArray[np.int64]
    """int64 (n_slots,): where the expression starts in `words`; -1 for a free slot."""
    words: NDArray[np.int32]
    """int32 (n_words,): number of branches, then of each its length and its term numbers, the rarest first."""
    free_rows: NDArray[np.int64]
    """int64 (CLASSES,): first free block of 2**i postings; each names the next and the one before."""
    free_tags: NDArray[np.uint8]
    """uint8 (n_rows,): 1 + i where a free block of 2**i postings starts, else 0."""
    free_words: NDArray[np.int64]
    """int64 (CLASSES,): first free block of 2**i words; each names the next."""
    frame: NDArray[np.float64]
    """float64 (4,): half of xmin and ymin of the bounds; steps in half a unit along x and y."""
    state: NDArray[np.int64]
    """int64 (10,): counters; see the names above."""


class Arrivals(NamedTuple):
    """Subscriptions to insert."""

    slots: NDArray[np.int32]
    """int32 (n,)."""
    boxes: NDArray[np.float64]
    """float64 (n, 4)."""
    owners: NDArray[np.int64]
    """int64 (n_branches,): the subscription of each branch."""
    branch_indptr: NDArray[np.int64]
    """int64 (n + 1,)."""
    term_indptr: NDArray[np.int64]
    """int64 (n_branches + 1,)."""
    term_ids: NDArray[np.int64]
    """int64 (n_terms,): the rarest term of a branch first."""


class Messages(NamedTuple):
    """Messages to match."""

    xs: NDArray[np.float64]
    """float64 (n,)."""
    ys: NDArray[np.float64]
    """float64 (n,)."""
    term_indptr: NDArray[np.int64]
    """int64 (n + 1,)."""
    term_ids: NDArray[np.int64]
    """int64 (n_terms,)."""


class Desk(NamedTuple):
    """Where matching writes: room to work, and results."""

    numbers: NDArray[np.int32]
    """int32 (terms of the rows,): their numbers; 0 where no subscription knows the term."""
    held: NDArray[np.int32]
    """int32 (a power of two,): hash set of the numbers of one message; all 0 between messages."""
    lists: NDArray[np.int64]
    """int64 (11 x most terms of a message, 3): first row, length and depth of the lists to scan."""
    rows: NDArray[np.int64]
    """int64 (room,): postings of one message that the boxes left over."""
    slots: NDArray[np.int32]
    """int32 (room,): what was found."""
    counts: NDArray[np.int64]
    """int64 (rows,): how many of them each row has."""
    work: NDArray[np.int64]
    """int64 (5,): visited, candidates, slots filled, how many the next row may need, what was touched."""


@kernel
def quantize(half_value: float, half_low: float, steps: float) -> int:
    """Return a coordinate as an integer of TOTAL_BITS; never decreases as the coordinate grows.

    Halves, so that the width of no bounds overflows.
    """
    scaled = (half_value - half_low) * steps
    top = (1 << TOTAL_BITS) - 1
    if scaled <= 0.0:
        return 0
    return top if scaled >= top else int(scaled)


@kernel
def _lanes(x_low: int, x_high: int, y_low: int, y_high: int) -> int:
    return (
        x_low
        | ((_LANE_MAX - x_high) << _LANE)
        | (y_low << (2 * _LANE))
        | ((_LANE_MAX - y_high) << (3 * _LANE))
    )  # fmt: skip


@kernel
def _low_step(value: int, depth: int, cell: int) -> int:
    shift = TOTAL_BITS - BITS * depth
    return 0 if (value >> shift) < cell else 1 + ((value >> (shift - _STEP_BITS)) & _STEPS)


@kernel
def _high_step(value: int, depth: int, cell: int) -> int:
    shift = TOTAL_BITS - BITS * depth
    return _BEYOND if (value >> shift) > cell else 1 + ((value >> (shift - _STEP_BITS)) & _STEPS)


@kernel
def _corners(forest: Forest, slot: int) -> tuple[int, int, int, int]:
    """Return the box of a slot, quantized: left, bottom, right, top."""
    frame, boxes = forest.frame, forest.boxes
    return (
        quantize(boxes[slot, 0] * 0.5, frame[0], frame[2]),
        quantize(boxes[slot, 1] * 0.5, frame[1], frame[3]),
        quantize(boxes[slot, 2] * 0.5, frame[0], frame[2]),
        quantize(boxes[slot, 3] * 0.5, frame[1], frame[3]),
    )


@kernel
def _children(low: int, high: int, depth: int, cell: int) -> tuple[int, int]:
    """Return the first and last child of a cell, along one axis, that an interval overlaps."""
    shift = TOTAL_BITS - BITS * (depth + 1)
    return max(low >> shift, cell << BITS), min(high >> shift, (cell << BITS) + FAN - 1)


@kernel
def _reach(
    forest: Forest, root: int, corners: tuple[int, int, int, int], targets: NDArray[np.int64]
) -> int:  # fmt: skip
    """Write the lists that a box belongs to as rows of node, depth, column and row of its cell; return how many.

    A node without children takes all boxes that overlap its cell; one with children those that span too many.
    """
    left, bottom, right, top = corners
    targets[0, 0] = root
    targets[0, 1] = targets[0, 2] = targets[0, 3] = 0
    n, done, kept = 1, 0, 0
    while done < n:
        node, depth, column, line = targets[done, 0], targets[done, 1], targets[done, 2], targets[done, 3]
        done += 1
        kids = int(forest.nodes[node, _KIDS])
        first, last = _children(left, right, depth, column)
        lowest, highest = _children(bottom, top, depth, line)
        if kids == 0 or last - first >= SPAN or highest - lowest >= SPAN:
            targets[kept, 0], targets[kept, 1], targets[kept, 2], targets[kept, 3] = node, depth, column, line
            kept += 1
            continue
        for y in range(lowest, highest + 1):
            for x in range(first, last + 1):
                targets[n, 0] = kids + ((y & (FAN - 1)) << BITS) + (x & (FAN - 1))
                targets[n, 1], targets[n, 2], targets[n, 3] = depth + 1, x, y
                n += 1
    return kept


@kernel
def _class_of(n: int) -> int:
    """Return the least c with 2**c >= n."""
    c = 0
    while (1 << c) < n:
        c += 1
    return c


@kernel
def _link(forest: Forest, row: int, c: int) -> None:
    """Put a block of 2**c postings in front of the free ones."""
    following = int(forest.free_rows[c])
    forest.sides[row], forest.others[row] = following, _NONE
    if following != _NONE:
        forest.others[following] = row
    forest.free_rows[c] = row
    forest.free_tags[row] = c + 1


@kernel
def _unlink(forest: Forest, row: int, c: int) -> None:
    """Take a block out of the free ones."""
    following, before = int(forest.sides[row]), int(forest.others[row])
    if following != _NONE:
        forest.others[following] = before
    if before != _NONE:
        forest.sides[before] = following
    else:
        forest.free_rows[c] = following
    forest.free_tags[row] = 0


@kernel
def _take_rows(forest: Forest, c: int) -> int:
    """Return the first of 2**c free postings: a free block, part of a larger one, or new ones.

    Blocks start at multiples of their size, so that two halves know each other and can be joined again.
    """
    for larger in range(c, CLASSES):
        row = int(forest.free_rows[larger])
        if row != _NONE:
            _unlink(forest, row, larger)
            for half in range(c, larger):
                _link(forest, row + (1 << half), half)
            return row
    row = int(forest.state[ROWS])
    for lower in range(c):
        if row & (1 << lower):
            _link(forest, row, lower)
            row += 1 << lower
    forest.state[ROWS] = row + (1 << c)
    return row


@kernel
def _give_rows(forest: Forest, row: int, c: int) -> None:
    """Free a block, joined with its other half as long as that is free too."""
    while True:
        other = row ^ (1 << c)
        if other >= forest.state[ROWS] or forest.free_tags[other] != c + 1:
            break
        _unlink(forest, other, c)
        row = min(row, other)
        c += 1
    _link(forest, row, c)


@kernel
def _take_words(forest: Forest, c: int) -> int:
    word = int(forest.free_words[c])
    if word != _NONE:
        forest.free_words[c] = forest.words[word]
        return word
    word = int(forest.state[WORDS])
    forest.state[WORDS] += 1 << c
    return word


@kernel
def _take_block(forest: Forest) -> int:
    """Return the first of BLOCK nodes with empty lists."""
    block = int(forest.state[FREE_BLOCK])
    if block != _NONE:
        forest.state[FREE_BLOCK] = forest.nodes[block, _START]
        forest.nodes[block, _START] = 0
        return block
    block = int(forest.state[NODES])
    forest.state[NODES] += BLOCK
    return block


@kernel
def _number(forest: Forest, term_id: int) -> int:
    """Return the number of a term, a new one if need be; there is room for it."""
    number = table_get(forest.table, term_id, 0)
    if number == 0:
        if forest.state[FREE_TERM] == _NONE:
            block = _take_block(forest)
            for node in range(block + BLOCK - 1, max(block, 1) - 1, -1):  # no term has number 0
                forest.nodes[node, _START] = forest.state[FREE_TERM]
                forest.state[FREE_TERM] = node
        number = int(forest.state[FREE_TERM])
        forest.state[FREE_TERM] = forest.nodes[number, _START]
        forest.nodes[number, _START] = 0
        forest.ids[number] = term_id
        table_put(forest.table, term_id, number)
    forest.refs[number] += 1
    return number


@kernel
def _register(forest: Forest, arrivals: Arrivals, i: int) -> bool:
    """Write box and expression of an arrival under its slot; False, and nothing done, if there is no room."""
    first, last = arrivals.branch_indptr[i], arrivals.branch_indptr[i + 1]
    n_terms = arrivals.term_indptr[last] - arrivals.term_indptr[first]
    state, tags = forest.state, forest.table.tags
    c = _class_of(1 + last - first + n_terms)
    n_nodes = (n_terms // (BLOCK - 1) + 1) * BLOCK
    state[NEED_WORDS] = state[WORDS] + (1 << c)
    state[NEED_NODES] = state[NODES] + n_nodes
    table_fits = forest.table.n_taken[0] + n_terms <= tags.size - tags.size // 4
    if state[NEED_WORDS] > forest.words.size or state[NEED_NODES] > forest.ids.size or not table_fits:
        return False
    slot = arrivals.slots[i]
    word = _take_words(forest, c)
    forest.records[slot] = word
    for side in range(4):
        forest.boxes[slot, side] = arrivals.boxes[i, side]
    forest.words[word] = last - first
    word += 1
    for branch in range(first, last):
        start, stop = arrivals.term_indptr[branch], arrivals.term_indptr[branch + 1]
        forest.words[word] = stop - start
        word += 1
        for at in range(start, stop):
            forest.words[word] = _number(forest, arrivals.term_ids[at])
            word += 1
    state[LIVE] += 1
    return True


@kernel
def _only_single_terms(words: NDArray[np.int32], word: int, n_branches: int) -> bool:
    n = 0
    for branch in range(n_branches):
        n += words[word + 1 + 2 * branch] == 1  # as long as all before were single
    return n == n_branches


@kernel
def _condition(forest: Forest, slot: int, branch: int, at: int) -> tuple[int, int]:
    """Return kind and other terms of the posting of a branch, whose length stands at `words[at]`.

    Beside the key, a posting names two terms that must be held, or must not be: an AND of three, or an OR of three
    that reports under its first term alone. Anything else names one term and the branch, and asks the expression.
    """
    words, word = forest.words, int(forest.records[slot])
    n_branches, length, key = int(words[word]), int(words[at]), int(words[at + 1])
    second = int(words[at + 2]) if length > 1 else key
    if branch > 0 and n_branches <= 3 and _only_single_terms(words, word, n_branches):
        third = int(words[word + 4]) if branch == 2 else int(words[word + 2])
        return 0, int(words[word + 2]) | (third << 32)
    if branch > 0 or length > 3:
        return _WANTED | _ASK, second | (branch << 32)
    if length == 1:
        return _WANTED | _PLAIN, key | (key << 32)
    third = int(words[at + 3]) if length > 2 else second
    return _WANTED, second | (third << 32)


@kernel
def _copy(forest: Forest, source: int, row: int) -> None:
    forest.sides[row] = forest.sides[source]
    forest.slots[row] = forest.slots[source]
    forest.others[row] = forest.others[source]


@kernel
def _append(
    forest: Forest, target: NDArray[np.int64], corners: tuple[int, int, int, int], slot: int, kind: int, others: int
) -> None:  # fmt: skip
    """Put a posting at the end of a list; there is room for the list to double."""
    node, depth, column, line = target[0], target[1], target[2], target[3]
    nodes = forest.nodes
    length, room = int(nodes[node, _LENGTH]), int(nodes[node, _CLASS])
    if room == 0 or length == 1 << (room - 1):
        old = int(nodes[node, _START])
        new = _take_rows(forest, room)
        for i in range(length):
            _copy(forest, old + i, new + i)
        if room > 0:
            _give_rows(forest, old, room - 1)
        nodes[node, _START] = new
        nodes[node, _CLASS] = room + 1
    row = int(nodes[node, _START]) + length
    left, bottom, right, top = corners
    box = _lanes(
        _low_step(left, depth, column),
        _high_step(right, depth, column),
        _low_step(bottom, depth, line),
        _high_step(top, depth, line),
    )
    forest.sides[row] = box | (kind << _KIND)
    forest.slots[row] = slot
    forest.others[row] = others
    nodes[node, _LENGTH] = length + 1


@kernel
def _count_narrow(forest: Forest, target: NDArray[np.int64]) -> tuple[int, int]:
    """Return how many boxes of a list would go to children, and how many postings they would be there."""
    node, depth, column, line = target[0], target[1], target[2], target[3]
    start, length = int(forest.nodes[node, _START]), int(forest.nodes[node, _LENGTH])
    n = copies = 0
    for row in range(start, start + length):
        left, bottom, right, top = _corners(forest, forest.slots[row])
        first, last = _children(left, right, depth, column)
        lowest, highest = _children(bottom, top, depth, line)
        if last - first < SPAN and highest - lowest < SPAN:
            n += 1
            copies += (last - first + 1) * (highest - lowest + 1)
    return n, copies


@kernel
def _split(forest: Forest, target: NDArray[np.int64], copies: int) -> bool:
    """Give a node children and its narrow boxes to them; False, and nothing done, if there is no room."""
    node, depth, column, line = target[0], target[1], target[2], target[3]
    nodes, state = forest.nodes, forest.state
    state[NEED_ROWS] = state[ROWS] + 8 * copies  # doubled to the next power, on the way there, and in line
    state[NEED_NODES] = state[NODES] + BLOCK
    if state[NEED_ROWS] > forest.sides.size or state[NEED_NODES] > forest.ids.size:
        return False
    start, length = int(nodes[node, _START]), int(nodes[node, _LENGTH])
    kids = _take_block(forest)
    nodes[node, _KIDS] = kids
    child = np.zeros(4, np.int64)
    child[1] = depth + 1
    kept = 0
    for row in range(start, start + length):
        slot, kind, others = forest.slots[row], forest.sides[row] >> _KIND, forest.others[row]
        corners = _corners(forest, slot)
        first, last = _children(corners[0], corners[2], depth, column)
        lowest, highest = _children(corners[1], corners[3], depth, line)
        if last - first >= SPAN or highest - lowest >= SPAN:
            _copy(forest, row, start + kept)
            kept += 1
            continue
        for y in range(lowest, highest + 1):
            for x in range(first, last + 1):
                child[0] = kids + ((y & (FAN - 1)) << BITS) + (x & (FAN - 1))
                child[2], child[3] = x, y
                _append(forest, child, corners, slot, kind, others)
    nodes[node, _LENGTH] = kept
    _shrink(forest, node)
    return True


@kernel
def _shrink(forest: Forest, node: int) -> None:
    """Give back the upper halves of a block that is a quarter full, and all of an empty one."""
    nodes = forest.nodes
    length, start = int(nodes[node, _LENGTH]), int(nodes[node, _START])
    room = int(nodes[node, _CLASS])
    if length == 0 and room > 0:
        _give_rows(forest, start, room - 1)
        nodes[node, _START] = nodes[node, _CLASS] = 0
        return
    while room > 2 and length * 4 <= 1 << (room - 1):
        room -= 1
        _give_rows(forest, start + (1 << (room - 1)), room - 1)
    nodes[node, _CLASS] = room


@kernel
def _split_long(forest: Forest, targets: NDArray[np.int64], n: int) -> bool:
    """Split those of some lists that are due and gain by it; False if there is no room, to be called again.

    A list is due whenever its length reaches a power of two, so that looking costs little an insertion.
    """
    for i in range(n):
        node = targets[i, 0]
        length = int(forest.nodes[node, _LENGTH])
        is_due = length >= SPLIT and length & (length - 1) == 0
        if is_due and forest.nodes[node, _KIDS] == 0 and targets[i, 1] < DEPTH:
            n_narrow, copies = _count_narrow(forest, targets[i])
            if 2 * n_narrow >= length and not _split(forest, targets[i], copies):
                return False
    return True


@kernel
def _rows_to_append(forest: Forest, targets: NDArray[np.int64], n: int) -> int:
    """Return how many new postings it may take to append one to each list."""
    rows = 0
    for i in range(n):
        room = int(forest.nodes[targets[i, 0], _CLASS])
        if room == 0 or forest.nodes[targets[i, 0], _LENGTH] == 1 << (room - 1):
            rows += 2 << room  # as much again to start at a multiple of it
    return rows


@kernel
def boolean_insert(forest: Forest, arrivals: Arrivals, start: int, targets: NDArray[np.int64]) -> int:
    """Insert branches from `start` on; return where it stopped for want of room.

    Called again with more room and that branch, it goes on: what was done of the branch is not done twice.
    """
    state = forest.state
    for b in range(start, arrivals.owners.size):
        i = arrivals.owners[b]
        slot = int(arrivals.slots[i])
        state[NEED_ROWS] = state[NEED_WORDS] = state[NEED_NODES] = 0
        if forest.records[slot] == _NONE and not _register(forest, arrivals, i):
            return b
        branch = b - arrivals.branch_indptr[i]
        at = int(forest.records[slot]) + 1 + branch
        at += arrivals.term_indptr[b] - arrivals.term_indptr[arrivals.branch_indptr[i]]
        corners = _corners(forest, slot)
        n = _reach(forest, int(forest.words[at + 1]), corners, targets)
        if state[APPENDED] == 0:
            state[NEED_ROWS] = state[ROWS] + _rows_to_append(forest, targets, n)
            if state[NEED_ROWS] > forest.sides.size:
                return b
            kind, others = _condition(forest, slot, branch, at)
            for j in range(n):
                _append(forest, targets[j], corners, slot, kind, others)
            state[APPENDED] = 1
        if not _split_long(forest, targets, n):
            return b
        state[APPENDED] = 0
    return arrivals.owners.size


@kernel
def _remove(forest: Forest, node: int, slot: int) -> None:
    """Remove a posting of a subscription from a list; whichever, since all of them go."""
    start, length = int(forest.nodes[node, _START]), int(forest.nodes[node, _LENGTH])
    for row in range(start, start + length):
        if forest.slots[row] == slot:
            _copy(forest, start + length - 1, row)
            forest.nodes[node, _LENGTH] = length - 1
            _shrink(forest, node)
            return


@kernel
def _prune(forest: Forest, root: int, target: NDArray[np.int64]) -> None:
    """Free the blocks of children above a list, from the lowest up, as far as all of a block are empty."""
    nodes = forest.nodes
    depth, column, line = target[1], target[2], target[3]
    for above in range(depth - 1, -1, -1):
        node = root
        for d in range(1, above + 1):
            x, y = column >> (BITS * (depth - d)), line >> (BITS * (depth - d))
            node = int(nodes[node, _KIDS]) + ((y & (FAN - 1)) << BITS) + (x & (FAN - 1))
        kids = int(nodes[node, _KIDS])
        for child in range(kids, kids + BLOCK):
            if nodes[child, _LENGTH] != 0 or nodes[child, _KIDS] != 0:
                return
        nodes[node, _KIDS] = 0
        nodes[kids, _START] = forest.state[FREE_BLOCK]
        forest.state[FREE_BLOCK] = kids


@kernel
def _release(forest: Forest, number: int) -> None:
    """Drop one use of a term, and the term after its last."""
    forest.refs[number] -= 1
    if forest.refs[number] == 0:
        table_remove(forest.table, forest.ids[number])
        forest.nodes[number, _START] = forest.state[FREE_TERM]
        forest.state[FREE_TERM] = number


@kernel
def boolean_delete(forest: Forest, slots: NDArray[np.int32], targets: NDArray[np.int64]) -> None:
    """Delete subscriptions: postings, expression, and what is empty after that."""
    words = forest.words
    for slot in slots:
        word = int(forest.records[slot])
        corners = _corners(forest, slot)
        at = word + 1
        for _ in range(words[word]):
            root = int(words[at + 1])
            n = _reach(forest, root, corners, targets)
            for j in range(n):
                _remove(forest, targets[j, 0], slot)
                if forest.nodes[targets[j, 0], _LENGTH] == 0 and forest.nodes[targets[j, 0], _KIDS] == 0:
                    _prune(forest, root, targets[j])
            at += 1 + words[at]
        n_words = at - word
        at = word + 1
        for _ in range(words[word]):  # after all lists: a term may be a key here and a companion there
            length = int(words[at])
            for term in range(at + 1, at + 1 + length):
                _release(forest, int(words[term]))
            at += 1 + length
        c = _class_of(n_words)
        words[word] = forest.free_words[c]
        forest.free_words[c] = word
        forest.records[slot] = _NONE
        forest.state[LIVE] -= 1


@kernel
def boolean_sizes(forest: Forest, slots: NDArray[np.int32], n_branches: NDArray[np.int64]) -> int:
    """Write how many branches each slot has; return how many terms they have together."""
    n_terms = 0
    for i in range(slots.size):
        at = int(forest.records[slots[i]])
        n_branches[i] = forest.words[at]
        at += 1
        for _ in range(n_branches[i]):
            n_terms += forest.words[at]
            at += 1 + int(forest.words[at])
    return n_terms


@kernel
def boolean_export(
    forest: Forest, slots: NDArray[np.int32], n_terms: NDArray[np.int64], term_ids: NDArray[np.int64]
) -> None:  # fmt: skip
    """Write the length of each branch of some slots, and the terms of all."""
    branch = term = 0
    for slot in slots:
        at = int(forest.records[slot])
        last = branch + forest.words[at]
        at += 1
        while branch < last:
            n_terms[branch] = forest.words[at]
            for word in range(at + 1, at + 1 + n_terms[branch]):
                term_ids[term] = forest.ids[forest.words[word]]
                term += 1
            at += 1 + n_terms[branch]
            branch += 1


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
            if nodes[node, _LENGTH] != 0:
                lists[n, 0], lists[n, 1], lists[n, 2] = nodes[node, _START], nodes[node, _LENGTH], depth
                n += 1
            node = int(nodes[node, _KIDS])
            if node != 0:
                depth += 1
                shift = TOTAL_BITS - BITS * depth
                node += (((y >> shift) & (FAN - 1)) << BITS) + ((x >> shift) & (FAN - 1))
    return n


@kernel
def _touch(forest: Forest, lists: NDArray[np.int64], n: int) -> int:
    """Read one word of each cache line of some lists; the answer means nothing.

    These reads wait for nothing, so that their cache misses overlap as far as the machine can; a third of the time
    of sifting is saved.
    """
    touched = 0
    for i in range(n):
        for row in range(lists[i, 0], lists[i, 0] + lists[i, 1], _LINE):
            touched ^= forest.sides[row]
    return touched


@kernel
def _sift(forest: Forest, one: NDArray[np.int64], x: int, y: int, rows: NDArray[np.int64], n: int) -> int:
    """Write the postings of a list whose box may hold a point from `n` on; return where they end.

    What is written is the row, then in 4 bits the kind and whether the box does hold the point. Nothing here is a
    branch: which posting passes is as good as random.
    """
    start, length, depth = one[0], one[1], one[2]
    x, y = _low_step(x, depth, 0), _low_step(y, depth, 0)
    weak = _lanes(x, x, y, y) | _GUARDS
    strict = weak - _ONES
    sides = forest.sides[start : start + length]
    for i in range(length):
        side = sides[i]
        sure = ((strict - side) & _GUARDS) == _GUARDS
        rows[n] = ((start + i) << 4) | ((side >> _KIND) << 1) | sure
        n += ((weak - side) & _GUARDS) == _GUARDS
    return n


@kernel
def _take_plain(forest: Forest, n: int, desk: Desk, filled: int) -> tuple[int, int]:
    """Write the slots of postings that nothing is left to ask of; return where they end, and how many are left."""
    rows, slots = desk.rows, desk.slots
    left = 0
    for i in range(n):
        row = rows[i]
        decided = (row & (_PLAIN << 1 | 1)) == (_PLAIN << 1 | 1)
        slots[filled] = forest.slots[row >> 4]
        filled += decided
        rows[left] = row
        left += not decided
    return filled, left


@kernel
def _take_others(forest: Forest, n: int, x: float, y: float, desk: Desk, filled: int) -> int:
    """Write the slots of postings whose other terms, box and expression agree; return where they end."""
    held, slots, rows = desk.held, desk.slots, desk.rows
    for i in range(n):
        desk.work[TOUCHED] ^= forest.others[rows[i] >> 4]
    first = filled
    failed = 0
    for i in range(n):
        row = rows[i] >> 4
        others, slot = forest.others[row], forest.slots[row]
        wanted, ask = (rows[i] & (_WANTED << 1)) != 0, (rows[i] & (_ASK << 1)) != 0
        passes = (_holds(held, others & _LOW) == wanted) & ((_holds(held, others >> 32) == wanted) | ask)
        if passes & (ask | ((rows[i] & 1) == 0)):
            passes = _is_inside(forest, slot, x, y) and (not ask or _is_first(forest, slot, others >> 32, held))
            failed += not passes
        slots[filled] = slot
        filled += passes
    desk.work[CANDIDATES] += filled - first + failed
    return filled


@kernel
def boolean_numbers(forest: Forest, term_ids: NDArray[np.int64], numbers: NDArray[np.int32]) -> None:
    """Write the numbers of terms, 0 for those that no subscription holds.

    A loop of its own: lookups do not depend on each other, so their cache misses overlap.
    """
    for i in range(term_ids.size):
        slot = table_find(forest.table, term_ids[i])
        numbers[i] = forest.table.entries[slot, 1] if slot >= 0 else 0


@kernel
def boolean_match(forest: Forest, messages: Messages, start: int, stop: int, desk: Desk) -> int:
    """Match messages from row `start` on; return the row that found no room, or `stop`."""
    frame, work = forest.frame, desk.work
    base = messages.term_indptr[start]
    boolean_numbers(forest, messages.term_ids[base : messages.term_indptr[stop]], desk.numbers)
    for row in range(start, stop):
        numbers = desk.numbers[messages.term_indptr[row] - base : messages.term_indptr[row + 1] - base]
        x, y = messages.xs[row], messages.ys[row]
        left, bottom = quantize(x * 0.5, frame[0], frame[2]), quantize(y * 0.5, frame[1], frame[3])
        n = _find_lists(forest, left, bottom, numbers, desk.lists)
        before = filled = work[FILLED]
        work[NEEDED] = 1
        for i in range(n):
            work[NEEDED] += desk.lists[i, 1]
        if filled + work[NEEDED] > min(desk.slots.size, desk.rows.size):
            return row
        for number in numbers:
            if number != 0:
                _hold(desk.held, number)
        work[TOUCHED] ^= _touch(forest, desk.lists, n)
        n_rows = 0
        for i in range(n):
            n_rows = _sift(forest, desk.lists[i], left, bottom, desk.rows, n_rows)
        filled, n_rows = _take_plain(forest, n_rows, desk, filled)
        work[CANDIDATES] += filled - before
        filled = _take_others(forest, n_rows, x, y, desk, filled)
        for number in numbers:
            _drop(desk.held, number)
        work[VISITED] += work[NEEDED] - 1
        work[FILLED] = filled
        desk.counts[row] = filled - before
    return stop
