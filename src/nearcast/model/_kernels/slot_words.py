"""Kernels of `nearcast.model.slot_words`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel
from nearcast._jit.blocks import class_of, give_block, size_of, take_block

RUN, LENGTH = 0, 1
"""Columns of a head."""


class SlotWordArrays(NamedTuple):
    """Words by slot."""

    heads: NDArray[np.int64]
    """int64 (n_slots, 2): start of its words, -1 without any, and how many; slots beyond the end have none."""
    words: NDArray[np.int64]
    """int64 (n,): the words; the next free block in the first word of a free one."""
    state: NDArray[np.int64]
    """int64 (STATE,): see `blocks`."""


@kernel
def insert_words(
    held: SlotWordArrays, slots: NDArray[np.int32], indptr: NDArray[np.int64], words: NDArray[np.int64], start: int
) -> int:
    """Insert the words of slots from `start` on; return the row at which the pool was full."""
    for row in range(start, slots.size):
        n, run = indptr[row + 1] - indptr[row], 0
        if n > 0:
            block_class = class_of(n)
            run = take_block(held.state, held.words, block_class, size_of(block_class))
        if run < 0:
            return row
        for i in range(n):
            held.words[run + i] = words[indptr[row] + i]
        held.heads[slots[row], RUN], held.heads[slots[row], LENGTH] = run, n
    return slots.size


@kernel
def delete_words(held: SlotWordArrays, slots: NDArray[np.int32]) -> int:
    """Delete the words of slots; return how many had some."""
    n = 0
    for slot in slots:
        if slot < held.heads.shape[0] and held.heads[slot, RUN] >= 0:
            if held.heads[slot, LENGTH] > 0:
                give_block(held.state, held.words, class_of(held.heads[slot, LENGTH]), held.heads[slot, RUN])
            held.heads[slot, RUN] = -1
            n += 1
    return n
