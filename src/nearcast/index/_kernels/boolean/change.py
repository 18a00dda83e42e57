"""How do subscriptions come and go? Lists that grow, are cut up by space, and shrink."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, table_get, table_put, table_remove
from nearcast.index._kernels.boolean.blocks import class_of, give_rows, take_block, take_rows, take_words
from nearcast.index._kernels.boolean.geometry import children_of, corners_of, high_step, lanes_of, low_step, reach
from nearcast.index._kernels.boolean.layout import (
    AHEAD,
    APPENDED,
    BITS,
    BLOCK,
    CHECK_OTHERS,
    CLASS,
    DEPTH,
    FAN,
    FREE_BLOCK,
    FREE_TERM,
    KIDS,
    KIND,
    LENGTH,
    LIVE,
    NEED_NODES,
    NEED_ROWS,
    NEED_WORDS,
    NODES,
    NONE,
    PLAIN,
    ROWS,
    SPAN,
    SPLIT,
    START,
    TARGETS,
    WANTED,
    WORDS,
    Arrivals,
    Forest,
)


@kernel
def _number(forest: Forest, term_id: int) -> int:
    """Return the number of a term, a new one if need be; there is room for it."""
    number = table_get(forest.table, term_id, 0)
    if number == 0:
        if forest.state[FREE_TERM] == NONE:
            block = take_block(forest)
            for node in range(block + BLOCK - 1, max(block, 1) - 1, -1):  # no term has number 0
                forest.nodes[node, START] = forest.state[FREE_TERM]
                forest.state[FREE_TERM] = node
        number = int(forest.state[FREE_TERM])
        forest.state[FREE_TERM] = forest.nodes[number, START]
        forest.nodes[number, START] = 0
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
    c = class_of(1 + last - first + n_terms)
    n_nodes = (n_terms // (BLOCK - 1) + 1) * BLOCK
    state[NEED_WORDS] = state[WORDS] + (1 << c)
    state[NEED_NODES] = state[NODES] + n_nodes
    table_fits = forest.table.n_taken[0] + n_terms <= tags.size - tags.size // 4
    if state[NEED_WORDS] > forest.words.size or state[NEED_NODES] > forest.ids.size or not table_fits:
        return False
    slot = arrivals.slots[i]
    word = take_words(forest, c)
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
        return WANTED | CHECK_OTHERS, second | (branch << 32)
    if length == 1:
        return WANTED | PLAIN, key | (key << 32)
    third = int(words[at + 3]) if length > 2 else second
    return WANTED, second | (third << 32)


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
    length, room = int(nodes[node, LENGTH]), int(nodes[node, CLASS])
    if room == 0 or length == 1 << (room - 1):
        old = int(nodes[node, START])
        new = take_rows(forest, room)
        for i in range(length):
            _copy(forest, old + i, new + i)
        if room > 0:
            give_rows(forest, old, room - 1)
        nodes[node, START] = new
        nodes[node, CLASS] = room + 1
    row = int(nodes[node, START]) + length
    left, bottom, right, top = corners
    box = lanes_of(
        low_step(left, depth, column),
        high_step(right, depth, column),
        low_step(bottom, depth, line),
        high_step(top, depth, line),
    )
    forest.sides[row] = box | (kind << KIND)
    forest.slots[row] = slot
    forest.others[row] = others
    nodes[node, LENGTH] = length + 1


@kernel
def _count_narrow(forest: Forest, target: NDArray[np.int64]) -> tuple[int, int]:
    """Return how many boxes of a list would go to children, and how many postings they would be there."""
    node, depth, column, line = target[0], target[1], target[2], target[3]
    start, length = int(forest.nodes[node, START]), int(forest.nodes[node, LENGTH])
    n = copies = 0
    for row in range(start, start + length):
        left, bottom, right, top = corners_of(forest, forest.slots[row])
        first, last = children_of(left, right, depth, column)
        lowest, highest = children_of(bottom, top, depth, line)
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
    start, length = int(nodes[node, START]), int(nodes[node, LENGTH])
    kids = take_block(forest)
    nodes[node, KIDS] = kids
    child = np.zeros(4, np.int64)
    child[1] = depth + 1
    kept = 0
    for row in range(start, start + length):
        slot, kind, others = forest.slots[row], forest.sides[row] >> KIND, forest.others[row]
        corners = corners_of(forest, slot)
        first, last = children_of(corners[0], corners[2], depth, column)
        lowest, highest = children_of(corners[1], corners[3], depth, line)
        if last - first >= SPAN or highest - lowest >= SPAN:
            _copy(forest, row, start + kept)
            kept += 1
            continue
        for y in range(lowest, highest + 1):
            for x in range(first, last + 1):
                child[0] = kids + ((y & (FAN - 1)) << BITS) + (x & (FAN - 1))
                child[2], child[3] = x, y
                _append(forest, child, corners, slot, kind, others)
    nodes[node, LENGTH] = kept
    _shrink(forest, node)
    return True


@kernel
def _shrink(forest: Forest, node: int) -> None:
    """Give back the upper halves of a block that is a quarter full, and all of an empty one."""
    nodes = forest.nodes
    length, start = int(nodes[node, LENGTH]), int(nodes[node, START])
    room = int(nodes[node, CLASS])
    if length == 0 and room > 0:
        give_rows(forest, start, room - 1)
        nodes[node, START] = nodes[node, CLASS] = 0
        return
    while room > 2 and length * 4 <= 1 << (room - 1):
        room -= 1
        give_rows(forest, start + (1 << (room - 1)), room - 1)
    nodes[node, CLASS] = room


@kernel
def _split_long(forest: Forest, targets: NDArray[np.int64], n: int) -> bool:
    """Split those of some lists that are due and gain by it; False if there is no room, to be called again.

    A list is due whenever its length reaches a power of two, so that looking costs little an insertion.
    """
    for i in range(n):
        node = targets[i, 0]
        length = int(forest.nodes[node, LENGTH])
        is_due = length >= SPLIT and length & (length - 1) == 0
        if is_due and forest.nodes[node, KIDS] == 0 and targets[i, 1] < DEPTH:
            n_narrow, copies = _count_narrow(forest, targets[i])
            if 2 * n_narrow >= length and not _split(forest, targets[i], copies):
                return False
    return True


@kernel
def _rows_to_append(forest: Forest, targets: NDArray[np.int64], n: int) -> int:
    """Return how many new postings it may take to append one to each list."""
    rows = 0
    for i in range(n):
        room = int(forest.nodes[targets[i, 0], CLASS])
        if room == 0 or forest.nodes[targets[i, 0], LENGTH] == 1 << (room - 1):
            rows += 2 << room  # as much again to start at a multiple of it
    return rows


@kernel
def boolean_order(
    term_indptr: NDArray[np.int64], term_ids: NDArray[np.int64], idfs: NDArray[np.float64], out: NDArray[np.int64]
) -> None:  # fmt: skip
    """Write the terms of each branch by falling idf, equal ones as they come: by ascending id."""
    for b in range(term_indptr.size - 1):
        first = term_indptr[b]
        for i in range(first, term_indptr[b + 1]):
            at = i
            while at > first and idfs[out[at - 1]] < idfs[i]:
                out[at] = out[at - 1]
                at -= 1
            out[at] = i
    for i in range(out.size):
        out[i] = term_ids[out[i]]


@kernel
def _touch(forest: Forest, term_ids: NDArray[np.int64]) -> int:
    """Read what inserting some terms will need; the answer means nothing, but cache misses overlap here."""
    touched = 0
    for term_id in term_ids:
        number = table_get(forest.table, term_id, 0)
        if number != 0:
            touched ^= forest.refs[number] ^ forest.nodes[number, START]
    return touched


@kernel
def boolean_insert(forest: Forest, arrivals: Arrivals, start: int, targets: NDArray[np.int64]) -> int:
    """Insert branches from `start` on; return where it stopped for want of room.

    Called again with more room and that branch, it goes on: what was done of the branch is not done twice.
    """
    state = forest.state
    for b in range(start, arrivals.owners.size):
        i = arrivals.owners[b]
        slot = int(arrivals.slots[i])
        if (b - start) % AHEAD == 0:
            last = arrivals.term_indptr[min(b + AHEAD, arrivals.owners.size)]
            upcoming = arrivals.term_ids[arrivals.term_indptr[b] : last]
            targets[TARGETS - 1, 0] = _touch(forest, upcoming)  # kept, so that no compiler drops it
        state[NEED_ROWS] = state[NEED_WORDS] = state[NEED_NODES] = 0
        if forest.records[slot] == NONE and not _register(forest, arrivals, i):
            return b
        branch = b - arrivals.branch_indptr[i]
        at = int(forest.records[slot]) + 1 + branch
        at += arrivals.term_indptr[b] - arrivals.term_indptr[arrivals.branch_indptr[i]]
        corners = corners_of(forest, slot)
        n = reach(forest, int(forest.words[at + 1]), corners, targets)
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
    start, length = int(forest.nodes[node, START]), int(forest.nodes[node, LENGTH])
    for row in range(start, start + length):
        if forest.slots[row] == slot:
            _copy(forest, start + length - 1, row)
            forest.nodes[node, LENGTH] = length - 1
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
            node = int(nodes[node, KIDS]) + ((y & (FAN - 1)) << BITS) + (x & (FAN - 1))
        kids = int(nodes[node, KIDS])
        for child in range(kids, kids + BLOCK):
            if nodes[child, LENGTH] != 0 or nodes[child, KIDS] != 0:
                return
        nodes[node, KIDS] = 0
        nodes[kids, START] = forest.state[FREE_BLOCK]
        forest.state[FREE_BLOCK] = kids


@kernel
def _release(forest: Forest, number: int) -> None:
    """Drop one use of a term, and the term after its last."""
    forest.refs[number] -= 1
    if forest.refs[number] == 0:
        table_remove(forest.table, forest.ids[number])
        forest.nodes[number, START] = forest.state[FREE_TERM]
        forest.state[FREE_TERM] = number


@kernel
def boolean_delete(forest: Forest, slots: NDArray[np.int32], targets: NDArray[np.int64]) -> None:
    """Delete subscriptions: postings, expression, and what is empty after that."""
    words = forest.words
    for slot in slots:
        word = int(forest.records[slot])
        corners = corners_of(forest, slot)
        at = word + 1
        for _ in range(words[word]):
            root = int(words[at + 1])
            n = reach(forest, root, corners, targets)
            for j in range(n):
                _remove(forest, targets[j, 0], slot)
                if forest.nodes[targets[j, 0], LENGTH] == 0 and forest.nodes[targets[j, 0], KIDS] == 0:
                    _prune(forest, root, targets[j])
            at += 1 + words[at]
        n_words = at - word
        at = word + 1
        for _ in range(words[word]):  # after all lists: a term may be a key here and a companion there
            length = int(words[at])
            for term in range(at + 1, at + 1 + length):
                _release(forest, int(words[term]))
            at += 1 + length
        c = class_of(n_words)
        words[word] = forest.free_words[c]
        forest.free_words[c] = word
        forest.records[slot] = NONE
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
