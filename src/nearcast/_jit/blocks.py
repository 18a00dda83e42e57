"""Blocks of a pool for runs of many lengths; a free block is reused for runs of the same size class.

    state   [ used | needed | first free block of class 0, 1, 2, ... ]     -1 where there is none
    links   of a free block the first item names the next one of its class

Cost: a block is taken and given back in a few instructions, and none is ever moved.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast._jit.kernel import kernel

USED, NEEDED, FIRST = 0, 1, 2
"""Positions in the state: items in use, items missing, first free block of each class."""
STATE = 64
EXACT = 16
"""Runs up to this length have blocks of exactly that length; longer ones take the next power of two."""


@kernel
def class_of(length: int) -> int:
    """Return the class of the blocks for runs of a length."""
    if length <= EXACT:
        return length
    found = EXACT + 1
    while (EXACT << (found - EXACT)) < length:
        found += 1
    return found


@kernel
def size_of(block_class: int) -> int:
    """Return the number of items in a block of a class."""
    return block_class if block_class <= EXACT else EXACT << (block_class - EXACT)


@kernel
def take_block(state: NDArray[np.int64], links: NDArray[Any], block_class: int, size: int) -> int:
    """Return a block, preferably a free one; return -1 and set `NEEDED` if the pool is full."""
    block = int(state[FIRST + block_class])
    if block >= 0:
        state[FIRST + block_class] = links[block]
        return block
    block = int(state[USED])
    if block + size > links.size:
        state[NEEDED] = size
        return -1
    state[USED] = block + size
    return block


@kernel
def give_block(state: NDArray[np.int64], links: NDArray[Any], block_class: int, block: int) -> None:
    """Put a block on the free list of its class."""
    links[block] = state[FIRST + block_class]
    state[FIRST + block_class] = block
