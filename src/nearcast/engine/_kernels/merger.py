"""Kernels of `nearcast.engine.result_merger`: one sorted run of messages per subscription.

heads    slot -> block, size, k, capacity, number of replicas
block    scores  [ 0.9 0.8 0.8 0.5 ... ]     best first; ties by seq, newer first, or older first where less is better
         seqs    [  41  52  17   9 ... ]
         holders [   2   1   1   3 ... ]     number of replicas that hold the message
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch
from nearcast.model._kernels.blocks import class_of, give_block, size_of, take_block

START, SIZE, K, CAPACITY, REPLICAS = 0, 1, 2, 3, 4
"""Columns of a head; the capacity of a free slot is 0."""

_AHEAD = 16  # heads are prefetched this many changes ahead, blocks half as many
_ENTRIES, _PER_LINE = 32, 8  # entries of a block to prefetch, and entries per cache line


class MergerArrays(NamedTuple):
    """The messages that replicas hold."""

    heads: NDArray[np.int32]
    """int32 (n_slots, 5): see the columns."""
    scores: NDArray[np.float64]
    seqs: NDArray[np.int64]
    holders: NDArray[np.uint16]
    """float64, int64, uint16 (capacity,): blocks."""
    state: NDArray[np.int64]
    """int64 (STATE,): see `blocks`."""


class Deltas(NamedTuple):
    """Changes of results by step and slot; within a slot leaves come first."""

    steps: NDArray[np.int64]
    slots: NDArray[np.int32]
    enters: NDArray[np.bool_]
    scores: NDArray[np.float64]
    seqs: NDArray[np.int64]


@kernel
def reserve(merger: MergerArrays, slots: NDArray[np.int32], ks: NDArray[np.int32], rooms: NDArray[np.int32]) -> int:
    """Move slots to blocks of the given capacities; return where it stopped because the pool is full.

    Slots with enough capacity are skipped, so that a second call continues.
    """
    heads = merger.heads
    for i in range(slots.size):
        head = heads[slots[i]]
        if head[CAPACITY] >= rooms[i]:
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
        if head[CAPACITY] > 0:
            give_block(merger.state, merger.seqs, class_of(head[CAPACITY]), before)
        head[START], head[K], head[CAPACITY] = block, ks[i], rooms[i]
    return slots.size


@kernel
def end(merger: MergerArrays, slots: NDArray[np.int32]) -> None:
    """Free the blocks of slots."""
    for slot in slots:
        head = merger.heads[slot]
        give_block(merger.state, merger.seqs, class_of(head[CAPACITY]), head[START])
        head[SIZE] = head[K] = head[CAPACITY] = head[REPLICAS] = 0


@kernel
def find(merger: MergerArrays, start: int, size: int, sign: float, score: float, seq: int) -> int:
    """Return the position of an entry in a run, or where to insert it; `sign` is -1 where less is better."""
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
    """Count one more replica that holds a message."""
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
    """Count one replica fewer that holds a message."""
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
    out: Deltas,
    scores: NDArray[np.float64],
    seqs: NDArray[np.int64],
) -> int:
    """Apply the changes of replicas, write the changes of merged results, and return their number.

    `out` holds two changes per delta; `scores` and `seqs` hold the greatest k.
    """
    n_out, first, n = 0, 0, deltas.slots.size
    last_one = n - 1
    while first < n:
        prefetch(merger.heads, deltas.slots[min(first + _AHEAD, last_one)])
        block = merger.heads[deltas.slots[min(first + _AHEAD // 2, last_one)], START]
        for line in range(0, _ENTRIES, _PER_LINE):
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
                    out.steps[n_out], out.slots[n_out], out.enters[n_out] = step, slot, enters
                    out.scores[n_out] = scores[old] if is_old else merger.scores[here]
                    out.seqs[n_out] = seqs[old] if is_old else merger.seqs[here]
                    n_out += 1
                if is_old:
                    old += 1
                else:
                    new += 1
        first = last
    return n_out


@kernel
def fill(
    merger: MergerArrays, sign: float, slots: NDArray[np.int32], scores: NDArray[np.float64], seqs: NDArray[np.int64]
) -> None:
    """Add messages that a replica holds."""
    for i in range(slots.size):
        put(merger, slots[i], sign, scores[i], seqs[i])


@kernel
def drain(
    merger: MergerArrays, sign: float, slots: NDArray[np.int32], scores: NDArray[np.float64], seqs: NDArray[np.int64]
) -> None:
    """Remove messages that a replica held."""
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
    """Find the worst score of the k best messages that stay, and the oldest of these; `leaving` ascends.

    Where fewer than k stay, the threshold is minus infinity.
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
    """Mark the messages, given by ascending seq, that some result holds."""
    for slot in range(merger.heads.shape[0]):
        start = int(merger.heads[slot, START])
        for at in range(start, start + int(merger.heads[slot, SIZE])):
            held[np.searchsorted(known, merger.seqs[at])] = True
