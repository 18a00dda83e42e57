"""How do buffers follow a stream? Step by step: arrivals come, and queues of who leaves are asked."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch
from nearcast.model._kernels.blocks import give_block
from nearcast.model._kernels.profiles import K as PROFILE_K
from nearcast.window._kernels.buffers.layout import (
    ALIVE,
    CLASS,
    COMING,
    DONE,
    LEFT,
    MATCH,
    N_ENTERED,
    N_OUT,
    NEXT,
    NOBODY,
    NOW,
    OUT,
    POOL,
    PREVIOUS,
    QUEUE,
    ROOM_K,
    ROW,
    SCORES_A_LINE,
    SCRATCH,
    SIZE,
    START,
    STEP,
    THETA,
    Batch,
    BufferArrays,
    BufferContext,
    ChangeBuffer,
    Later,
    places_of,
)
from nearcast.window._kernels.buffers.queues import join_queue, leave_queue, outlived, queue_anew
from nearcast.window._kernels.buffers.refill import most_to_note, refresh, search_window, tell_change
from nearcast.window._kernels.buffers.rooms import make_room, write_buffer
from nearcast.window._kernels.lists import BASE


@kernel
def publish(context: BufferContext, batch: Batch, told: ChangeBuffer, later: Later) -> int:
    """Move on by a batch from where the cursor stands; stop where there is no room, to be called again."""
    cursor, queues, heads = told.cursor, context.buffers.queues, context.buffers.heads
    row, first = int(cursor[ROW]), int(cursor[ALIVE])
    for step in range(cursor[STEP], batch.horizons.size):
        horizon, stop, code = batch.horizons[step], int(cursor[LEFT]), DONE
        while stop < batch.leaving.size and batch.leaving_steps[stop] == step:
            if batch.in_order:
                first = batch.leaving[stop] + 1
            stop += 1
        if row < batch.of_rows.size and batch.of_rows[row] == step:
            code = _arrive(context, batch, row, step, first, horizon, told, later)
            row += code == DONE
        while code == DONE and cursor[LEFT] < stop:
            left, last = cursor[LEFT], batch.leaving.size - 1
            prefetch(queues, batch.leaving[min(left + 4, last)] & (queues.size - 1))
            after = queues[batch.leaving[min(left + 2, last)] & (queues.size - 1)]
            if after != NOBODY:
                prefetch(heads, after)
            place, following = batch.leaving[left], batch.leaving[min(left + 1, last)]
            place, following = place & (queues.size - 1), following & (queues.size - 1)
            if queues[place] != NOBODY:
                code = _expire(context, place, following, step, first, horizon, batch.in_order, told, later)
            cursor[LEFT] += code == DONE
        cursor[ROW], cursor[ALIVE] = row, first
        if code != DONE:
            cursor[STEP] = step
            return code
        cursor[COMING] = NOBODY
    cursor[STEP] = batch.horizons.size
    return DONE


@kernel
def _expire(
    context: BufferContext, place: int, following: int, step: int, first: int, horizon: int, in_order: bool, told: ChangeBuffer,
    later: Later,
) -> int:  # fmt: skip
    """Take a message that leaves out of the buffers of those in its queue; as in `_arrive`, arrays are variables.

    `following` is the place of the message that leaves after it.
    """
    cursor, keys, queues = told.cursor, context.keys, context.buffers.queues
    heads, thetas = context.buffers.heads, context.buffers.thetas
    scores, numbers, line = context.buffers.scores, context.buffers.numbers, context.scratch.line
    told_steps, told_slots, told_enters = told.steps, told.slots, told.enters
    told_scores, told_numbers = told.scores, told.numbers
    by_time, base, mask = context.params.by_time, context.lists.counts[BASE], keys.size - 1
    ahead = queues[following]
    while queues[place] != NOBODY:
        n, one = 0, queues[place]
        while one != NOBODY and n < line.size:
            line[n] = one
            n += 1
            one = heads[one, NEXT]
        for turn in range(n):
            # The queue of the message that leaves next is walked on the way, a step a turn: its memory is here then.
            if ahead != NOBODY:
                start = heads[ahead, START]
                for j in range(0, 4 * SCORES_A_LINE, SCORES_A_LINE):
                    prefetch(scores, start + j)
                prefetch(numbers, start)
                prefetch(numbers, start + 2 * SCORES_A_LINE)
                ahead = heads[ahead, NEXT]
                if ahead != NOBODY:
                    prefetch(heads, ahead)
            slot = line[turn]
            k, size, start = heads[slot, ROOM_K], heads[slot, SIZE], heads[slot, START]
            held, alive, stayed = min(k, size), 0, 0
            if in_order:
                least = first - base
                for i in range(start, start + held):
                    stayed += numbers[i] >= least
                alive = stayed
                for i in range(start + held, start + size):
                    alive += numbers[i] >= least
            else:
                for i in range(size):
                    number = numbers[start + i] + base
                    lives = number >= first and keys[number & mask] > horizon
                    alive += lives
                    stayed += lives and i < held
            if stayed < held and alive < k and thetas[slot, THETA] > -np.inf:
                code = refresh(context, slot, 0.0, NOBODY, step, first, horizon, in_order, told, later)
                if code != DONE:
                    return code
                continue
            if stayed < held:
                out, kept = cursor[N_OUT], 0
                if out + 2 * held > told_steps.size:
                    return OUT
                for i in range(size):
                    number = numbers[start + i] + base
                    if number >= first and (in_order or keys[number & mask] > horizon):
                        scores[start + kept], numbers[start + kept] = scores[start + i], numbers[start + i]
                        kept += 1
                    elif i < held:
                        told_steps[out], told_slots[out], told_enters[out] = step, slot, False
                        told_scores[out], told_numbers[out] = scores[start + i], number
                        out += 1
                for i in range(start + stayed, start + min(k, kept)):
                    told_steps[out], told_slots[out], told_enters[out] = step, slot, True
                    told_scores[out], told_numbers[out] = scores[i], numbers[i] + base
                    out += 1
                cursor[N_OUT], heads[slot, SIZE] = out, kept
                held = min(k, kept)
            soonest, its_key = NOBODY, np.int64(0)
            for i in range(start, start + held):
                key = keys[(numbers[i] + base) & mask] if by_time else np.int64(numbers[i])
                if soonest == NOBODY or key < its_key or (key == its_key and numbers[i] < soonest):
                    soonest, its_key = numbers[i], key
            after = heads[slot, NEXT]  # the slot is the first of the queue
            queues[place] = after
            if after != NOBODY:
                heads[after, PREVIOUS] = NOBODY
            heads[slot, QUEUE] = NOBODY
            if soonest != NOBODY:
                target = (soonest + base) & (queues.size - 1)
                after = queues[target]
                heads[slot, QUEUE], heads[slot, NEXT], heads[slot, PREVIOUS] = soonest, after, NOBODY
                if after != NOBODY:
                    heads[after, PREVIOUS] = slot
                queues[target] = slot
    return DONE


@kernel
def _arrive(
    context: BufferContext,
    batch: Batch,
    row: int,
    step: int,
    first: int,
    horizon: int,
    told: ChangeBuffer,
    later: Later,
) -> int:
    """Let the message of a row into all buffers that it concerns.

    This is where most of the time goes. All arrays are at hand as variables, since a call that hands on tuples of
    them costs more than what it does.
    """
    cursor, keys, in_order = told.cursor, context.keys, batch.in_order
    heads, thetas = context.buffers.heads, context.buffers.thetas
    scores, numbers = context.buffers.scores, context.buffers.numbers
    rows, slots, found = batch.rows, batch.slots, batch.scores
    told_steps, told_slots, told_enters = told.steps, told.slots, told.enters
    told_scores, told_numbers = told.scores, told.numbers
    by_time, base, mask = context.params.by_time, context.lists.counts[BASE], keys.size - 1
    number = batch.first_number + row
    cursor[NOW] = cursor[COMING] = number
    at, n = int(cursor[MATCH]), slots.size
    while True:
        one = -1
        if at < n and rows[at] == row:
            slot, score = slots[at], found[at]
            if at + 12 < n:
                prefetch(heads, slots[at + 12])
            if at + 6 < n and heads[slots[at + 6], START] >= 0:
                ahead = heads[slots[at + 6], START]
                for line in range(4):
                    prefetch(scores, ahead + 8 * line)
                prefetch(numbers, ahead)
                prefetch(numbers, ahead + 16)
        else:
            one = later.heads[row]
            if one < 0:
                return DONE
            slot, score = later.slots[one], later.scores[one]
        if score >= thetas[slot, THETA]:
            queue = heads[slot, QUEUE]
            soonest = queue + base
            if queue != NOBODY and (soonest < first or (not in_order and keys[soonest & mask] <= horizon)):
                code = refresh(context, slot, score, number, step, first, horizon, in_order, told, later)
                if code != DONE:
                    return code
            else:
                if cursor[N_OUT] + 2 > told_steps.size:
                    return OUT
                if heads[slot, CLASS] < 0 or heads[slot, SIZE] == places_of(heads[slot, CLASS]):
                    code = make_room(context, slot, first, horizon, in_order, told, later)
                    if code != DONE:
                        return code
                if score >= thetas[slot, THETA]:
                    k, size, start = heads[slot, ROOM_K], heads[slot, SIZE], heads[slot, START]
                    low, high = start, start + size
                    while low < high:  # the newer message goes before those of its score
                        middle = (low + high) >> 1
                        if scores[middle] > score:
                            low = middle + 1
                        else:
                            high = middle
                    for i in range(start + size, low, -1):
                        scores[i], numbers[i] = scores[i - 1], numbers[i - 1]
                    scores[low], numbers[low] = score, number - base
                    heads[slot, SIZE] = size + 1
                    if low - start < k:
                        out = cursor[N_OUT]
                        if size >= k:
                            told_steps[out], told_slots[out], told_enters[out] = step, slot, False
                            told_scores[out], told_numbers[out] = scores[start + k], numbers[start + k] + base
                            out += 1
                        told_steps[out], told_slots[out], told_enters[out] = step, slot, True
                        told_scores[out], told_numbers[out] = score, number
                        cursor[N_OUT] = out + 1
                        cursor[N_ENTERED] += 1
                        if queue == NOBODY or (by_time and keys[number & mask] < keys[soonest & mask]):
                            leave_queue(context.buffers, base, slot)
                            join_queue(context.buffers, base, slot, number - base)
        if one < 0:
            at += 1
            cursor[MATCH] = at
        else:
            later.heads[row] = later.links[one]


# -- subscriptions --------------------------------------------------------------------------------------------


@kernel
def begin(
    context: BufferContext, slots: NDArray[np.int32], start: int, now: int, first: int, horizon: int, in_order: bool,
    told: ChangeBuffer,
) -> tuple[int, int]:  # fmt: skip
    """Start buffers with the best of the window; return where it stopped, and for want of what.

    What results hold is told as if it came at step 0.
    """
    buffers, scratch = context.buffers, context.scratch
    for i in range(start, slots.size):
        slot = slots[i]
        k = int(context.profiles.heads[slot, PROFILE_K])
        if told.cursor[N_OUT] + k > told.steps.size:
            return i, OUT
        if scratch.bounds.size <= most_to_note(context, slot):
            return i, SCRATCH
        n, theta, _ = search_window(context, slot, now, first, horizon, in_order)
        n = outlived(context.params.by_time, context.keys, scratch.scores, scratch.found, n, k)
        buffers.heads[slot, START], buffers.heads[slot, CLASS], buffers.heads[slot, SIZE] = -1, -1, 0
        if n > 0 and not write_buffer(context, slot, n, n + n // 8 + 2):
            return i, POOL
        buffers.heads[slot, ROOM_K], buffers.heads[slot, QUEUE] = k, NOBODY
        buffers.thetas[slot, THETA] = theta
        queue_anew(context, slot)
        for j in range(min(k, n)):
            tell_change(told, 0, slot, True, scratch.scores[j], scratch.found[j])
    return slots.size, DONE


@kernel
def end(buffers: BufferArrays, base: int, slots: NDArray[np.int32]) -> None:
    """Forget buffers."""
    for slot in slots:
        leave_queue(buffers, base, slot)
        if buffers.heads[slot, CLASS] >= 0:
            give_block(buffers.state, buffers.numbers, buffers.heads[slot, CLASS], buffers.heads[slot, START])
        buffers.heads[slot, START], buffers.heads[slot, CLASS], buffers.heads[slot, SIZE] = -1, -1, 0
        buffers.heads[slot, ROOM_K] = 0


@kernel
def move_numbers(buffers: BufferArrays, by: int) -> None:
    """Count numbers from a later one on; what has left long ago gets numbers below 0."""
    heads = buffers.heads
    for slot in range(heads.shape[0]):
        if heads[slot, CLASS] >= 0:
            for i in range(heads[slot, START], heads[slot, START] + heads[slot, SIZE]):
                buffers.numbers[i] = max(-1, buffers.numbers[i] - by)
        if heads[slot, ROOM_K] > 0 and heads[slot, QUEUE] != NOBODY:
            heads[slot, QUEUE] -= by
