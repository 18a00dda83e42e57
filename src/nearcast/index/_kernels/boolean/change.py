"""Insertion and deletion of subscriptions: lists that grow, are split by space, and shrink."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch, table_get, table_put, table_remove
from nearcast.index._kernels.boolean.block_pool import give_rows, take_nodes, take_rows, take_words
from nearcast.index._kernels.boolean.geometry import (
    children_of,
    corners_of,
    high_step,
    lists_of_box,
    low_step,
    pack_lanes,
)
from nearcast.index._kernels.boolean.layout import (
    AHEAD,
    APPENDED,
    BITS,
    BLOCK,
    CHECK_EXPRESSION,
    CHILDREN,
    CLASS,
    DEPTH,
    FAN,
    FREE_BLOCK,
    FREE_TERM,
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
    Forest,
    NewSubscriptions,
)
from nearcast.index._kernels.shared.size_class import class_of_size
from nearcast.index._kernels.shared.term_order import order_by_weight

_PIECE = 64  # postings that are compared at once
_LONG, _MANY = 1024, 16  # a list of so many postings is swept where so many subscriptions are deleted
_SWEPT = 1024  # lists that are remembered; one that is swept again costs time only
_DELETED = -2  # less the start of its expression: the record of a subscription that is being deleted


@kernel
def acquire_term(forest: Forest, term_id: int) -> int:
    """Count one use of a term and return its number; a new term takes a free number. There must be room."""
    number = table_get(forest.table, term_id, 0)
    if number == 0:
        if forest.state[FREE_TERM] == NONE:
            block = take_nodes(forest)
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
def write_record(forest: Forest, subscriptions: NewSubscriptions, i: int) -> bool:
    """Write the box and expression of a subscription; return False, with nothing changed, if there is no room."""
    first, last = subscriptions.branch_indptr[i], subscriptions.branch_indptr[i + 1]
    n_terms = subscriptions.term_indptr[last] - subscriptions.term_indptr[first]
    state, tags = forest.state, forest.table.tags
    c = class_of_size(1 + last - first + n_terms)
    n_nodes = (n_terms // (BLOCK - 1) + 1) * BLOCK
    state[NEED_WORDS] = state[WORDS] + (1 << c)
    state[NEED_NODES] = state[NODES] + n_nodes
    table_fits = forest.table.n_taken[0] + n_terms <= tags.size - tags.size // 4
    if state[NEED_WORDS] > forest.words.size or state[NEED_NODES] > forest.ids.size or not table_fits:
        return False
    slot = subscriptions.slots[i]
    word = take_words(forest, c)
    forest.records[slot] = word
    for side in range(4):
        forest.boxes[slot, side] = subscriptions.boxes[i, side]
    forest.words[word] = last - first
    word += 1
    for branch in range(first, last):
        start, stop = subscriptions.term_indptr[branch], subscriptions.term_indptr[branch + 1]
        forest.words[word] = stop - start
        word += 1
        for at in range(start, stop):
            forest.words[word] = acquire_term(forest, subscriptions.term_ids[at])
            word += 1
    state[LIVE] += 1
    return True


@kernel
def has_single_terms(words: NDArray[np.int32], word: int, n_branches: int) -> bool:
    """Return whether every branch of an expression is a single term."""
    n = 0
    for branch in range(n_branches):
        n += words[word + 1 + 2 * branch] == 1  # as long as all before were single
    return n == n_branches


@kernel
def condition_of(forest: Forest, slot: int, branch: int, at: int) -> tuple[int, int]:
    """Return the kind and the other terms of the posting of a branch, whose length is at `words[at]`.

    Beside its key, a posting has two terms that the message must hold or must not hold: an AND of three, or an OR of
    three that is reported under its first term alone. Any other branch has one term and its number, and the
    expression decides.
    """
    words, word = forest.words, int(forest.records[slot])
    n_branches, length, key = int(words[word]), int(words[at]), int(words[at + 1])
    second = int(words[at + 2]) if length > 1 else key
    if branch > 0 and n_branches <= 3 and has_single_terms(words, word, n_branches):
        third = int(words[word + 4]) if branch == 2 else int(words[word + 2])
        return 0, int(words[word + 2]) | (third << 32)
    if branch > 0 or length > 3:
        return WANTED | CHECK_EXPRESSION, second | (branch << 32)
    if length == 1:
        return WANTED | PLAIN, key | (key << 32)
    third = int(words[at + 3]) if length > 2 else second
    return WANTED, second | (third << 32)


@kernel
def copy_posting(forest: Forest, source: int, row: int) -> None:
    """Copy one posting."""
    forest.sides[row] = forest.sides[source]
    forest.slots[row] = forest.slots[source]
    forest.others[row] = forest.others[source]


@kernel
def append_posting(
    forest: Forest, target: NDArray[np.int64], corners: tuple[int, int, int, int], slot: int, kind: int, others: int
) -> None:
    """Append a posting to a list. There must be room for the list to double."""
    node, depth, column, line = target[0], target[1], target[2], target[3]
    nodes = forest.nodes
    length, room = int(nodes[node, LENGTH]), int(nodes[node, CLASS])
    if room == 0 or length == 1 << (room - 1):
        old = int(nodes[node, START])
        new = take_rows(forest, room)
        for i in range(length):
            copy_posting(forest, old + i, new + i)
        if room > 0:
            give_rows(forest, old, room - 1)
        nodes[node, START] = new
        nodes[node, CLASS] = room + 1
    row = int(nodes[node, START]) + length
    left, bottom, right, top = corners
    box = pack_lanes(
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
def count_narrow(forest: Forest, target: NDArray[np.int64]) -> tuple[int, int]:
    """Return how many boxes of a list would move to children, and how many postings they would become."""
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


@kernel(allocates=True)
def split_list(forest: Forest, target: NDArray[np.int64], copies: int) -> bool:
    """Give a node children and move its narrow boxes to them; return False, with nothing changed, without room."""
    node, depth, column, line = target[0], target[1], target[2], target[3]
    nodes, state = forest.nodes, forest.state
    state[NEED_ROWS] = state[ROWS] + 8 * copies  # rounded up to a power, doubled on the way there, aligned
    state[NEED_NODES] = state[NODES] + BLOCK
    if state[NEED_ROWS] > forest.sides.size or state[NEED_NODES] > forest.ids.size:
        return False
    start, length = int(nodes[node, START]), int(nodes[node, LENGTH])
    children = take_nodes(forest)
    nodes[node, CHILDREN] = children
    child = np.zeros(4, np.int64)
    child[1] = depth + 1
    n_left = 0
    for row in range(start, start + length):
        slot, kind, others = forest.slots[row], forest.sides[row] >> KIND, forest.others[row]
        corners = corners_of(forest, slot)
        first, last = children_of(corners[0], corners[2], depth, column)
        lowest, highest = children_of(corners[1], corners[3], depth, line)
        if last - first >= SPAN or highest - lowest >= SPAN:
            copy_posting(forest, row, start + n_left)
            n_left += 1
            continue
        for y in range(lowest, highest + 1):
            for x in range(first, last + 1):
                child[0] = children + ((y & (FAN - 1)) << BITS) + (x & (FAN - 1))
                child[2], child[3] = x, y
                append_posting(forest, child, corners, slot, kind, others)
    nodes[node, LENGTH] = n_left
    shrink_list(forest, node)
    return True


@kernel
def shrink_list(forest: Forest, node: int) -> None:
    """Free the upper half of a block that is at most a quarter full, repeatedly, and all of an empty one."""
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
def split_long(forest: Forest, targets: NDArray[np.int64], n: int) -> bool:
    """Split those of some lists that are due and gain by it; return False, to be called again, without room.

    A list is due whenever its length reaches a power of two, so that the test costs little per insertion.
    """
    for i in range(n):
        node = targets[i, 0]
        length = int(forest.nodes[node, LENGTH])
        is_due = length >= SPLIT and length & (length - 1) == 0
        if is_due and forest.nodes[node, CHILDREN] == 0 and targets[i, 1] < DEPTH:
            n_narrow, copies = count_narrow(forest, targets[i])
            if 2 * n_narrow >= length and not split_list(forest, targets[i], copies):
                return False
    return True


@kernel
def rows_to_append(forest: Forest, targets: NDArray[np.int64], n: int) -> int:
    """Return how many new rows it can take to append one posting to each list."""
    rows = 0
    for i in range(n):
        room = int(forest.nodes[targets[i, 0], CLASS])
        if room == 0 or forest.nodes[targets[i, 0], LENGTH] == 1 << (room - 1):
            rows += 2 << room  # as much again to align the block
    return rows


@kernel
def order_branches(
    term_indptr: NDArray[np.int64], term_ids: NDArray[np.int64], idfs: NDArray[np.float64], out: NDArray[np.int64]
) -> None:
    """Write the terms of each branch by falling idf, those of equal idf by ascending id."""
    for b in range(term_indptr.size - 1):
        order_by_weight(idfs, term_indptr[b], term_indptr[b + 1], out[term_indptr[b] :])
    for i in range(out.size):
        out[i] = term_ids[out[i]]


@kernel
def touch_terms(forest: Forest, term_ids: NDArray[np.int64]) -> int:
    """Read what inserting some terms needs, so that the cache misses overlap; the value returned has no meaning."""
    touched = 0
    for term_id in term_ids:
        number = table_get(forest.table, term_id, 0)
        if number != 0:
            touched ^= forest.refs[number] ^ forest.nodes[number, START]
    return touched


@kernel
def insert_branches(forest: Forest, subscriptions: NewSubscriptions, start: int, targets: NDArray[np.int64]) -> int:
    """Insert branches from `start` on; return the branch for which there is no room, or the number of branches.

    A second call with more room and that branch continues: no part of the branch is inserted twice.
    """
    state = forest.state
    for b in range(start, subscriptions.owners.size):
        i = subscriptions.owners[b]
        slot = int(subscriptions.slots[i])
        if (b - start) % AHEAD == 0:
            last = subscriptions.term_indptr[min(b + AHEAD, subscriptions.owners.size)]
            upcoming = subscriptions.term_ids[subscriptions.term_indptr[b] : last]
            targets[TARGETS - 1, 0] = touch_terms(forest, upcoming)  # stored, so that the compiler keeps the reads
        state[NEED_ROWS] = state[NEED_WORDS] = state[NEED_NODES] = 0
        if forest.records[slot] == NONE and not write_record(forest, subscriptions, i):
            return b
        branch = b - subscriptions.branch_indptr[i]
        at = int(forest.records[slot]) + 1 + branch
        at += subscriptions.term_indptr[b] - subscriptions.term_indptr[subscriptions.branch_indptr[i]]
        corners = corners_of(forest, slot)
        n = lists_of_box(forest, int(forest.words[at + 1]), corners, targets)
        if state[APPENDED] == 0:
            state[NEED_ROWS] = state[ROWS] + rows_to_append(forest, targets, n)
            if state[NEED_ROWS] > forest.sides.size:
                return b
            kind, others = condition_of(forest, slot, branch, at)
            for j in range(n):
                append_posting(forest, targets[j], corners, slot, kind, others)
            state[APPENDED] = 1
        if not split_long(forest, targets, n):
            return b
        state[APPENDED] = 0
    return subscriptions.owners.size


@kernel
def remove_posting(forest: Forest, node: int, slot: int) -> None:
    """Remove one posting of a subscription from a list. Any will do, since all of them are removed."""
    slots, row, length = forest.slots, int(forest.nodes[node, START]), int(forest.nodes[node, LENGTH])
    last = row + length - 1
    while row + _PIECE <= last:
        is_here = False
        for i in range(row, row + _PIECE):  # without a branch, so the loop is vectorised
            is_here |= slots[i] == slot
        if is_here:
            break
        row += _PIECE
    while row <= last:
        if slots[row] == slot:
            copy_posting(forest, last, row)
            forest.nodes[node, LENGTH] = length - 1
            shrink_list(forest, node)
            return
        row += 1


@kernel
def sweep_list(forest: Forest, node: int) -> None:
    """Remove all postings of the subscriptions that are being deleted from a list."""
    start, length, n = int(forest.nodes[node, START]), int(forest.nodes[node, LENGTH]), 0
    records, slots = forest.records, forest.slots
    for row in range(start, start + length):
        prefetch(records, slots[min(row + AHEAD, start + length - 1)])
        if records[slots[row]] >= 0:
            copy_posting(forest, row, start + n)
            n += 1
    forest.nodes[node, LENGTH] = n
    shrink_list(forest, node)


@kernel
def remove_from_lists(
    forest: Forest, root: int, slot: int, targets: NDArray[np.int64], swept: NDArray[np.int64]
) -> None:
    """Remove a subscription from its lists under a term.

    Where several are deleted, a long list is swept once for all; `swept` remembers some of these lists.
    """
    for j in range(lists_of_box(forest, root, corners_of(forest, slot), targets)):
        node = targets[j, 0]
        if swept.size > 0 and (swept[node & (swept.size - 1)] == node or forest.nodes[node, LENGTH] >= _LONG):
            if swept[node & (swept.size - 1)] != node:
                sweep_list(forest, node)
                swept[node & (swept.size - 1)] = node
        else:
            remove_posting(forest, node, slot)
        if forest.nodes[node, LENGTH] == 0 and forest.nodes[node, CHILDREN] == 0:
            prune_children(forest, root, targets[j])


@kernel
def prune_children(forest: Forest, root: int, target: NDArray[np.int64]) -> None:
    """Free the blocks of children on the path to a list, from the lowest up, as long as they are empty."""
    nodes = forest.nodes
    depth, column, line = target[1], target[2], target[3]
    for above in range(depth - 1, -1, -1):
        node = root
        for d in range(1, above + 1):
            x, y = column >> (BITS * (depth - d)), line >> (BITS * (depth - d))
            node = int(nodes[node, CHILDREN]) + ((y & (FAN - 1)) << BITS) + (x & (FAN - 1))
        children = int(nodes[node, CHILDREN])
        for child in range(children, children + BLOCK):
            if nodes[child, LENGTH] != 0 or nodes[child, CHILDREN] != 0:
                return
        nodes[node, CHILDREN] = 0
        nodes[children, START] = forest.state[FREE_BLOCK]
        forest.state[FREE_BLOCK] = children


@kernel
def release_term(forest: Forest, number: int) -> None:
    """Discount one use of a term, and free its number after the last."""
    forest.refs[number] -= 1
    if forest.refs[number] == 0:
        table_remove(forest.table, forest.ids[number])
        forest.nodes[number, START] = forest.state[FREE_TERM]
        forest.state[FREE_TERM] = number


@kernel(allocates=True)
def delete_slots(forest: Forest, slots: NDArray[np.int32], targets: NDArray[np.int64]) -> None:
    """Delete subscriptions: their postings and expressions, and what is empty after that."""
    words, records = forest.words, forest.records
    swept = np.full(_SWEPT if slots.size >= _MANY else 0, NONE, np.int64)
    for slot in slots:
        records[slot] = _DELETED - records[slot]
    for slot in slots:
        word = int(_DELETED - records[slot])
        at = word + 1
        for _ in range(words[word]):
            remove_from_lists(forest, int(words[at + 1]), int(slot), targets, swept)
            at += 1 + words[at]
        n_words = at - word
        at = word + 1
        for _ in range(
            words[word]
        ):  # after all lists: a term may be the key of one branch and an other term of the next
            length = int(words[at])
            for term in range(at + 1, at + 1 + length):
                release_term(forest, int(words[term]))
            at += 1 + length
        c = class_of_size(n_words)
        words[word] = forest.free_words[c]
        forest.free_words[c] = word
        records[slot] = NONE
        forest.state[LIVE] -= 1


@kernel
def count_terms(forest: Forest, slots: NDArray[np.int32], n_branches: NDArray[np.int64]) -> int:
    """Write the number of branches of each slot; return the number of their terms."""
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
def export_terms(
    forest: Forest, slots: NDArray[np.int32], n_terms: NDArray[np.int64], term_ids: NDArray[np.int64]
) -> None:
    """Write the length of each branch of some slots, and the terms of all branches."""
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
