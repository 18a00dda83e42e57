"""Buffers of new and deleted subscriptions, and of all when the base of numbers moves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel
from nearcast.model._kernels.blocks import give_block, take_block
from nearcast.model._kernels.profiles import K as PROFILE_K
from nearcast.window._kernels.buffers.blocks import write_buffer
from nearcast.window._kernels.buffers.layout import (
    CLASS,
    DONE,
    N_OUT,
    NONE,
    OUT,
    POOL,
    QUEUE,
    RESULT_SIZE,
    SCRATCH,
    SIZE,
    START,
    THETA,
    BufferArrays,
    BufferContext,
    ChangeBuffer,
    capacity_of,
    write_change,
)
from nearcast.window._kernels.buffers.queues import drop_dominated, leave_queue, requeue
from nearcast.window._kernels.candidates.source import SourceKernels
from nearcast.window._kernels.horizon import Horizon
from nearcast.window._kernels.parts import part_of


@kernel
def begin(
    context: BufferContext,
    kernels: SourceKernels,
    slots: NDArray[np.int32],
    start: int,
    now: int,
    horizon: Horizon,
    changes: ChangeBuffer,
) -> tuple[int, int]:
    """Start buffers with the best of the window; return where it stopped, and a code.

    The messages of results are reported as if they entered at step 0.
    """
    buffers, source, scratch = context.buffers, context.source, context.source.scratch
    for i in range(start, slots.size):
        slot = slots[i]
        k = int(source.profiles.heads[slot, PROFILE_K])
        if changes.cursor[N_OUT] + k > changes.steps.size:
            return i, OUT
        if scratch.bounds.size <= kernels.max_noted(source, slot):
            return i, SCRATCH
        n, theta, _ = kernels.search(source, slot, now, horizon)
        n = drop_dominated(source.params.by_time, context.keys, scratch.scores, scratch.found, n, k)
        buffers.heads[slot, START], buffers.heads[slot, CLASS], buffers.heads[slot, SIZE] = -1, -1, 0
        if n > 0 and not write_buffer(context, slot, n, n + n // 8 + 2):
            return i, POOL
        buffers.heads[slot, RESULT_SIZE], buffers.heads[slot, QUEUE] = k, NONE
        buffers.thetas[slot, THETA] = theta
        requeue(context, slot)
        for j in range(min(k, n)):
            write_change(changes, 0, slot, True, scratch.scores[j], scratch.found[j])
    return slots.size, DONE


@kernel
def end(buffers: BufferArrays, base: int, slots: NDArray[np.int32]) -> None:
    """Free the buffers of slots."""
    for slot in slots:
        leave_queue(buffers, base, slot)
        if buffers.heads[slot, CLASS] >= 0:
            give_block(buffers.state, buffers.numbers, buffers.heads[slot, CLASS], buffers.heads[slot, START])
        buffers.heads[slot, START], buffers.heads[slot, CLASS], buffers.heads[slot, SIZE] = -1, -1, 0
        buffers.heads[slot, RESULT_SIZE] = 0


@kernel
def move_buffers(context: BufferContext, before: BufferArrays, slots: NDArray[np.int32], start: int) -> int:
    """Take buffers over from the arrays of another part, from row `start` on; return where the pool was full."""
    buffers, heads = context.buffers, context.buffers.heads
    for i in range(start, slots.size):
        slot = slots[i]
        block_class, block, size = heads[slot, CLASS], heads[slot, START], heads[slot, SIZE]
        if block_class >= 0:
            to = take_block(buffers.state, buffers.numbers, block_class, capacity_of(block_class))
            if to < 0:
                return i
            for j in range(size):
                buffers.scores[to + j], buffers.numbers[to + j] = before.scores[block + j], before.numbers[block + j]
            heads[slot, START] = to
        heads[slot, QUEUE] = NONE
        requeue(context, slot)
    return slots.size


@kernel
def move_numbers(buffers: BufferArrays, by: int, part: int, n_parts: int) -> None:
    """Subtract from all numbers of a part, since the base moves; messages that expired long ago get some below 0."""
    heads = buffers.heads
    for slot in range(heads.shape[0]):
        if part_of(slot, n_parts) != part:
            continue
        if heads[slot, CLASS] >= 0:
            for i in range(heads[slot, START], heads[slot, START] + heads[slot, SIZE]):
                buffers.numbers[i] = max(-1, buffers.numbers[i] - by)
        if heads[slot, RESULT_SIZE] > 0 and heads[slot, QUEUE] != NONE:
            heads[slot, QUEUE] -= by
