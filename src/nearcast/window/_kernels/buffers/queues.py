"""Whose result loses a message first? Each subscription stands in the queue of one message."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel
from nearcast.window._kernels.buffers.layout import (
    NEXT,
    NOBODY,
    PREVIOUS,
    QUEUE,
    ROOM_K,
    SIZE,
    START,
    BufferArrays,
    BufferContext,
)
from nearcast.window._kernels.lists import BASE


@kernel
def leave_queue(buffers: BufferArrays, base: int, slot: int) -> None:
    """Take a subscription out of the queue it stands in."""
    heads = buffers.heads
    if heads[slot, QUEUE] == NOBODY:
        return
    before, after = heads[slot, PREVIOUS], heads[slot, NEXT]
    if before == NOBODY:
        buffers.queues[(heads[slot, QUEUE] + base) & (buffers.queues.size - 1)] = after
    else:
        heads[before, NEXT] = after
    if after != NOBODY:
        heads[after, PREVIOUS] = before
    heads[slot, QUEUE] = NOBODY


@kernel
def join_queue(buffers: BufferArrays, base: int, slot: int, number: int) -> None:
    """Put a subscription into the queue of a message, by its relative number."""
    heads = buffers.heads
    place = (number + base) & (buffers.queues.size - 1)
    after = buffers.queues[place]
    heads[slot, QUEUE], heads[slot, NEXT], heads[slot, PREVIOUS] = number, after, NOBODY
    if after != NOBODY:
        heads[after, PREVIOUS] = slot
    buffers.queues[place] = slot


@kernel
def queue_anew(context: BufferContext, slot: int) -> None:
    """Let a subscription stand in the queue of the message that its result loses first."""
    buffers, base = context.buffers, context.lists.counts[BASE]
    heads, numbers = buffers.heads, buffers.numbers
    start, n = heads[slot, START], min(heads[slot, SIZE], heads[slot, ROOM_K])
    next_to_go = NOBODY
    if not context.params.by_time:
        for i in range(start, start + n):
            if next_to_go == NOBODY or numbers[i] < next_to_go:
                next_to_go = numbers[i]
    else:
        keys, soonest = context.keys, np.int64(0)
        for i in range(start, start + n):
            key = keys[(numbers[i] + base) & (keys.size - 1)]
            if next_to_go == NOBODY or key < soonest or (key == soonest and numbers[i] < next_to_go):
                next_to_go, soonest = numbers[i], key
    if next_to_go == heads[slot, QUEUE]:
        return
    leave_queue(buffers, base, slot)
    if next_to_go != NOBODY:
        join_queue(buffers, base, slot, next_to_go)


# -- buffers --------------------------------------------------------------------------------------------------


@kernel
def outlived(
    by_time: bool,
    keys: NDArray[np.int64],
    scores: NDArray[np.float64],
    numbers: NDArray[np.int64],
    n: int,
    k: int,
) -> int:
    """Drop of what is sorted, best first, who k better ones outlive; return how many stay.

    Numbers are absolute. The first k always stay.
    """
    kept, mask = min(k, n), keys.size - 1
    for i in range(kept, n):
        number, better = numbers[i], 0
        if by_time:
            key = keys[number & mask]
            for other in range(kept):
                better += keys[numbers[other] & mask] >= key
        else:
            for other in range(kept):
                better += numbers[other] > number
        if better < k:
            scores[kept], numbers[kept] = scores[i], number
            kept += 1
    return kept
