"""Queues: each subscription is in the queue of the message that its result loses first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel
from nearcast.window._kernels.buffers.layout import (
    NEXT,
    NONE,
    PREVIOUS,
    QUEUE,
    RESULT_SIZE,
    SIZE,
    START,
    BufferArrays,
    BufferContext,
)
from nearcast.window._kernels.lists import BASE


@kernel
def leave_queue(buffers: BufferArrays, base: int, slot: int) -> None:
    """Remove a subscription from its queue, if it is in one."""
    heads = buffers.heads
    if heads[slot, QUEUE] == NONE:
        return
    before, after = heads[slot, PREVIOUS], heads[slot, NEXT]
    if before == NONE:
        buffers.queues[(heads[slot, QUEUE] + base) & (buffers.queues.size - 1)] = after
    else:
        heads[before, NEXT] = after
    if after != NONE:
        heads[after, PREVIOUS] = before
    heads[slot, QUEUE] = NONE


@kernel(inline=True)
def join_queue(heads: NDArray[np.int32], queues: NDArray[np.int32], base: int, slot: int, number: int) -> None:
    """Put a subscription into the queue of a message, given by its relative number."""
    place = (number + base) & (queues.size - 1)
    after = queues[place]
    heads[slot, QUEUE], heads[slot, NEXT], heads[slot, PREVIOUS] = number, after, NONE
    if after != NONE:
        heads[after, PREVIOUS] = slot
    queues[place] = slot


@kernel(inline=True)
def next_to_expire(
    numbers: NDArray[np.int32], start: int, stop: int, keys: NDArray[np.int64], base: int, by_time: bool
) -> int:
    """Return the relative number of the message that expires first, of some entries of a block; -1 without any."""
    if start == stop:
        return NONE
    soonest, soonest_key, mask = numbers[start], np.int64(0), keys.size - 1
    if not by_time:
        for i in range(start, stop):  # without a branch, so the loop is vectorised
            soonest = min(soonest, numbers[i])
        return int(soonest)
    soonest = np.int32(NONE)
    for i in range(start, stop):
        key = keys[(numbers[i] + base) & mask]
        if soonest == NONE or key < soonest_key or (key == soonest_key and numbers[i] < soonest):
            soonest, soonest_key = numbers[i], key
    return int(soonest)


@kernel
def requeue(context: BufferContext, slot: int) -> None:
    """Move a subscription to the queue of the message that its result loses first."""
    buffers, base = context.buffers, context.source.lists.counts[BASE]
    heads = buffers.heads
    start, n = heads[slot, START], min(heads[slot, SIZE], heads[slot, RESULT_SIZE])
    soonest = next_to_expire(buffers.numbers, start, start + n, context.keys, base, context.source.params.by_time)
    if soonest == heads[slot, QUEUE]:
        return
    leave_queue(buffers, base, slot)
    if soonest != NONE:
        join_queue(heads, buffers.queues, base, slot, soonest)


@kernel
def drop_dominated(
    by_time: bool,
    keys: NDArray[np.int64],
    scores: NDArray[np.float64],
    numbers: NDArray[np.int64],
    n: int,
    k: int,
) -> int:
    """Drop the messages that k better ones outlive, given messages sorted best first; return how many remain.

    Numbers are absolute. The first k always remain.
    """
    n_held, mask = min(k, n), keys.size - 1
    for i in range(n_held, n):
        number, better = numbers[i], 0
        if by_time:
            key = keys[number & mask]
            for other in range(n_held):
                better += keys[numbers[other] & mask] >= key
        else:
            for other in range(n_held):
                better += numbers[other] > number
        if better < k:
            scores[n_held], numbers[n_held] = scores[i], number
            n_held += 1
    return n_held
