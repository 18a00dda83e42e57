"""Refill: a buffer that lost messages is swept, searched for if it runs short, and its changes are reported."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel
from nearcast.window._kernels.buffers.blocks import copy_alive, write_buffer
from nearcast.window._kernels.buffers.layout import (
    ARRIVING,
    CLASS,
    DONE,
    FIRST_ROW,
    MOVED,
    N_ENTERED,
    N_MOVED,
    N_OUT,
    N_PENDING,
    N_SEARCHED,
    NOW,
    OUT,
    PENDING,
    POOL,
    RESULT_SIZE,
    SCRATCH,
    SIZE,
    START,
    THETA,
    Arrival,
    BufferContext,
    ChangeBuffer,
    PendingArrivals,
    StepState,
    capacity_of,
    move_theta,
    write_change,
)
from nearcast.window._kernels.buffers.queues import drop_dominated, requeue
from nearcast.window._kernels.candidates.source import SourceKernels
from nearcast.window._kernels.horizon import Horizon, is_dead
from nearcast.window._kernels.lists import BASE
from nearcast.window._kernels.search import N_PENDING as N_PENDING_POSTINGS
from nearcast.window._kernels.search import SearchScratch


@kernel
def refill(
    context: BufferContext,
    kernels: SourceKernels,
    slot: int,
    arrival: Arrival,
    step: StepState,
    changes: ChangeBuffer,
    pending: PendingArrivals,
) -> int:
    """Sweep a buffer whose result may have lost a message, admit an arrival, if any, and search if it runs short."""
    buffers, scratch, cursor = context.buffers, context.source.scratch, changes.cursor
    heads = buffers.heads
    k, size = int(heads[slot, RESULT_SIZE]), int(heads[slot, SIZE])
    if cursor[N_OUT] + 2 * k + 2 > changes.steps.size:
        return OUT
    if scratch.scores.size <= size + 1:
        return SCRATCH
    n_stayed = _count_stayed(context, slot, step.horizon)
    if n_stayed == min(k, size) and arrival.number < 0:  # a better message replaced it before it expired
        requeue(context, slot)
        return DONE
    theta = float(buffers.thetas[slot, THETA])
    n, rank = copy_alive(context, slot, step.horizon), -1
    if arrival.number >= 0 and arrival.score >= theta:
        rank = _insert_sorted(scratch, n, arrival)
        n += 1
    searched = n < k and theta > -np.inf
    if searched:
        code, n, theta = _search_again(context, kernels, slot, step.horizon, changes, pending)
        if code != DONE:
            return code
    # Changes follow from the old block and the new list, so the old block is read before it is freed.
    n_out, n_entered = cursor[N_OUT], cursor[N_ENTERED]
    if searched:
        _report_search(context, slot, n, step, changes)
    else:
        _report_sweep(context, slot, n, n_stayed, rank, step, changes)
    room = n + n // 8 + 2
    if heads[slot, CLASS] >= 0 and n <= capacity_of(heads[slot, CLASS]) <= 2 * n:
        room = capacity_of(heads[slot, CLASS])
    if not write_buffer(context, slot, n, room):
        cursor[N_OUT], cursor[N_ENTERED] = n_out, n_entered
        return POOL
    if searched:
        move_theta(buffers, slot, theta, changes, pending)
        _note_pending(context, kernels, slot, theta, changes, pending)
    requeue(context, slot)
    return DONE


@kernel
def _count_stayed(context: BufferContext, slot: int, horizon: Horizon) -> int:
    """Return how many messages of a result are alive."""
    heads, base, n = context.buffers.heads, context.source.lists.counts[BASE], 0
    start = heads[slot, START]
    for i in range(start, start + min(heads[slot, RESULT_SIZE], heads[slot, SIZE])):
        n += not is_dead(horizon, context.buffers.numbers[i] + base)
    return n


@kernel
def _insert_sorted(scratch: SearchScratch, n: int, arrival: Arrival) -> int:
    """Insert an arrival into n sorted messages of the scratch, before those of equal score; return its rank."""
    rank = n
    while rank > 0 and scratch.scores[rank - 1] <= arrival.score:
        scratch.scores[rank], scratch.found[rank] = scratch.scores[rank - 1], scratch.found[rank - 1]
        rank -= 1
    scratch.scores[rank], scratch.found[rank] = arrival.score, arrival.number
    return rank


@kernel
def _report_sweep(
    context: BufferContext, slot: int, n: int, n_stayed: int, rank: int, step: StepState, changes: ChangeBuffer
) -> None:
    """Report how a result differs from n messages of the scratch, with an arrival of a rank, or -1, among them."""
    buffers, base, scratch = context.buffers, context.source.lists.counts[BASE], context.source.scratch
    k, start = int(buffers.heads[slot, RESULT_SIZE]), int(buffers.heads[slot, START])
    alive = 0
    for i in range(start, start + min(k, buffers.heads[slot, SIZE])):
        number = buffers.numbers[i] + base
        leaves = is_dead(step.horizon, number)
        if not leaves:
            leaves = alive + (0 <= rank <= alive) >= k
            alive += 1
        if leaves:
            write_change(changes, step.number, slot, False, buffers.scores[i], number)
    for i in range(min(k, n)):
        if i == rank or i - (0 <= rank < i) >= n_stayed:
            _report_enter(scratch, i, slot, step, changes)


@kernel
def _report_search(context: BufferContext, slot: int, n: int, step: StepState, changes: ChangeBuffer) -> None:
    """Report how a result differs from n messages of the scratch that a search found."""
    buffers, base, scratch = context.buffers, context.source.lists.counts[BASE], context.source.scratch
    k, start = int(buffers.heads[slot, RESULT_SIZE]), int(buffers.heads[slot, START])
    stop = start + min(k, buffers.heads[slot, SIZE])
    for i in range(start, stop):
        number = buffers.numbers[i] + base
        if is_dead(step.horizon, number):
            write_change(changes, step.number, slot, False, buffers.scores[i], number)
    for i in range(min(k, n)):
        if not _holds(buffers.numbers, start, stop, scratch.found[i] - base):
            _report_enter(scratch, i, slot, step, changes)


@kernel
def _report_enter(scratch: SearchScratch, i: int, slot: int, step: StepState, changes: ChangeBuffer) -> None:
    write_change(changes, step.number, slot, True, scratch.scores[i], scratch.found[i])
    changes.cursor[N_ENTERED] += scratch.found[i] == changes.cursor[ARRIVING]


@kernel
def _holds(numbers: NDArray[np.int32], start: int, stop: int, number: int) -> bool:
    for i in range(start, stop):  # noqa: SIM110 - a kernel
        if numbers[i] == number:
            return True
    return False


@kernel
def _search_again(
    context: BufferContext,
    kernels: SourceKernels,
    slot: int,
    horizon: Horizon,
    changes: ChangeBuffer,
    pending: PendingArrivals,
) -> tuple[int, int, float]:
    """Search the window; return a code, how many messages were found, and theta."""
    source, cursor = context.source, changes.cursor
    scratch = source.scratch
    if scratch.bounds.size <= kernels.max_noted(source, slot):
        return SCRATCH, 0, 0.0
    if cursor[N_MOVED] >= pending.moved.size:
        return MOVED, 0, 0.0
    if cursor[N_PENDING] + pending.heads.size > pending.slots.size:
        return PENDING, 0, 0.0
    n, theta, n_pending = kernels.search(source, slot, cursor[NOW], horizon)
    cursor[N_SEARCHED] += 1
    scratch.counts[N_PENDING_POSTINGS] = n_pending
    k = int(context.buffers.heads[slot, RESULT_SIZE])
    n = drop_dominated(source.params.by_time, context.keys, scratch.scores, scratch.found, n, k)
    return DONE, n, theta


@kernel
def _note_pending(
    context: BufferContext,
    kernels: SourceKernels,
    slot: int,
    theta: float,
    changes: ChangeBuffer,
    pending: PendingArrivals,
) -> None:
    """Note the messages that arrive later in the batch and that the index did not report, since theta was higher."""
    scratch, cursor, threshold = context.source.scratch, changes.cursor, pending.thresholds[slot]
    if theta >= threshold:
        return
    n_found = kernels.score_pending(context.source, slot, scratch.counts[N_PENDING_POSTINGS], theta, threshold)
    for i in range(n_found):
        row, n = scratch.found[i] - cursor[FIRST_ROW], cursor[N_PENDING]
        pending.slots[n], pending.scores[n], pending.links[n] = slot, scratch.scores[i], pending.heads[row]
        pending.heads[row] = n
        cursor[N_PENDING] = n + 1
    pending.thresholds[slot] = theta
