"""What are the k best of what replicas hold? A sorted run a subscription, see `nearcast.engine.result_merger`.

heads    slot -> its block, size, k, room, and how many replicas there are
block    scores  [ 0.9 0.8 0.8 0.5 ... ]     best first; of equal scores the newer, or where less is better the older
         seqs    [  41  52  17   9 ... ]
         holders [   2   1   1   3 ... ]     how many replicas hold it
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch
from nearcast.model._kernels.blocks import class_of, give_block, size_of, take_block

START, SIZE, K, ROOM, PLACEMENTS = 0, 1, 2, 3, 4
"""Columns of a head; room is 0 for a slot that is free."""

_AHEAD = 16  # changes whose heads are on their way; blocks follow at half of it
_ENTRIES, _A_LINE = 32, 8  # entries of a block that are fetched, and of a cache line


class MergerArrays(NamedTuple):
    """What replicas hold, together."""

    heads: NDArray[np.int32]
    """int32 (n_slots, 5): see the columns."""
    scores: NDArray[np.float64]
    seqs: NDArray[np.int64]
    holders: NDArray[np.uint8]
    """float64, int64, uint8 (room,): blocks."""
    state: NDArray[np.int64]
    """int64 (STATE,): see `blocks`."""


class Deltas(NamedTuple):
    """What came into the results of replicas and went out of them, by step and slot; of each, leaves first."""

    steps: NDArray[np.int64]
    slots: NDArray[np.int32]
    enters: NDArray[np.bool_]
    scores: NDArray[np.float64]
    seqs: NDArray[np.int64]


@kernel
def give_room(merger: MergerArrays, slots: NDArray[np.int32], ks: NDArray[np.int32], rooms: NDArray[np.int32]) -> int:
    """Give slots blocks that hold so many, and take along what they hold; return where it stopped for want of room.

    Who has room enough already is passed over, so that it can go on where it stopped.
    """
    heads = merger.heads
    for i in range(slots.size):
        head = heads[slots[i]]
        if head[ROOM] >= rooms[i]:
            continue
        block_class = class_of(rooms[i])
        block = take_block(merger.state, merger.seqs, block_class, size_of(block_class))
        if block < 0:
            return i
        before, size = int(head[START]), int(head[SIZE])
        for at in range(size):
            merger.scores[block + at] = merger.scores[before + at]
            merger.seqs[block + at] = merger.seqs[before + at]
            merger.holders[block + at] = merger.holders[before + at]
        if head[ROOM] > 0:
            give_block(merger.state, merger.seqs, class_of(head[ROOM]), before)
        head[START], head[K], head[ROOM] = block, ks[i], rooms[i]
    return slots.size


@kernel
def end(merger: MergerArrays, slots: NDArray[np.int32]) -> None:
    """Take the blocks of slots back."""
    for slot in slots:
        head = merger.heads[slot]
        give_block(merger.state, merger.seqs, class_of(head[ROOM]), head[START])
        head[SIZE] = head[K] = head[ROOM] = head[PLACEMENTS] = 0


@kernel
def find(merger: MergerArrays, start: int, size: int, sign: float, score: float, seq: int) -> int:
    """Return the place of an entry in a run, or where it belongs; `sign` is -1 where less is better."""
    low, high = start, start + size
    while low < high:
        middle = (low + high) >> 1
        other = merger.scores[middle]
        if sign * other > sign * score or (other == score and sign * merger.seqs[middle] > sign * seq):
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def put(merger: MergerArrays, slot: int, sign: float, score: float, seq: int) -> None:
    """Note that one more replica holds a message."""
    head = merger.heads[slot]
    start, size = int(head[START]), int(head[SIZE])
    at = find(merger, start, size, sign, score, seq)
    if at < start + size and merger.seqs[at] == seq:
        merger.holders[at] += 1
        return
    for place in range(start + size, at, -1):
        merger.scores[place] = merger.scores[place - 1]
        merger.seqs[place] = merger.seqs[place - 1]
        merger.holders[place] = merger.holders[place - 1]
    merger.scores[at], merger.seqs[at], merger.holders[at] = score, seq, 1
    head[SIZE] = size + 1


@kernel
def drop(merger: MergerArrays, slot: int, sign: float, score: float, seq: int) -> None:
    """Note that one replica less holds a message."""
    head = merger.heads[slot]
    start, size = int(head[START]), int(head[SIZE])
    at = find(merger, start, size, sign, score, seq)
    if at == start + size or merger.seqs[at] != seq:
        return
    merger.holders[at] -= 1
    if merger.holders[at] > 0:
        return
    for place in range(at, start + size - 1):
        merger.scores[place] = merger.scores[place + 1]
        merger.seqs[place] = merger.seqs[place + 1]
        merger.holders[place] = merger.holders[place + 1]
    head[SIZE] = size - 1


@kernel
def merge(
    merger: MergerArrays,
    sign: float,
    deltas: Deltas,
    told: Deltas,
    scores: NDArray[np.float64],
    seqs: NDArray[np.int64],
) -> int:
    """Follow the replicas; write down how the k best of all changed, and return how many changes there are.

    `told` has room for two a delta; `scores` and `seqs` for the greatest k.
    """
    n_told, first, n = 0, 0, deltas.slots.size
    last_one = n - 1
    while first < n:
        prefetch(merger.heads, deltas.slots[min(first + _AHEAD, last_one)])
        block = merger.heads[deltas.slots[min(first + _AHEAD // 2, last_one)], START]
        for line in range(0, _ENTRIES, _A_LINE):
            prefetch(merger.scores, min(block + line, merger.scores.size - 1))
            prefetch(merger.seqs, min(block + line, merger.seqs.size - 1))
        prefetch(merger.holders, block)
        step, slot = deltas.steps[first], deltas.slots[first]
        head = merger.heads[slot]
        start, k = int(head[START]), int(head[K])
        n_before = min(k, int(head[SIZE]))
        for at in range(n_before):
            scores[at], seqs[at] = merger.scores[start + at], merger.seqs[start + at]
        last = first
        while last < n and deltas.slots[last] == slot and deltas.steps[last] == step:
            if deltas.enters[last]:
                put(merger, slot, sign, deltas.scores[last], deltas.seqs[last])
            else:
                drop(merger, slot, sign, deltas.scores[last], deltas.seqs[last])
            last += 1
        n_after = min(k, int(head[SIZE]))
        for enters in (False, True):
            old, new = 0, 0
            while old < n_before or new < n_after:
                here = start + new
                if old < n_before and new < n_after and seqs[old] == merger.seqs[here]:
                    old, new = old + 1, new + 1
                    continue
                is_old = new == n_after
                if old < n_before and new < n_after:
                    other = merger.scores[here]
                    is_old = sign * scores[old] > sign * other or (
                        scores[old] == other and sign * seqs[old] > sign * merger.seqs[here]
                    )
                if is_old != enters:
                    told.steps[n_told], told.slots[n_told], told.enters[n_told] = step, slot, enters
                    told.scores[n_told] = scores[old] if is_old else merger.scores[here]
                    told.seqs[n_told] = seqs[old] if is_old else merger.seqs[here]
                    n_told += 1
                if is_old:
                    old += 1
                else:
                    new += 1
        first = last
    return n_told


@kernel
def fill(
    merger: MergerArrays, sign: float, slots: NDArray[np.int32], scores: NDArray[np.float64], seqs: NDArray[np.int64]
) -> None:
    """Note what a replica holds."""
    for i in range(slots.size):
        put(merger, slots[i], sign, scores[i], seqs[i])


@kernel
def drain(
    merger: MergerArrays, sign: float, slots: NDArray[np.int32], scores: NDArray[np.float64], seqs: NDArray[np.int64]
) -> None:
    """Note that a replica holds these no more."""
    for i in range(slots.size):
        drop(merger, slots[i], sign, scores[i], seqs[i])


@kernel
def survivors(
    merger: MergerArrays,
    slots: NDArray[np.int32],
    leaving: NDArray[np.int64],
    thresholds: NDArray[np.float64],
    oldest: NDArray[np.int64],
) -> None:
    """Find the score of the worst of the k best that stay when some leave, by ascending seq, and the oldest of these.

    Where fewer than k stay, the bar is as low as can be.
    """
    for i in range(slots.size):
        head = merger.heads[slots[i]]
        start, n = int(head[START]), 0
        thresholds[i] = -np.inf
        oldest[i] = np.iinfo(np.int64).max
        for at in range(start, start + int(head[SIZE])):
            seq = merger.seqs[at]
            place = np.searchsorted(leaving, seq)
            if place < leaving.size and leaving[place] == seq:
                continue
            oldest[i] = min(oldest[i], seq)
            n += 1
            if n == head[K]:
                thresholds[i] = merger.scores[at]
                break


@kernel
def mark(merger: MergerArrays, known: NDArray[np.int64], held: NDArray[np.bool_]) -> None:
    """Tell which of some messages, by ascending seq, anyone holds."""
    for slot in range(merger.heads.shape[0]):
        start = int(merger.heads[slot, START])
        for at in range(start, start + int(merger.heads[slot, SIZE])):
            held[np.searchsorted(known, merger.seqs[at])] = True
