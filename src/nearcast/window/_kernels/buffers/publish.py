"""Publishing a batch: at each step the arrival enters buffers, and expiring messages leave them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch
from nearcast.window._kernels.buffers.blocks import make_room
from nearcast.window._kernels.buffers.layout import (
    ARRIVING,
    CLASS,
    DONE,
    EXPIRY,
    FIRST_ALIVE,
    MATCH,
    N_ENTERED,
    N_OUT,
    NEXT,
    NONE,
    NOW,
    OUT,
    PREVIOUS,
    QUEUE,
    RESULT_SIZE,
    ROW,
    SCORES_PER_LINE,
    SIZE,
    START,
    STEP,
    THETA,
    Arrival,
    BatchSteps,
    BufferArrays,
    BufferContext,
    ChangeBuffer,
    PendingArrivals,
    StepState,
    capacity_of,
    write_change,
)
from nearcast.window._kernels.buffers.queues import join_queue, leave_queue, next_to_expire
from nearcast.window._kernels.buffers.refill import refill
from nearcast.window._kernels.candidates.source import SourceKernels
from nearcast.window._kernels.horizon import Horizon, is_dead
from nearcast.window._kernels.lists import BASE


@kernel
def publish(
    context: BufferContext,
    kernels: SourceKernels,
    batch: BatchSteps,
    changes: ChangeBuffer,
    pending: PendingArrivals,
) -> int:
    """Publish a batch from where the cursor stands; return a code, and stop where an array is too small."""
    cursor, queues, heads = changes.cursor, context.buffers.queues, context.buffers.heads
    row, first, last = int(cursor[ROW]), int(cursor[FIRST_ALIVE]), batch.leaving.size - 1
    for number in range(cursor[STEP], batch.horizons.size):
        stop, code = int(cursor[EXPIRY]), DONE
        while stop <= last and batch.leaving_steps[stop] == number:
            if batch.in_order:
                first = batch.leaving[stop] + 1
            stop += 1
        step = StepState(number, Horizon(first, context.keys, batch.horizons[number], batch.in_order))
        if row < batch.row_steps.size and batch.row_steps[row] == number:
            code = _arrive(context, kernels, batch, row, step, changes, pending)
            row += code == DONE
        while code == DONE and cursor[EXPIRY] < stop:
            at = cursor[EXPIRY]
            prefetch(queues, batch.leaving[min(at + 4, last)] & (queues.size - 1))
            after = queues[batch.leaving[min(at + 2, last)] & (queues.size - 1)]
            if after != NONE:
                prefetch(heads, after)
            place, following = batch.leaving[at], batch.leaving[min(at + 1, last)]
            place, following = place & (queues.size - 1), following & (queues.size - 1)
            if queues[place] != NONE:
                code = _expire(context, kernels, place, following, step, changes, pending)
            cursor[EXPIRY] += code == DONE
        cursor[ROW], cursor[FIRST_ALIVE] = row, first
        if code != DONE:
            cursor[STEP] = number
            return code
        cursor[ARRIVING] = NONE
    cursor[STEP] = batch.horizons.size
    return DONE


# -- expiry ---------------------------------------------------------------------------------------------------


@kernel
def _expire(
    context: BufferContext,
    kernels: SourceKernels,
    place: int,
    following: int,
    step: StepState,
    changes: ChangeBuffer,
    pending: PendingArrivals,
) -> int:
    """Remove an expiring message from the buffers of the subscriptions in its queue.

    `following` is the place of the message that expires next.
    """
    keys, queues, horizon = context.keys, context.buffers.queues, step.horizon
    buffers = context.buffers
    heads, thetas = buffers.heads, buffers.thetas
    scores, numbers, queued = buffers.scores, buffers.numbers, context.source.scratch.queued
    by_time, base = context.source.params.by_time, context.source.lists.counts[BASE]
    ahead = queues[following]
    while queues[place] != NONE:
        n, slot = 0, queues[place]
        while slot != NONE and n < queued.size:
            queued[n] = slot
            n += 1
            slot = heads[slot, NEXT]
        for turn in range(n):
            # The queue of the message that expires next is walked along, one step per turn: its memory is cached
            # then.
            if ahead != NONE:
                _prefetch_block(scores, numbers, heads[ahead, START])
                ahead = heads[ahead, NEXT]
                if ahead != NONE:
                    prefetch(heads, ahead)
            slot = queued[turn]
            k, size, start = heads[slot, RESULT_SIZE], heads[slot, SIZE], heads[slot, START]
            held = min(k, size)
            stayed, alive = _count_alive(numbers, start, held, size, base, horizon)
            if stayed < held:
                if alive < k and thetas[slot, THETA] > -np.inf:
                    code = refill(context, kernels, slot, Arrival(0.0, NONE), step, changes, pending)
                    if code != DONE:
                        return code
                    continue
                if changes.cursor[N_OUT] + 2 * held > changes.steps.size:
                    return OUT
                _remove_dead(buffers, slot, stayed, base, step, changes)
                held = min(k, alive)
            soonest = next_to_expire(numbers, start, start + held, keys, base, by_time)
            after = heads[slot, NEXT]  # the slot is the first of the queue
            queues[place] = after
            if after != NONE:
                heads[after, PREVIOUS] = NONE
            heads[slot, QUEUE] = NONE
            if soonest != NONE:
                join_queue(heads, queues, base, slot, soonest)
    return DONE


@kernel(inline=True)
def _prefetch_block(scores: NDArray[np.float64], numbers: NDArray[np.int32], start: int) -> None:
    for i in range(0, 4 * SCORES_PER_LINE, SCORES_PER_LINE):
        prefetch(scores, start + i)
    prefetch(numbers, start)
    prefetch(numbers, start + 2 * SCORES_PER_LINE)


@kernel(inline=True)
def _count_alive(
    numbers: NDArray[np.int32], start: int, held: int, size: int, base: int, horizon: Horizon
) -> tuple[int, int]:
    """Return how many messages of a result, and of the whole buffer, are alive."""
    stayed, alive = 0, 0
    if horizon.in_order:
        least = horizon.first - base
        for i in range(start, start + held):
            stayed += numbers[i] >= least
        alive = stayed
        for i in range(start + held, start + size):
            alive += numbers[i] >= least
    else:
        for i in range(size):
            lives = not is_dead(horizon, numbers[start + i] + base)
            alive += lives
            stayed += lives and i < held
    return stayed, alive


@kernel(inline=True)
def _remove_dead(
    buffers: BufferArrays, slot: int, stayed: int, base: int, step: StepState, changes: ChangeBuffer
) -> None:
    """Remove expired messages from a buffer and report the changes of its result, of which `stayed` are alive."""
    heads, scores, numbers, horizon = buffers.heads, buffers.scores, buffers.numbers, step.horizon
    first, keys, horizon_key, in_order = horizon.first, horizon.keys, horizon.key, horizon.in_order
    steps, slots, enters, change_scores = changes.steps, changes.slots, changes.enters, changes.scores
    change_numbers, step_number, mask = changes.numbers, step.number, keys.size - 1
    k, size, start, n = heads[slot, RESULT_SIZE], heads[slot, SIZE], heads[slot, START], 0
    held, out = min(k, size), changes.cursor[N_OUT]
    while n < size:  # those before the first that expired stay where they are
        number = numbers[start + n] + base
        if number < first or not (in_order or keys[number & mask] > horizon_key):
            break
        n += 1
    for i in range(n, size):
        number = numbers[start + i] + base
        lives = number >= first and (in_order or keys[number & mask] > horizon_key)
        if not lives and i < held:
            steps[out], slots[out], enters[out] = step_number, slot, False
            change_scores[out], change_numbers[out] = scores[start + i], number
            out += 1
        scores[start + n], numbers[start + n] = scores[start + i], numbers[start + i]
        n += lives
    for i in range(start + stayed, start + min(k, n)):
        steps[out], slots[out], enters[out] = step_number, slot, True
        change_scores[out], change_numbers[out] = scores[i], numbers[i] + base
        out += 1
    changes.cursor[N_OUT], heads[slot, SIZE] = out, n


# -- arrival --------------------------------------------------------------------------------------------------


@kernel
def _arrive(
    context: BufferContext,
    kernels: SourceKernels,
    batch: BatchSteps,
    row: int,
    step: StepState,
    changes: ChangeBuffer,
    pending: PendingArrivals,
) -> int:
    """Insert the message of a row into all buffers that it matches.

    Most of the time is spent here. Arrays are local variables, and what runs once per match is inlined: a call that
    passes tuples of arrays costs more than the insertion.
    """
    cursor, horizon, number = changes.cursor, step.horizon, batch.first_number + row
    buffers, keys, by_time = context.buffers, context.keys, context.source.params.by_time
    heads, thetas, scores, numbers = buffers.heads, buffers.thetas, buffers.scores, buffers.numbers
    rows, slots, found = batch.rows, batch.slots, batch.scores
    base = context.source.lists.counts[BASE]
    cursor[NOW] = cursor[ARRIVING] = number
    at, n = int(cursor[MATCH]), slots.size
    while True:
        link = -1
        if at < n and rows[at] == row:
            slot, score = slots[at], found[at]
            if at + 12 < n:
                prefetch(heads, slots[at + 12])
            if at + 6 < n and heads[slots[at + 6], START] >= 0:
                _prefetch_block(scores, numbers, heads[slots[at + 6], START])
        else:
            link = pending.heads[row]
            if link < 0:
                return DONE
            slot, score = pending.slots[link], pending.scores[link]
        if score >= thetas[slot, THETA]:
            queue, code = heads[slot, QUEUE], DONE
            if queue != NONE and is_dead(horizon, queue + base):
                code = refill(context, kernels, slot, Arrival(score, number), step, changes, pending)
            elif cursor[N_OUT] + 2 > changes.steps.size:
                code = OUT
            else:
                if heads[slot, CLASS] < 0 or heads[slot, SIZE] == capacity_of(heads[slot, CLASS]):
                    code = make_room(context, slot, horizon, changes, pending)
                if code == DONE and score >= thetas[slot, THETA]:
                    rank = _insert(heads, scores, numbers, slot, score, number - base)
                    if rank < heads[slot, RESULT_SIZE]:
                        _report_arrival(buffers, slot, rank, base, step.number, changes)
                        _update_queue(buffers, slot, number, base, keys, by_time)
            if code != DONE:
                return code
        if link < 0:
            at += 1
            cursor[MATCH] = at
        else:
            pending.heads[row] = pending.links[link]


@kernel(inline=True)
def _insert(
    heads: NDArray[np.int32],
    scores: NDArray[np.float64],
    numbers: NDArray[np.int32],
    slot: int,
    score: float,
    number: int,
) -> int:
    """Insert an entry into a buffer that has room, before those of equal score; return its rank."""
    size, start = heads[slot, SIZE], heads[slot, START]
    low, high = start, start + size
    while low < high:
        middle = (low + high) >> 1
        if scores[middle] > score:
            low = middle + 1
        else:
            high = middle
    for i in range(start + size, low, -1):
        scores[i], numbers[i] = scores[i - 1], numbers[i - 1]
    scores[low], numbers[low] = score, number
    heads[slot, SIZE] = size + 1
    return int(low - start)


@kernel(inline=True)
def _report_arrival(buffers: BufferArrays, slot: int, rank: int, base: int, step: int, changes: ChangeBuffer) -> None:
    """Report the message that was inserted at a rank of a result, and the one that it replaces, if any."""
    scores, numbers = buffers.scores, buffers.numbers
    k, start = buffers.heads[slot, RESULT_SIZE], buffers.heads[slot, START]
    if buffers.heads[slot, SIZE] > k:
        write_change(changes, step, slot, False, scores[start + k], numbers[start + k] + base)
    write_change(changes, step, slot, True, scores[start + rank], numbers[start + rank] + base)
    changes.cursor[N_ENTERED] += 1


@kernel(inline=True)
def _update_queue(
    buffers: BufferArrays, slot: int, number: int, base: int, keys: NDArray[np.int64], by_time: bool
) -> None:
    """Move a subscription to the queue of a message that entered its result, if this expires first."""
    queue, mask = buffers.heads[slot, QUEUE], keys.size - 1
    if queue == NONE or (by_time and keys[number & mask] < keys[(queue + base) & mask]):
        leave_queue(buffers, base, slot)
        join_queue(buffers.heads, buffers.queues, base, slot, number - base)
