"""Where do postings lie? Lists in blocks of a power of two, used again once free."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, table_remove
from nearcast.index._kernels.similarity.layout import (
    BLOCKS,
    FREE_LIST,
    LONGEST,
    N_LISTS,
    USED,
    Pool,
    SimilarityLists,
    SimilarityState,
)


@kernel
def class_of(size: int) -> int:
    """Return the smallest class whose blocks hold `size`."""
    found = 0
    while (1 << found) < size:
        found += 1
    return found


@kernel
def take_block(state: NDArray[np.int64], links: NDArray[np.int32], size_class: int) -> int:
    """Return a block, a free one first; -1 if there is no room."""
    block = int(state[BLOCKS + size_class])
    if block >= 0:
        state[BLOCKS + size_class] = links[block]
        return block
    block = int(state[USED])
    if block + (1 << size_class) > links.size:
        return -1
    state[USED] += 1 << size_class
    return block


@kernel
def give_block(state: NDArray[np.int64], links: NDArray[np.int32], size_class: int, block: int) -> None:
    """Put a block on the free list of its class."""
    links[block] = state[BLOCKS + size_class]
    state[BLOCKS + size_class] = block


@kernel
def copy_posting(source: Pool, at: int, target: Pool, to: int) -> None:
    """Copy one posting."""
    target.others[to] = source.others[at]
    target.slots[to] = source.slots[at]
    if target.exact.size > 0:
        for column in range(6):
            target.exact[to, column] = source.exact[at, column]
    else:
        target.solos[to] = source.solos[at]
        for column in range(4):
            target.points[to, column] = source.points[at, column]


@kernel
def move_list(lists: SimilarityLists, pool: Pool, row: int, size_class: int) -> bool:
    """Move a list to a block of another class; False, with nothing changed, if there is no room."""
    block = take_block(lists.state, pool.slots, size_class)
    if block < 0:
        return False
    start = lists.starts[row]
    for i in range(lists.lengths[row]):
        copy_posting(pool, start + i, pool, block + i)
    if lists.classes[row] >= 0:
        give_block(lists.state, pool.slots, int(lists.classes[row]), start)
    lists.starts[row] = block
    lists.classes[row] = size_class
    return True


@kernel
def room_to_append(lists: SimilarityLists, row: int) -> int:
    """Return how many fresh postings one more entry of a list may take."""
    size_class = int(lists.classes[row])
    if size_class < 0:
        return 1
    return 2 << size_class if lists.lengths[row] == 1 << size_class else 0


@kernel
def claim(lists: SimilarityLists, pool: Pool, row: int, reach: float) -> int:
    """Add an entry to a list for which there is room; return where its posting goes."""
    length, size_class = int(lists.lengths[row]), int(lists.classes[row])
    if size_class < 0 or length == 1 << size_class:
        move_list(lists, pool, row, size_class + 1)
    lists.lengths[row] = length + 1
    lists.reaches[row] = max(lists.reaches[row], reach)
    lists.state[LONGEST] = max(lists.state[LONGEST], length + 1)
    return int(lists.starts[row]) + length


@kernel
def remove_at(lists: SimilarityLists, pool: Pool, row: int, place: int) -> int:
    """Remove the entry at a place; return the slot of the one that moved there, or -1."""
    start, last = lists.starts[row], lists.lengths[row] - 1
    moved = -1
    if place != last:
        copy_posting(pool, start + last, pool, start + place)
        moved = pool.slots[start + place]
    lists.lengths[row] = last
    size_class = int(lists.classes[row])
    if last == 0:
        give_block(lists.state, pool.slots, size_class, start)
        lists.classes[row] = -1
        lists.reaches[row] = 0.0
    elif size_class >= 2 and last <= 1 << (size_class - 2):
        move_list(lists, pool, row, size_class - 1)
    return moved


@kernel
def new_list(lists: SimilarityLists, term: int, cell: int) -> int:
    """Return an empty list; there is room for one."""
    row = int(lists.state[FREE_LIST])
    if row >= 0:
        lists.state[FREE_LIST] = lists.starts[row]
    else:
        row = int(lists.state[N_LISTS])
        lists.state[N_LISTS] += 1
    lists.lengths[row] = 0
    lists.classes[row] = -1
    lists.reaches[row] = 0.0
    lists.owners[row] = term
    lists.cells[row] = cell
    return row


@kernel
def spot_key(term: int, cell: int) -> int:
    """Return the key of the list of a term in a cell."""
    return (int(term) << 32) | int(cell)


@kernel
def drop_list(state: SimilarityState, row: int) -> None:
    """Forget a list of a term that is empty."""
    lists, term = state.term_lists, state.term_lists.owners[row]
    if lists.cells[row] < 0:
        state.terms.n_postings[term] = -1
    else:
        table_remove(state.spots, spot_key(term, lists.cells[row]))
    lists.starts[row] = lists.state[FREE_LIST]
    lists.state[FREE_LIST] = row
