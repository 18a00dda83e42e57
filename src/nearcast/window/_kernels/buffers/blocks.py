"""The blocks of buffers: where entries are stored, and what is removed when a block is full."""

from __future__ import annotations

from nearcast._jit import kernel
from nearcast.model._kernels.blocks import give_block, take_block
from nearcast.window._kernels.buffers.layout import (
    CLASS,
    DONE,
    MOVED,
    N_MOVED,
    N_SWEPT,
    POOL,
    RESULT_SIZE,
    SCRATCH,
    SIZE,
    START,
    THETA,
    BufferArrays,
    BufferContext,
    ChangeBuffer,
    PendingArrivals,
    capacity_of,
    class_for,
    max_entries,
    move_theta,
)
from nearcast.window._kernels.buffers.queues import drop_dominated
from nearcast.window._kernels.horizon import Horizon
from nearcast.window._kernels.lists import BASE
from nearcast.window._kernels.params import BOUNDED
from nearcast.window._kernels.search import count_postings, round_up, target_size


@kernel
def _block_for(buffers: BufferArrays, slot: int, n: int) -> int:
    """Return a block with n places: that of the slot, or a new one, which the slot does not own yet; -1 if none."""
    block_class = class_for(n)
    if block_class == buffers.heads[slot, CLASS]:
        return int(buffers.heads[slot, START])
    return take_block(buffers.state, buffers.numbers, block_class, capacity_of(block_class))


@kernel
def _assign_block(buffers: BufferArrays, slot: int, start: int, n: int) -> None:
    """Assign a block to a slot, and free the one it had."""
    heads = buffers.heads
    block_class = class_for(n)
    if start != heads[slot, START] or heads[slot, CLASS] < 0:
        if heads[slot, CLASS] >= 0:
            give_block(buffers.state, buffers.numbers, heads[slot, CLASS], heads[slot, START])
        heads[slot, START], heads[slot, CLASS] = start, block_class


@kernel
def write_buffer(context: BufferContext, slot: int, n: int, room: int) -> bool:
    """Write the sorted messages of the scratch into a buffer with some room; without a block, return False."""
    buffers, base, scratch = context.buffers, context.source.lists.counts[BASE], context.source.scratch
    start = _block_for(buffers, slot, max(n, room))
    if start < 0:
        return False
    _assign_block(buffers, slot, start, max(n, room))
    scores, numbers = buffers.scores, buffers.numbers
    from_scores, from_numbers = scratch.scores, scratch.found
    for i in range(n):
        scores[start + i] = from_scores[i]
        numbers[start + i] = from_numbers[i] - base
    buffers.heads[slot, SIZE] = n
    return True


@kernel
def copy_alive(context: BufferContext, slot: int, horizon: Horizon) -> int:
    """Copy the messages of a buffer that are alive to the scratch; return how many there are."""
    base, n = context.source.lists.counts[BASE], 0
    scores, numbers = context.buffers.scores, context.buffers.numbers
    to_scores, to_numbers = context.source.scratch.scores, context.source.scratch.found
    first, keys, key, in_order = horizon.first, horizon.keys, horizon.key, horizon.in_order
    start = context.buffers.heads[slot, START]
    for i in range(start, start + context.buffers.heads[slot, SIZE]):
        number = numbers[i] + base
        if number >= first and (in_order or keys[number & (keys.size - 1)] > key):
            to_scores[n], to_numbers[n] = scores[i], number
            n += 1
    return n


@kernel
def make_room(
    context: BufferContext, slot: int, horizon: Horizon, changes: ChangeBuffer, pending: PendingArrivals
) -> int:
    """Remove expired messages from a full buffer and give it more places, or a higher theta; the first k remain."""
    params, buffers = context.source.params, context.buffers
    heads, scratch = buffers.heads, context.source.scratch
    k, size = int(heads[slot, RESULT_SIZE]), int(heads[slot, SIZE])
    if scratch.scores.size <= size + 1:
        return SCRATCH
    n = copy_alive(context, slot, horizon)
    if params.policy != BOUNDED:
        n = drop_dominated(params.by_time, context.keys, scratch.scores, scratch.found, n, k)
    n_postings = count_postings(context.source.lists, context.source.profiles, slot)
    most = max(max_entries(params, k, n_postings), k + 1)
    theta = float(buffers.thetas[slot, THETA])
    if n >= most:
        if changes.cursor[N_MOVED] >= pending.moved.size:
            return MOVED
        # Theta exceeds the best score that is dropped; scores too close to it for that are dropped as well.
        fewer = most - 1 if params.policy == BOUNDED else min(most - 1, max(k, target_size(params, k, n_postings)))
        above = round_up(scratch.scores[fewer])
        while fewer > 0 and scratch.scores[fewer - 1] < above:
            fewer -= 1
        if fewer >= k:
            n, theta = fewer, above
    if not write_buffer(context, slot, n, max(n + 1, min(most, n + n // 8 + 2))):
        return POOL
    changes.cursor[N_SWEPT] += 1
    if theta > buffers.thetas[slot, THETA]:
        move_theta(buffers, slot, theta, changes, pending)
    return DONE
