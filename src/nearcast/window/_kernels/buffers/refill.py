"""What is next, when a buffer runs short? The window is searched, and what changed is told."""

from __future__ import annotations

import numpy as np

from nearcast._jit import kernel
from nearcast.window._kernels.buffers.layout import (
    CLASS,
    COMING,
    DONE,
    FIRST_ROW,
    LATER,
    MOVED,
    N_ENTERED,
    N_LATER,
    N_MOVED,
    N_OUT,
    N_SEARCHED,
    NOW,
    OUT,
    POOL,
    ROOM_K,
    SCRATCH,
    SIZE,
    START,
    THETA,
    TO_COME,
    BufferContext,
    ChangeBuffer,
    Later,
    places_of,
)
from nearcast.window._kernels.buffers.queues import outlived, queue_anew
from nearcast.window._kernels.buffers.rooms import gather, write_buffer
from nearcast.window._kernels.lists import BASE, is_dead
from nearcast.window._kernels.search import n_to_read, score_later, search
from nearcast.window._kernels.social_window import score_social_later, search_social


@kernel
def tell_change(told: ChangeBuffer, step: int, slot: int, enters: bool, score: float, number: int) -> None:
    n = told.cursor[N_OUT]
    told.steps[n], told.slots[n], told.enters[n] = step, slot, enters
    told.scores[n], told.numbers[n] = score, number
    told.cursor[N_OUT] = n + 1


@kernel
def refresh(
    context: BufferContext, slot: int, score: float, number: int, step: int, first: int, horizon: int, in_order: bool,
    told: ChangeBuffer, later: Later,
) -> int:  # fmt: skip
    """Sweep a buffer whose result may have lost a message, let one in (none if its number is below 0), and refill."""
    buffers, base = context.buffers, context.lists.counts[BASE]
    heads, scratch = buffers.heads, context.scratch
    k, size, start = int(heads[slot, ROOM_K]), int(heads[slot, SIZE]), int(heads[slot, START])
    if told.cursor[N_OUT] + 2 * k + 2 > told.steps.size:
        return OUT
    if scratch.scores.size <= size + 1:
        return SCRATCH
    held = min(k, size)
    stayed = 0
    for i in range(start, start + held):
        stayed += not is_dead(buffers.numbers[i] + base, first, context.keys, horizon, in_order)
    if stayed == held and number < 0:  # it was pushed out before it left
        queue_anew(context, slot)
        return DONE
    theta = float(buffers.thetas[slot, THETA])
    n = gather(context, slot, first, horizon, in_order)
    arrived = -1
    if number >= 0 and score >= theta:
        arrived = n
        while arrived > 0 and scratch.scores[arrived - 1] <= score:
            scratch.scores[arrived], scratch.found[arrived] = scratch.scores[arrived - 1], scratch.found[arrived - 1]
            arrived -= 1
        scratch.scores[arrived], scratch.found[arrived] = score, number
        n += 1
    searched = n < k and theta > -np.inf
    if searched:
        code, n, theta = search_again(context, slot, step, first, horizon, in_order, told, later)
        if code != DONE:
            return code
    # What is told follows from the old block and the new list, so the old block is read before it is given away.
    n_out, n_entered, alive = told.cursor[N_OUT], told.cursor[N_ENTERED], 0
    for i in range(start, start + held):
        gone = buffers.numbers[i] + base
        is_gone = is_dead(gone, first, context.keys, horizon, in_order)
        if not is_gone:
            is_gone = not searched and alive + (0 <= arrived <= alive) >= k
            alive += 1
        if is_gone:
            tell_change(told, step, slot, False, buffers.scores[i], gone)
    for i in range(min(k, n)):
        if searched:
            is_new = _is_new(context, start, held, scratch.found[i])
        else:
            is_new = i == arrived or i - (0 <= arrived < i) >= stayed
        if is_new:
            tell_change(told, step, slot, True, scratch.scores[i], scratch.found[i])
            told.cursor[N_ENTERED] += scratch.found[i] == told.cursor[COMING]
    room = n + n // 8 + 2
    if heads[slot, CLASS] >= 0 and n <= places_of(heads[slot, CLASS]) <= 2 * n:
        room = places_of(heads[slot, CLASS])
    if not write_buffer(context, slot, n, room):
        told.cursor[N_OUT], told.cursor[N_ENTERED] = n_out, n_entered
        return POOL
    if searched:
        buffers.thetas[slot, THETA] = theta
        later.moved[told.cursor[N_MOVED]] = slot
        told.cursor[N_MOVED] += 1
        _note_later(context, slot, theta, told, later)
    queue_anew(context, slot)
    return DONE


@kernel
def _is_new(context: BufferContext, start: int, held: int, number: int) -> bool:
    relative = number - context.lists.counts[BASE]
    for i in range(start, start + held):  # noqa: SIM110 - a kernel
        if context.buffers.numbers[i] == relative:
            return False
    return True


@kernel
def most_to_note(context: BufferContext, slot: int) -> int:
    """Return how many messages a search may note at most."""
    if context.params.is_social:
        return int(context.friends.rows.shape[0])
    return n_to_read(context.lists, context.profiles, slot)


@kernel
def search_window(
    context: BufferContext, slot: int, now: int, first: int, horizon: int, in_order: bool
) -> tuple[int, float, int]:
    """Look through the window, as the kind scores; see `search`."""
    if context.params.is_social:
        return search_social(
            context.params, context.lists, context.window, context.profiles, context.friends, slot, now, first, context.keys,
            horizon, in_order, context.scratch,
        )  # fmt: skip
    return search(
        context.params, context.lists, context.window, context.profiles, context.signs, slot, now, first, context.keys, horizon,
        in_order, context.scratch,
    )  # fmt: skip


@kernel
def search_again(
    context: BufferContext,
    slot: int,
    step: int,
    first: int,
    horizon: int,
    in_order: bool,
    told: ChangeBuffer,
    later: Later,
) -> tuple[int, int, float]:
    """Look through the window; return how it ended, how many were found and theta."""
    cursor = told.cursor
    if context.scratch.bounds.size <= most_to_note(context, slot):
        return SCRATCH, 0, 0.0
    if cursor[N_MOVED] >= later.moved.size:
        return MOVED, 0, 0.0
    if cursor[N_LATER] + later.heads.size > later.slots.size:
        return LATER, 0, 0.0
    n, theta, n_later = search_window(context, slot, cursor[NOW], first, horizon, in_order)
    cursor[N_SEARCHED] += 1
    context.scratch.counts[TO_COME] = n_later
    n = outlived(
        context.params.by_time, context.keys, context.scratch.scores, context.scratch.found, n,
        int(context.buffers.heads[slot, ROOM_K]),
    )  # fmt: skip
    return DONE, n, theta


@kernel
def _note_later(context: BufferContext, slot: int, theta: float, told: ChangeBuffer, later: Later) -> None:
    """Note messages of the batch that are to come and that the index was not asked for."""
    scratch, cursor, threshold = context.scratch, told.cursor, later.thresholds[slot]
    if theta >= threshold:
        return
    if context.params.is_social:
        n_found = score_social_later(
            context.params, context.window, context.profiles, context.friends, slot, scratch, scratch.counts[TO_COME], theta,
            threshold,
        )  # fmt: skip
    else:
        n_found = score_later(
            context.params, context.window, context.profiles, slot, scratch, scratch.counts[TO_COME], theta, threshold
        )
    for i in range(n_found):
        row, n = scratch.found[i] - cursor[FIRST_ROW], cursor[N_LATER]
        later.slots[n], later.scores[n], later.links[n] = slot, scratch.scores[i], later.heads[row]
        later.heads[row] = n
        cursor[N_LATER] = n + 1
    later.thresholds[slot] = theta
