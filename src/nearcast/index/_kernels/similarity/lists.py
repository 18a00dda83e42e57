"""Lists of postings in blocks of a power of two; free blocks and lists are reused."""

from __future__ import annotations

from nearcast._jit import kernel, table_remove
from nearcast.index._kernels.similarity.layout import (
    FREE_LIST,
    LONGEST,
    N_LISTS,
    PostingPool,
    SimilarityLists,
    SimilarityState,
)
from nearcast.model._kernels.blocks import FIRST, USED, give_block, take_block


@kernel
def copy_posting(source: PostingPool, at: int, target: PostingPool, to: int) -> None:
    """Copy one posting."""
    target.others[to] = source.others[at]
    target.slots[to] = source.slots[at]
    if target.exact.size > 0:
        for column in range(6):
            target.exact[to, column] = source.exact[at, column]
    else:
        target.solo_reaches[to] = source.solo_reaches[at]
        for column in range(4):
            target.points[to, column] = source.points[at, column]


@kernel
def move_list(lists: SimilarityLists, pool: PostingPool, row: int, size_class: int) -> bool:
    """Move a list to a block of another class; return False, with nothing changed, without room."""
    state, size = lists.state, 1 << size_class
    if state[FIRST + size_class] < 0 and state[USED] + size > pool.slots.size:
        return False
    block = take_block(state, pool.slots, size_class, size)
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
    """Return how much of the pool one more posting of a list can take."""
    size_class = int(lists.classes[row])
    if size_class < 0:
        return 1
    return 2 << size_class if lists.lengths[row] == 1 << size_class else 0


@kernel
def append_posting(lists: SimilarityLists, pool: PostingPool, row: int, reach: float) -> int:
    """Lengthen a list by one posting, for which the pool must have room; return where to write it."""
    length, size_class = int(lists.lengths[row]), int(lists.classes[row])
    if size_class < 0 or length == 1 << size_class:
        move_list(lists, pool, row, size_class + 1)
    lists.lengths[row] = length + 1
    lists.reaches[row] = max(lists.reaches[row], reach)
    lists.state[LONGEST] = max(lists.state[LONGEST], length + 1)
    return int(lists.starts[row]) + length


@kernel
def remove_posting(lists: SimilarityLists, pool: PostingPool, row: int, place: int) -> int:
    """Remove the posting at a position; return the slot of the posting that moved there, or -1."""
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
    """Return an empty list of a term. There must be room for one."""
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
def cell_list_key(term: int, cell: int) -> int:
    """Return the key of the list of a term in a cell."""
    return (int(term) << 32) | int(cell)


@kernel
def free_list(state: SimilarityState, row: int) -> None:
    """Free an empty list of a term."""
    lists, term = state.term_lists, state.term_lists.owners[row]
    if lists.cells[row] < 0:
        state.terms.only_lists[term] = -1
    else:
        table_remove(state.cell_lists, cell_list_key(term, lists.cells[row]))
    lists.starts[row] = lists.state[FREE_LIST]
    lists.state[FREE_LIST] = row
