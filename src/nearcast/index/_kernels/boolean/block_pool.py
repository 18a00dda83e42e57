"""Blocks of postings, words and nodes: a buddy allocator for postings, free lists for the others.

A block of postings is a power of two and starts at a multiple of its size. A larger block is halved where no block of
the class is free, and a free block is joined with its other half.
"""

from __future__ import annotations

from nearcast._jit import kernel
from nearcast.index._kernels.boolean.layout import BLOCK, CLASSES, FREE_BLOCK, NODES, NONE, ROWS, START, WORDS, Forest


@kernel
def link_rows(forest: Forest, row: int, c: int) -> None:
    """Put a block of 2**c postings on its free list."""
    following = int(forest.free_rows[c])
    forest.sides[row], forest.others[row] = following, NONE
    if following != NONE:
        forest.others[following] = row
    forest.free_rows[c] = row
    forest.free_tags[row] = c + 1


@kernel
def unlink_rows(forest: Forest, row: int, c: int) -> None:
    """Remove a block from its free list."""
    following, before = int(forest.sides[row]), int(forest.others[row])
    if following != NONE:
        forest.others[following] = before
    if before != NONE:
        forest.sides[before] = following
    else:
        forest.free_rows[c] = following
    forest.free_tags[row] = 0


@kernel
def take_rows(forest: Forest, c: int) -> int:
    """Return a block of 2**c postings: a free one, a part of a larger free one, or a new one. There must be room."""
    for larger in range(c, CLASSES):
        row = int(forest.free_rows[larger])
        if row != NONE:
            unlink_rows(forest, row, larger)
            for half in range(c, larger):
                link_rows(forest, row + (1 << half), half)
            return row
    row = int(forest.state[ROWS])
    for lower in range(c):
        if row & (1 << lower):
            link_rows(forest, row, lower)
            row += 1 << lower
    forest.state[ROWS] = row + (1 << c)
    return row


@kernel
def give_rows(forest: Forest, row: int, c: int) -> None:
    """Free a block of 2**c postings, and join it with its other half as long as that is free."""
    while True:
        other = row ^ (1 << c)
        if other >= forest.state[ROWS] or forest.free_tags[other] != c + 1:
            break
        unlink_rows(forest, other, c)
        row = min(row, other)
        c += 1
    link_rows(forest, row, c)


@kernel
def take_words(forest: Forest, c: int) -> int:
    """Return a block of 2**c words. There must be room."""
    word = int(forest.free_words[c])
    if word != NONE:
        forest.free_words[c] = forest.words[word]
        return word
    word = int(forest.state[WORDS])
    forest.state[WORDS] += 1 << c
    return word


@kernel
def take_nodes(forest: Forest) -> int:
    """Return the first of BLOCK nodes with empty lists. There must be room."""
    block = int(forest.state[FREE_BLOCK])
    if block != NONE:
        forest.state[FREE_BLOCK] = forest.nodes[block, START]
        forest.nodes[block, START] = 0
        return block
    block = int(forest.state[NODES])
    forest.state[NODES] += BLOCK
    return block
