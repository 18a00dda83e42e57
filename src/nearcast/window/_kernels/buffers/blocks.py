"""Where does a buffer lie, and what is swept when it is full?"""

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
    ROOM_K,
    SCRATCH,
    SIZE,
    START,
    THETA,
    BufferArrays,
    BufferContext,
    ChangeBuffer,
    Later,
    class_for,
    most_held,
    places_of,
)
from nearcast.window._kernels.buffers.queues import outlived
from nearcast.window._kernels.lists import BASE
from nearcast.window._kernels.params import BOUNDED
from nearcast.window._kernels.search import n_to_read, round_up, wanted


@kernel
def _place_for(buffers: BufferArrays, slot: int, n: int) -> int:
    """Return where n places of a slot may lie: its own block or a new one, which is not yet its own; -1 if none."""
    block_class = class_for(n)
    if block_class == buffers.heads[slot, CLASS]:
        return int(buffers.heads[slot, START])
    return take_block(buffers.state, buffers.numbers, block_class, places_of(block_class))


@kernel
def _settle(buffers: BufferArrays, slot: int, start: int, n: int) -> None:
    """Make a place the block of a slot, and give the one it had to others."""
    heads = buffers.heads
    block_class = class_for(n)
    if start != heads[slot, START] or heads[slot, CLASS] < 0:
        if heads[slot, CLASS] >= 0:
            give_block(buffers.state, buffers.numbers, heads[slot, CLASS], heads[slot, START])
        heads[slot, START], heads[slot, CLASS] = start, block_class


@kernel
def write_buffer(context: BufferContext, slot: int, n: int, room: int) -> bool:
    """Put what the scratch holds, sorted, into a buffer with some room; False, and nothing done, if there is none."""
    buffers, base = context.buffers, context.lists.counts[BASE]
    start = _place_for(buffers, slot, max(n, room))
    if start < 0:
        return False
    _settle(buffers, slot, start, max(n, room))
    scores, numbers = buffers.scores, buffers.numbers
    from_scores, from_numbers = context.scratch.scores, context.scratch.found
    for i in range(n):
        scores[start + i] = from_scores[i]
        numbers[start + i] = from_numbers[i] - base
    buffers.heads[slot, SIZE] = n
    return True


@kernel
def gather(context: BufferContext, slot: int, first: int, horizon: int, in_order: bool) -> int:
    """Put the living of a buffer into the scratch; return how many they are."""
    base, keys, n = context.lists.counts[BASE], context.keys, 0
    scores, numbers = context.buffers.scores, context.buffers.numbers
    to_scores, to_numbers = context.scratch.scores, context.scratch.found
    start = context.buffers.heads[slot, START]
    for i in range(start, start + context.buffers.heads[slot, SIZE]):
        number = numbers[i] + base
        if number >= first and (in_order or keys[number & (keys.size - 1)] > horizon):
            to_scores[n], to_numbers[n] = scores[i], number
            n += 1
    return n


@kernel
def make_room(
    context: BufferContext, slot: int, first: int, horizon: int, in_order: bool, told: ChangeBuffer, later: Later
) -> int:
    """Sweep a buffer that is full and give it more places, or a higher theta; the first k stay."""
    params, buffers = context.params, context.buffers
    heads, scratch = buffers.heads, context.scratch
    k, size = int(heads[slot, ROOM_K]), int(heads[slot, SIZE])
    if scratch.scores.size <= size + 1:
        return SCRATCH
    n = gather(context, slot, first, horizon, in_order)
    if params.policy != BOUNDED:
        n = outlived(params.by_time, context.keys, scratch.scores, scratch.found, n, k)
    n_read = n_to_read(context.lists, context.profiles, slot)
    most = max(most_held(params, k, n_read), k + 1)
    theta = float(buffers.thetas[slot, THETA])
    if n >= most:
        if told.cursor[N_MOVED] >= later.moved.size:
            return MOVED
        # Theta passes the best that is dropped; scores too close to it for that are dropped as well.
        fewer = most - 1 if params.policy == BOUNDED else min(most - 1, max(k, wanted(params, k, n_read)))
        above = round_up(scratch.scores[fewer])
        while fewer > 0 and scratch.scores[fewer - 1] < above:
            fewer -= 1
        if fewer >= k:
            n, theta = fewer, above
    if not write_buffer(context, slot, n, max(n + 1, min(most, n + n // 8 + 2))):
        return POOL
    told.cursor[N_SWEPT] += 1
    if theta > buffers.thetas[slot, THETA]:
        buffers.thetas[slot, THETA] = theta
        later.moved[told.cursor[N_MOVED]] = slot
        told.cursor[N_MOVED] += 1
    return DONE
