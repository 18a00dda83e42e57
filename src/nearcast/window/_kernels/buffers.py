"""Who is among the k best of the window, and who would be next? A buffer a subscription (Skype, section 6).

    heads    slot -> theta, its block, size, k, and its place in the queue of a message
    block    scores  [ 0.91 0.88 ... 0.71 | 0.70 0.66 ]        best first; the first k are the result
             numbers [   41   52       17 |   60   44 ]
    queues   message -> the subscriptions whose result loses this one first

A buffer holds every message of the window that scores theta or more, but for those that k better ones outlive. While
it holds k or more, or theta is -inf, its first k are the best of the window (theorem 5); when it runs short, the
window is searched. Behind the first k a buffer may hold messages that have left: these are swept when it is full, or
when one moves up. So an expiry costs those subscriptions something whose result it changes, and nobody else: each
stands in the queue of the message that its result will lose first, or would have lost had it not been pushed out.

A step first lets arrivals in, then asks the queues of who leaves; either sweeps a buffer before it changes it, so
what is told is the difference that the whole step makes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch
from nearcast.model._kernels.blocks import give_block, take_block
from nearcast.model._kernels.profiles import K as PROFILE_K
from nearcast.model._kernels.profiles import ProfileArrays
from nearcast.window._kernels.friends import FriendArrays, score_friends_later, search_friends
from nearcast.window._kernels.lists import BASE, ListArrays, is_dead
from nearcast.window._kernels.search import (
    Scratch,
    n_to_read,
    round_up,
    score_later,
    search,
    wanted,
)
from nearcast.window._kernels.world import BOUNDED, FACTOR, World
from nearcast.window.store import WindowArrays

START, CLASS, SIZE, ROOM_K, NEXT, PREVIOUS, QUEUE = 1, 2, 3, 4, 5, 6, 7
"""Columns of a head; theta, a float32, is in column 0."""
THETA = 0
NOBODY = -1
TO_COME = 2  # place in the counts of the scratch
STEPS_AN_OCTAVE = 4
SCORES_A_LINE = 8  # of a cache line
NO_END = 1 << 30

DONE, OUT, POOL, SCRATCH, LATER, MOVED = 0, 1, 2, 3, 4, 5
"""How a kernel ends: all done, or for want of room in this."""

STEP, ROW, MATCH, LEFT, ALIVE, NOW, FIRST_ROW, COMING = 0, 1, 2, 3, 4, 5, 6, 13
"""Places of a cursor: the step, row, match and leaving message that come next; the first number that is alive, the
newest that has come, that of the first row, and that which comes at this step, if any."""
N_OUT, N_MOVED, N_LATER, N_ENTERED, N_SEARCHED, N_SWEPT = 7, 8, 9, 10, 11, 12
"""And how much came of it."""
CURSOR = 16


class BufferArrays(NamedTuple):
    """The buffers of one kind."""

    heads: NDArray[np.int32]
    """int32 (n_slots, 8): see the columns; -1 as class for a slot without a block, 0 as k for one that is free."""
    thetas: NDArray[np.float32]
    """float32 (n_slots, 8): the same bytes."""
    scores: NDArray[np.float64]
    numbers: NDArray[np.int32]
    """float64, int32 (room,): blocks; numbers are relative to the base of the lists."""
    queues: NDArray[np.int32]
    """int32 (as many as the window has places,): the first subscription of the queue of a message, or -1."""
    state: NDArray[np.int64]
    """int64 (STATE,): see `blocks`."""


class Batch(NamedTuple):
    """What happens: the steps of a batch and what was found for its messages."""

    first_number: int
    """The number of its first message."""
    of_rows: NDArray[np.int64]
    horizons: NDArray[np.int64]
    leaving: NDArray[np.int64]
    leaving_steps: NDArray[np.int64]
    rows: NDArray[np.int64]
    slots: NDArray[np.int32]
    scores: NDArray[np.float64]
    in_order: bool
    """Whether messages leave as they came."""


class Told(NamedTuple):
    """What changed."""

    steps: NDArray[np.int64]
    slots: NDArray[np.int32]
    enters: NDArray[np.bool_]
    scores: NDArray[np.float64]
    numbers: NDArray[np.int64]
    cursor: NDArray[np.int64]
    """int64 (16,): see the places."""


class Later(NamedTuple):
    """Arrivals of the batch that a search turned up before they came: chains by row."""

    heads: NDArray[np.int32]
    """int32 (n_rows,): the first of a row, or -1."""
    links: NDArray[np.int32]
    slots: NDArray[np.int32]
    scores: NDArray[np.float64]
    moved: NDArray[np.int32]
    """int32: slots whose theta moved, some perhaps twice."""
    bars: NDArray[np.float32]
    """float32 (n_slots,): what the index was asked to let through."""


class Everything(NamedTuple):
    """All that a step may touch."""

    world: World
    buffers: BufferArrays
    lists: ListArrays
    window: WindowArrays
    profiles: ProfileArrays
    friends: FriendArrays
    signs: NDArray[np.int64]
    keys: NDArray[np.int64]
    scratch: Scratch


# -- blocks ---------------------------------------------------------------------------------------------------


@kernel
def class_for(n: int) -> int:
    """Return the class of the smallest block for n places: 4, 5, 6, 7, 8, 10, 12, 14, 16, 20 ... 4 a doubling."""
    if n <= STEPS_AN_OCTAVE:
        return 0
    octave = 0
    while (2 * STEPS_AN_OCTAVE << octave) < n:
        octave += 1
    return octave * STEPS_AN_OCTAVE + ((n - 1) >> octave) + 1 - STEPS_AN_OCTAVE


@kernel
def places_of(block_class: int) -> int:
    """Return how many places a block of a class has."""
    octave, within = block_class // STEPS_AN_OCTAVE, block_class % STEPS_AN_OCTAVE
    return (STEPS_AN_OCTAVE + within) << octave


@kernel
def _most(world: World, k: int, n_read: int) -> int:
    """Return how many places a buffer may have before it is cut."""
    need = wanted(world, k, n_read)
    if world.policy == FACTOR:  # theta stays until the window is searched again
        return NO_END
    return need if world.policy == BOUNDED else need + need // 4 + 4


# -- queues ---------------------------------------------------------------------------------------------------


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
def queue_anew(every: Everything, slot: int) -> None:
    """Let a subscription stand in the queue of the message that its result loses first."""
    buffers, base = every.buffers, every.lists.counts[BASE]
    heads, numbers = buffers.heads, buffers.numbers
    start, n = heads[slot, START], min(heads[slot, SIZE], heads[slot, ROOM_K])
    next_to_go = NOBODY
    if not every.world.by_time:
        for i in range(start, start + n):
            if next_to_go == NOBODY or numbers[i] < next_to_go:
                next_to_go = numbers[i]
    else:
        keys, soonest = every.keys, np.int64(0)
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
def _outlived(
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
def _write(every: Everything, slot: int, n: int, room: int) -> bool:
    """Put what the scratch holds, sorted, into a buffer with some room; False, and nothing done, if there is none."""
    buffers, base = every.buffers, every.lists.counts[BASE]
    start = _place_for(buffers, slot, max(n, room))
    if start < 0:
        return False
    _settle(buffers, slot, start, max(n, room))
    scores, numbers = buffers.scores, buffers.numbers
    from_scores, from_numbers = every.scratch.scores, every.scratch.found
    for i in range(n):
        scores[start + i] = from_scores[i]
        numbers[start + i] = from_numbers[i] - base
    buffers.heads[slot, SIZE] = n
    return True


@kernel
def _gather(every: Everything, slot: int, first: int, horizon: int, in_order: bool) -> int:
    """Put the living of a buffer into the scratch; return how many they are."""
    base, keys, n = every.lists.counts[BASE], every.keys, 0
    scores, numbers = every.buffers.scores, every.buffers.numbers
    to_scores, to_numbers = every.scratch.scores, every.scratch.found
    start = every.buffers.heads[slot, START]
    for i in range(start, start + every.buffers.heads[slot, SIZE]):
        number = numbers[i] + base
        if number >= first and (in_order or keys[number & (keys.size - 1)] > horizon):
            to_scores[n], to_numbers[n] = scores[i], number
            n += 1
    return n


@kernel
def _make_room(
    every: Everything, slot: int, first: int, horizon: int, in_order: bool, told: Told, later: Later
) -> int:
    """Sweep a buffer that is full and give it more places, or a higher theta; the first k stay."""
    world, buffers = every.world, every.buffers
    heads, scratch = buffers.heads, every.scratch
    k, size = int(heads[slot, ROOM_K]), int(heads[slot, SIZE])
    if scratch.scores.size <= size + 1:
        return SCRATCH
    n = _gather(every, slot, first, horizon, in_order)
    if world.policy != BOUNDED:
        n = _outlived(world.by_time, every.keys, scratch.scores, scratch.found, n, k)
    n_read = n_to_read(every.lists, every.profiles, slot)
    most = max(_most(world, k, n_read), k + 1)
    theta = float(buffers.thetas[slot, THETA])
    if n >= most:
        if told.cursor[N_MOVED] >= later.moved.size:
            return MOVED
        # Theta passes the best that is dropped; scores too close to it for that are dropped as well.
        fewer = most - 1 if world.policy == BOUNDED else min(most - 1, max(k, wanted(world, k, n_read)))
        above = round_up(scratch.scores[fewer])
        while fewer > 0 and scratch.scores[fewer - 1] < above:
            fewer -= 1
        if fewer >= k:
            n, theta = fewer, above
    if not _write(every, slot, n, max(n + 1, min(most, n + n // 8 + 2))):
        return POOL
    told.cursor[N_SWEPT] += 1
    if theta > buffers.thetas[slot, THETA]:
        buffers.thetas[slot, THETA] = theta
        later.moved[told.cursor[N_MOVED]] = slot
        told.cursor[N_MOVED] += 1
    return DONE


@kernel
def _tell(told: Told, step: int, slot: int, enters: bool, score: float, number: int) -> None:
    n = told.cursor[N_OUT]
    told.steps[n], told.slots[n], told.enters[n] = step, slot, enters
    told.scores[n], told.numbers[n] = score, number
    told.cursor[N_OUT] = n + 1


@kernel
def _refresh(
    every: Everything, slot: int, score: float, number: int, step: int, first: int, horizon: int, in_order: bool,
    told: Told, later: Later,
) -> int:  # fmt: skip
    """Sweep a buffer whose result may have lost a message, let one in (none if its number is below 0), and refill."""
    buffers, base = every.buffers, every.lists.counts[BASE]
    heads, scratch = buffers.heads, every.scratch
    k, size, start = int(heads[slot, ROOM_K]), int(heads[slot, SIZE]), int(heads[slot, START])
    if told.cursor[N_OUT] + 2 * k + 2 > told.steps.size:
        return OUT
    if scratch.scores.size <= size + 1:
        return SCRATCH
    held = min(k, size)
    stayed = 0
    for i in range(start, start + held):
        stayed += not is_dead(buffers.numbers[i] + base, first, every.keys, horizon, in_order)
    if stayed == held and number < 0:  # it was pushed out before it left
        queue_anew(every, slot)
        return DONE
    theta = float(buffers.thetas[slot, THETA])
    n = _gather(every, slot, first, horizon, in_order)
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
        code, n, theta = _search_again(every, slot, step, first, horizon, in_order, told, later)
        if code != DONE:
            return code
    # What is told follows from the old block and the new list, so the old block is read before it is given away.
    n_out, n_entered, alive = told.cursor[N_OUT], told.cursor[N_ENTERED], 0
    for i in range(start, start + held):
        gone = buffers.numbers[i] + base
        is_gone = is_dead(gone, first, every.keys, horizon, in_order)
        if not is_gone:
            is_gone = not searched and alive + (0 <= arrived <= alive) >= k
            alive += 1
        if is_gone:
            _tell(told, step, slot, False, buffers.scores[i], gone)
    for i in range(min(k, n)):
        if searched:
            is_new = _is_new(every, start, held, scratch.found[i])
        else:
            is_new = i == arrived or i - (0 <= arrived < i) >= stayed
        if is_new:
            _tell(told, step, slot, True, scratch.scores[i], scratch.found[i])
            told.cursor[N_ENTERED] += scratch.found[i] == told.cursor[COMING]
    room = n + n // 8 + 2
    if heads[slot, CLASS] >= 0 and n <= places_of(heads[slot, CLASS]) <= 2 * n:
        room = places_of(heads[slot, CLASS])
    if not _write(every, slot, n, room):
        told.cursor[N_OUT], told.cursor[N_ENTERED] = n_out, n_entered
        return POOL
    if searched:
        buffers.thetas[slot, THETA] = theta
        later.moved[told.cursor[N_MOVED]] = slot
        told.cursor[N_MOVED] += 1
        _note_later(every, slot, theta, told, later)
    queue_anew(every, slot)
    return DONE


@kernel
def _is_new(every: Everything, start: int, held: int, number: int) -> bool:
    relative = number - every.lists.counts[BASE]
    for i in range(start, start + held):  # noqa: SIM110 - a kernel
        if every.buffers.numbers[i] == relative:
            return False
    return True


@kernel
def _most_to_note(every: Everything, slot: int) -> int:
    """Return how many messages a search may note at most."""
    if every.world.is_social:
        return int(every.friends.rows.shape[0])
    return n_to_read(every.lists, every.profiles, slot)


@kernel
def _search(
    every: Everything, slot: int, now: int, first: int, horizon: int, in_order: bool
) -> tuple[int, float, int]:
    """Look through the window, as the kind scores; see `search`."""
    if every.world.is_social:
        return search_friends(
            every.world, every.lists, every.window, every.profiles, every.friends, slot, now, first, every.keys,
            horizon, in_order, every.scratch,
        )  # fmt: skip
    return search(
        every.world, every.lists, every.window, every.profiles, every.signs, slot, now, first, every.keys, horizon,
        in_order, every.scratch,
    )  # fmt: skip


@kernel
def _search_again(
    every: Everything, slot: int, step: int, first: int, horizon: int, in_order: bool, told: Told, later: Later
) -> tuple[int, int, float]:
    """Look through the window; return how it ended, how many were found and theta."""
    cursor = told.cursor
    if every.scratch.bounds.size <= _most_to_note(every, slot):
        return SCRATCH, 0, 0.0
    if cursor[N_MOVED] >= later.moved.size:
        return MOVED, 0, 0.0
    if cursor[N_LATER] + later.heads.size > later.slots.size:
        return LATER, 0, 0.0
    n, theta, n_later = _search(every, slot, cursor[NOW], first, horizon, in_order)
    cursor[N_SEARCHED] += 1
    every.scratch.counts[TO_COME] = n_later
    n = _outlived(
        every.world.by_time, every.keys, every.scratch.scores, every.scratch.found, n,
        int(every.buffers.heads[slot, ROOM_K]),
    )  # fmt: skip
    return DONE, n, theta


@kernel
def _note_later(every: Everything, slot: int, theta: float, told: Told, later: Later) -> None:
    """Note messages of the batch that are to come and that the index was not asked for."""
    scratch, cursor, bar = every.scratch, told.cursor, later.bars[slot]
    if theta >= bar:
        return
    if every.world.is_social:
        n_found = score_friends_later(
            every.world, every.window, every.profiles, every.friends, slot, scratch, scratch.counts[TO_COME], theta,
            bar,
        )  # fmt: skip
    else:
        n_found = score_later(
            every.world, every.window, every.profiles, slot, scratch, scratch.counts[TO_COME], theta, bar
        )
    for i in range(n_found):
        row, n = scratch.found[i] - cursor[FIRST_ROW], cursor[N_LATER]
        later.slots[n], later.scores[n], later.links[n] = slot, scratch.scores[i], later.heads[row]
        later.heads[row] = n
        cursor[N_LATER] = n + 1
    later.bars[slot] = theta


@kernel
def publish(every: Everything, batch: Batch, told: Told, later: Later) -> int:
    """Move on by a batch from where the cursor stands; stop where there is no room, to be called again."""
    cursor, queues, heads = told.cursor, every.buffers.queues, every.buffers.heads
    row, first = int(cursor[ROW]), int(cursor[ALIVE])
    for step in range(cursor[STEP], batch.horizons.size):
        horizon, stop, code = batch.horizons[step], int(cursor[LEFT]), DONE
        while stop < batch.leaving.size and batch.leaving_steps[stop] == step:
            if batch.in_order:
                first = batch.leaving[stop] + 1
            stop += 1
        if row < batch.of_rows.size and batch.of_rows[row] == step:
            code = _come(every, batch, row, step, first, horizon, told, later)
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
                code = _go(every, place, following, step, first, horizon, batch.in_order, told, later)
            cursor[LEFT] += code == DONE
        cursor[ROW], cursor[ALIVE] = row, first
        if code != DONE:
            cursor[STEP] = step
            return code
        cursor[COMING] = NOBODY
    cursor[STEP] = batch.horizons.size
    return DONE


@kernel
def _go(
    every: Everything, place: int, following: int, step: int, first: int, horizon: int, in_order: bool, told: Told,
    later: Later,
) -> int:  # fmt: skip
    """Take a message that leaves out of the buffers of those in its queue; as in `_come`, arrays are variables.

    `following` is the place of the message that leaves after it.
    """
    cursor, keys, queues = told.cursor, every.keys, every.buffers.queues
    heads, thetas = every.buffers.heads, every.buffers.thetas
    scores, numbers, line = every.buffers.scores, every.buffers.numbers, every.scratch.line
    told_steps, told_slots, told_enters = told.steps, told.slots, told.enters
    told_scores, told_numbers = told.scores, told.numbers
    by_time, base, mask = every.world.by_time, every.lists.counts[BASE], keys.size - 1
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
                code = _refresh(every, slot, 0.0, NOBODY, step, first, horizon, in_order, told, later)
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
def _come(
    every: Everything, batch: Batch, row: int, step: int, first: int, horizon: int, told: Told, later: Later
) -> int:
    """Let the message of a row into all buffers that it concerns.

    This is where most of the time goes. All arrays are at hand as variables, since a call that hands on tuples of
    them costs more than what it does.
    """
    cursor, keys, in_order = told.cursor, every.keys, batch.in_order
    heads, thetas = every.buffers.heads, every.buffers.thetas
    scores, numbers = every.buffers.scores, every.buffers.numbers
    rows, slots, found = batch.rows, batch.slots, batch.scores
    told_steps, told_slots, told_enters = told.steps, told.slots, told.enters
    told_scores, told_numbers = told.scores, told.numbers
    by_time, base, mask = every.world.by_time, every.lists.counts[BASE], keys.size - 1
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
                code = _refresh(every, slot, score, number, step, first, horizon, in_order, told, later)
                if code != DONE:
                    return code
            else:
                if cursor[N_OUT] + 2 > told_steps.size:
                    return OUT
                if heads[slot, CLASS] < 0 or heads[slot, SIZE] == places_of(heads[slot, CLASS]):
                    code = _make_room(every, slot, first, horizon, in_order, told, later)
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
                            leave_queue(every.buffers, base, slot)
                            join_queue(every.buffers, base, slot, number - base)
        if one < 0:
            at += 1
            cursor[MATCH] = at
        else:
            later.heads[row] = later.links[one]


# -- subscriptions --------------------------------------------------------------------------------------------


@kernel
def begin(
    every: Everything, slots: NDArray[np.int32], start: int, now: int, first: int, horizon: int, in_order: bool,
    told: Told,
) -> tuple[int, int]:  # fmt: skip
    """Start buffers with the best of the window; return where it stopped, and for want of what.

    What results hold is told as if it came at step 0.
    """
    buffers, scratch = every.buffers, every.scratch
    for i in range(start, slots.size):
        slot = slots[i]
        k = int(every.profiles.heads[slot, PROFILE_K])
        if told.cursor[N_OUT] + k > told.steps.size:
            return i, OUT
        if scratch.bounds.size <= _most_to_note(every, slot):
            return i, SCRATCH
        n, theta, _ = _search(every, slot, now, first, horizon, in_order)
        n = _outlived(every.world.by_time, every.keys, scratch.scores, scratch.found, n, k)
        buffers.heads[slot, START], buffers.heads[slot, CLASS], buffers.heads[slot, SIZE] = -1, -1, 0
        if n > 0 and not _write(every, slot, n, n + n // 8 + 2):
            return i, POOL
        buffers.heads[slot, ROOM_K], buffers.heads[slot, QUEUE] = k, NOBODY
        buffers.thetas[slot, THETA] = theta
        queue_anew(every, slot)
        for j in range(min(k, n)):
            _tell(told, 0, slot, True, scratch.scores[j], scratch.found[j])
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
