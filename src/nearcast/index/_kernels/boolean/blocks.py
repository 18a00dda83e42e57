"""Where do lists lie? Blocks of a power of two, halved and joined again."""

from __future__ import annotations

from nearcast._jit import kernel
from nearcast.index._kernels.boolean.layout import BLOCK, CLASSES, FREE_BLOCK, NODES, NONE, ROWS, START, WORDS, Forest


@kernel
def class_of(n: int) -> int:
    """Return the least c with 2**c >= n."""
    c = 0
    while (1 << c) < n:
        c += 1
    return c


@kernel
def _link(forest: Forest, row: int, c: int) -> None:
    """Put a block of 2**c postings in front of the free ones."""
    following = int(forest.free_rows[c])
    forest.sides[row], forest.others[row] = following, NONE
    if following != NONE:
        forest.others[following] = row
    forest.free_rows[c] = row
    forest.free_tags[row] = c + 1


@kernel
def _unlink(forest: Forest, row: int, c: int) -> None:
    """Take a block out of the free ones."""
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
    """Return the first of 2**c free postings: a free block, part of a larger one, or new ones.

    Blocks start at multiples of their size, so that two halves know each other and can be joined again.
    """
    for larger in range(c, CLASSES):
        row = int(forest.free_rows[larger])
        if row != NONE:
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
def give_rows(forest: Forest, row: int, c: int) -> None:
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
def take_words(forest: Forest, c: int) -> int:
    word = int(forest.free_words[c])
    if word != NONE:
        forest.free_words[c] = forest.words[word]
        return word
    word = int(forest.state[WORDS])
    forest.state[WORDS] += 1 << c
    return word


@kernel
def take_block(forest: Forest) -> int:
    """Return the first of BLOCK nodes with empty lists."""
    block = int(forest.state[FREE_BLOCK])
    if block != NONE:
        forest.state[FREE_BLOCK] = forest.nodes[block, START]
        forest.nodes[block, START] = 0
        return block
    block = int(forest.state[NODES])
    forest.state[NODES] += BLOCK
    return block
