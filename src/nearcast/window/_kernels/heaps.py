"""Result heaps: per subscription the k nearest messages so far, the farthest at the root; see `window.heaps`.

heads    slot -> its block, size, k, and whether its threshold moved
block    scores  [ 9.1 | 4.0 8.8 | 3.9 1.2 ... ]        the farthest first, of equal ones the newest
         handles [  41 |  17  52 |   9  11 ... ]        messages, numbered in the order of arrival
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch
from nearcast.model._kernels.blocks import class_of, give_block, size_of, take_block
from nearcast.window._kernels.parts import part_of

START, SIZE, K, MOVED = 0, 1, 2, 3
"""Columns of a head; k is 0 for a slot that is free."""
TIED = 2
"""In the column MOVED, where 1 means that the threshold moved: a match tied with it."""

N_CHANGES, N_MOVED, N_ENTERED, NEXT = 0, 1, 2, 3
"""Positions in the counts: changes, moved thresholds, arrivals that entered, the first handle of the batch."""

NONE = -1
_CLOSER = 0.9  # a threshold that is closer than this share of the last one is reported
_AHEAD = 32  # matches whose heads are prefetched; their blocks follow at half the distance


class ResultHeapArrays(NamedTuple):
    """The heaps of one kind."""

    heads: NDArray[np.int32]
    """int32 (n_slots, 4): see the columns."""
    reported: NDArray[np.float32]
    """float32 (n_slots,): the threshold that was reported last."""
    scores: NDArray[np.float64]
    handles: NDArray[np.int32]
    """float64, int32 (room,): blocks of k entries."""
    state: NDArray[np.int64]
    """int64 (STATE,): see `blocks`."""
    part: NDArray[np.int64]
    """int64 (2,): the number of the part that these are, of how many; the heads are those of all."""


class HeapMatches(NamedTuple):
    """The matches of some rows of a batch."""

    rows: NDArray[np.int64]
    slots: NDArray[np.int32]
    scores: NDArray[np.float64]
    row_steps: NDArray[np.int64]
    """int64 (n_rows,): the step of each row of the batch."""


class HeapChanges(NamedTuple):
    """The changes of results."""

    steps: NDArray[np.int64]
    slots: NDArray[np.int32]
    enters: NDArray[np.bool_]
    scores: NDArray[np.float64]
    handles: NDArray[np.int64]
    """int64: the handle of the message of each change."""


@kernel
def begin(heaps: ResultHeapArrays, slots: NDArray[np.int32], ks: NDArray[np.int32], start: int) -> int:
    """Allocate empty heaps for slots from `start` on; return where the pool was full."""
    heads = heaps.heads
    for i in range(start, slots.size):
        block_class = class_of(ks[i])
        block = take_block(heaps.state, heaps.handles, block_class, size_of(block_class))
        if block < 0:
            return i
        heads[slots[i], START], heads[slots[i], SIZE] = block, 0
        heads[slots[i], K], heads[slots[i], MOVED] = ks[i], 0
        heaps.reported[slots[i]] = np.inf
    return slots.size


@kernel
def end(heaps: ResultHeapArrays, slots: NDArray[np.int32]) -> None:
    """Free the heaps of slots."""
    heads = heaps.heads
    for slot in slots:
        give_block(heaps.state, heaps.handles, class_of(heads[slot, K]), heads[slot, START])
        heads[slot, SIZE] = heads[slot, K] = heads[slot, MOVED] = 0


@kernel
def move_heaps(heaps: ResultHeapArrays, before: ResultHeapArrays, slots: NDArray[np.int32], start: int) -> int:
    """Take heaps over from the arrays of another part, from row `start` on; return where the pool was full."""
    heads = heaps.heads
    for i in range(start, slots.size):
        slot = slots[i]
        block_class, block = class_of(heads[slot, K]), int(before.heads[slot, START])
        to = take_block(heaps.state, heaps.handles, block_class, size_of(block_class))
        if to < 0:
            return i
        for j in range(before.heads[slot, SIZE]):
            heaps.scores[to + j], heaps.handles[to + j] = before.scores[block + j], before.handles[block + j]
        heads[slot, START], heads[slot, SIZE] = to, before.heads[slot, SIZE]
    return slots.size


@kernel
def sift_down(
    scores: NDArray[np.float64], handles: NDArray[np.int32], first: int, size: int, score: float, handle: int
) -> None:
    """Replace the root of a heap by an entry; the farthest becomes the root."""
    at, child = 0, 1
    while child < size:
        left = first + child
        if child + 1 < size and (
            scores[left + 1] > scores[left]
            or (scores[left + 1] == scores[left] and handles[left + 1] > handles[left])
        ):
            left += 1
        if scores[left] < score or (scores[left] == score and handles[left] < handle):
            break
        scores[first + at], handles[first + at] = scores[left], handles[left]
        at = left - first
        child = 2 * at + 1
    scores[first + at], handles[first + at] = score, handle


@kernel
def sift_up(
    scores: NDArray[np.float64], handles: NDArray[np.int32], first: int, at: int, score: float, handle: int
) -> None:
    """Add an entry to a heap, at the position behind all others."""
    while at > 0:
        above = first + ((at - 1) >> 1)
        if scores[above] > score or (scores[above] == score and handles[above] > handle):
            break
        scores[first + at], handles[first + at] = scores[above], handles[above]
        at = above - first
    scores[first + at], handles[first + at] = score, handle


@kernel
def push(
    heaps: ResultHeapArrays,
    matches: HeapMatches,
    changes: HeapChanges,
    moved: NDArray[np.int32],
    counts: NDArray[np.int64],
) -> None:
    """Insert matches into heaps in the order of arrival, and write the changes; requires room for all of them."""
    heads, scores, handles = heaps.heads, heaps.scores, heaps.handles
    rows, slots, distances = matches.rows, matches.slots, matches.scores
    steps, change_slots, enters, change_scores, change_handles = (
        changes.steps,
        changes.slots,
        changes.enters,
        changes.scores,
        changes.handles,
    )
    n, n_moved, n_entered, last = counts[N_CHANGES], counts[N_MOVED], counts[N_ENTERED], slots.size - 1
    next_handle = counts[NEXT]
    for i in range(slots.size):
        prefetch(heads, slots[min(i + _AHEAD, last)])
        block = heads[slots[min(i + _AHEAD // 2, last)], START]
        prefetch(scores, block)
        prefetch(scores, block + 7)
        prefetch(handles, block)
        slot, score, row = slots[i], distances[i], rows[i]
        first, size, k = int(heads[slot, START]), int(heads[slot, SIZE]), int(heads[slot, K])
        if size == k and not score < scores[first]:
            if score == scores[first]:
                if heads[slot, MOVED] == 0:
                    moved[n_moved] = slot
                    n_moved += 1
                heads[slot, MOVED] = TIED
            continue
        handle, step = int(next_handle + row), matches.row_steps[row]
        if size == k:
            change_handles[n] = handles[first]
            steps[n], change_slots[n], enters[n], change_scores[n] = step, slot, False, scores[first]
            n += 1
            sift_down(scores, handles, first, size, score, handle)
        else:
            sift_up(scores, handles, first, size, score, handle)
            size += 1
            heads[slot, SIZE] = size
        change_handles[n] = handle
        steps[n], change_slots[n], enters[n], change_scores[n] = step, slot, True, score
        n += 1
        n_entered += 1
        if size == k and heads[slot, MOVED] == 0:
            heads[slot, MOVED] = 1
            moved[n_moved] = slot
            n_moved += 1
    counts[N_CHANGES], counts[N_MOVED], counts[N_ENTERED] = n, n_moved, n_entered


@kernel
def take_thresholds(heaps: ResultHeapArrays, moved: NDArray[np.int32], thresholds: NDArray[np.float64]) -> int:
    """Write the thresholds of full heaps, and their slots to the front of `moved`; return how many there are.

    A threshold that is hardly closer than the last one is left out: the index finds some more, and moves less. One
    that a match tied with is not: many messages may lie at one point.
    """
    heads, reported, n = heaps.heads, heaps.reported, 0
    for i in range(moved.size):
        slot = moved[i]
        following = moved[min(i + _AHEAD, moved.size - 1)]
        prefetch(heads, following)
        prefetch(reported, following)
        if 0 < heads[slot, K] == heads[slot, SIZE]:
            is_tied = heads[slot, MOVED] == TIED
            heads[slot, MOVED] = 0
            threshold = heaps.scores[heads[slot, START]]
            if threshold > _CLOSER * reported[slot] and not is_tied:
                continue
            reported[slot] = threshold
            moved[n] = slot
            thresholds[n] = threshold
            n += 1
    return n


@kernel(allocates=True)
def read_results(
    heaps: ResultHeapArrays, slots: NDArray[np.int32], scores: NDArray[np.float64], handles: NDArray[np.int32]
) -> None:
    """Write the entries of heaps, one heap after the other, best first; the heaps do not change."""
    n = 0
    for slot in slots:
        first, size = heaps.heads[slot, START], int(heaps.heads[slot, SIZE])
        scores[n : n + size] = heaps.scores[first : first + size]
        handles[n : n + size] = heaps.handles[first : first + size]
        for last in range(n + size - 1, n, -1):  # the farthest of the rest goes to the end
            score, handle = scores[last], handles[last]
            scores[last], handles[last] = scores[n], handles[n]
            sift_down(scores, handles, n, last - n, score, handle)
        n += size


@kernel
def fill(
    heaps: ResultHeapArrays, slots: NDArray[np.int32], scores: NDArray[np.float64], handles: NDArray[np.int32]
) -> None:
    """Add entries to heaps that have room for them."""
    heads = heaps.heads
    for i in range(slots.size):
        first, size = int(heads[slots[i], START]), int(heads[slots[i], SIZE])
        sift_up(heaps.scores, heaps.handles, first, size, scores[i], handles[i])
        heads[slots[i], SIZE] = size + 1


@kernel
def mark(heaps: ResultHeapArrays, marks: NDArray[np.bool_]) -> None:
    """Mark the messages that some result holds."""
    heads, handles = heaps.heads, heaps.handles
    for slot in range(heads.shape[0]):
        if part_of(slot, heaps.part[1]) != heaps.part[0]:
            continue
        for i in range(heads[slot, START], heads[slot, START] + heads[slot, SIZE]):
            marks[handles[i]] = True


@kernel
def find_holders(heaps: ResultHeapArrays, wanted: NDArray[np.bool_], found: NDArray[np.bool_]) -> None:
    """Mark the slots whose heaps hold a wanted message."""
    heads, handles = heaps.heads, heaps.handles
    for slot in range(heads.shape[0]):
        if part_of(slot, heaps.part[1]) != heaps.part[0]:
            continue
        for i in range(heads[slot, START], heads[slot, START] + heads[slot, SIZE]):
            if wanted[handles[i]]:
                found[slot] = True
                break


@kernel
def renumber(heaps: ResultHeapArrays, numbers: NDArray[np.int32]) -> None:
    """Replace the handles of messages by others in the same order."""
    heads, handles = heaps.heads, heaps.handles
    for slot in range(heads.shape[0]):
        if part_of(slot, heaps.part[1]) != heaps.part[0]:
            continue
        for i in range(heads[slot, START], heads[slot, START] + heads[slot, SIZE]):
            handles[i] = numbers[handles[i]]


@kernel
def copy_texts(
    data: NDArray[np.uint8], starts: NDArray[np.int64], handles: NDArray[np.int32], out: NDArray[np.uint8]
) -> None:
    """Copy the texts of messages one after the other."""
    n = 0
    for i in range(handles.size):
        prefetch(starts, handles[min(i + _AHEAD, handles.size - 1)])
        prefetch(data, starts[handles[min(i + _AHEAD // 2, handles.size - 1)]])
        for at in range(starts[handles[i]], starts[handles[i] + 1]):
            out[n] = data[at]
            n += 1
