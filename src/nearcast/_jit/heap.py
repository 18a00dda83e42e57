"""Which are the k best so far?

Many bounded heaps in one flat pool. Each keeps the k best (score, seq) of a stream, the weakest of them at its root,
where the next newcomer is compared.

    rows     0            1       2
    offsets  0            4       6
    scores   [ . . . .  | . .   | . . . ]       a block of `rooms` places, `sizes` of them taken, `limits` is k
    seqs     [ . . . .  | . .   | . . . ]

The order of a pool says what better means, ties included: GREATEST, where the greater score wins and of equal ones
the newer (greater seq), as for top-k; SMALLEST, where the smaller score wins and of equal ones the older, as for
nearest. The second is the first with all signs turned, so one comparison serves both.

Cost: a newcomer that stays out is one comparison, one that gets in log k; removing by seq reads the k places; 16
bytes a place and 20 a row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearcast._jit.arena import Arena
from nearcast._jit.column import column, same_length
from nearcast._jit.kernel import kernel
from nearcast.errors import StateError, require

__all__ = [
    "ENTERED",
    "EVICTED",
    "GREATEST",
    "REFUSED",
    "SMALLEST",
    "HeapArrays",
    "Heaps",
    "heap_allot",
    "heap_push",
    "heap_remove",
    "heap_replace",
    "heap_sorted",
    "heap_worst",
]

GREATEST, SMALLEST = 1, -1
"""The order of a pool: the greater score and the newer seq are better, or the smaller and the older."""

REFUSED, ENTERED, EVICTED = 0, 1, 2
"""What `heap_push` did with the newcomer: left it out, took it in, took it in and let the worst go."""

_ORDER, _USED, _LOST = 0, 1, 2  # places in `state`
_NOBODY = -1


class HeapArrays(NamedTuple):
    """A pool of heaps, as kernels see it."""

    scores: NDArray[np.float64]
    """float64 (n_places,): scores, a heap a block. NaN is not a score."""
    seqs: NDArray[np.int64]
    """int64 (n_places,): seqs, beside their scores."""
    offsets: NDArray[np.int64]
    """int64 (n_rows,): first place of a row's block."""
    rooms: NDArray[np.int32]
    """int32 (n_rows,): places of the block; 0 for a row that never had one."""
    limits: NDArray[np.int32]
    """int32 (n_rows,): k, at most the room."""
    sizes: NDArray[np.int32]
    """int32 (n_rows,): how many are kept now."""
    state: NDArray[np.int64]
    """int64 (3,): the order; places handed out; places lost when a row moved to a larger block."""


@kernel
def _is_worse(order: int, score: float, seq: int, other_score: float, other_seq: int) -> bool:
    if score != other_score:
        return order * score < order * other_score
    return order * seq < order * other_seq


@kernel
def _sift_up(scores: NDArray[np.float64], seqs: NDArray[np.int64], order: int, first: int, at: int) -> None:
    """Move the item at place `at` of the heap that starts at `first` towards the root until it is in order."""
    score, seq = scores[first + at], seqs[first + at]
    while at > 0:
        parent = (at - 1) >> 1
        if not _is_worse(order, score, seq, scores[first + parent], seqs[first + parent]):
            break
        scores[first + at], seqs[first + at] = scores[first + parent], seqs[first + parent]
        at = parent
    scores[first + at], seqs[first + at] = score, seq


@kernel
def _sift_down(
    scores: NDArray[np.float64], seqs: NDArray[np.int64], order: int, first: int, at: int, size: int
) -> None:
    """Move the item at place `at` towards the leaves until it is in order."""
    score, seq = scores[first + at], seqs[first + at]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        left, right = first + child, first + child + 1
        if child + 1 < size and _is_worse(order, scores[right], seqs[right], scores[left], seqs[left]):
            child += 1
        if not _is_worse(order, scores[first + child], seqs[first + child], score, seq):
            break
        scores[first + at], seqs[first + at] = scores[first + child], seqs[first + child]
        at = child
    scores[first + at], seqs[first + at] = score, seq


@kernel
def heap_worst(heaps: HeapArrays, row: int) -> tuple[float, int]:
    """Return the weakest (score, seq) kept; of an empty heap one that is weaker than all."""
    if heaps.sizes[row] == 0:
        return -np.inf * heaps.state[_ORDER], _NOBODY
    return heaps.scores[heaps.offsets[row]], heaps.seqs[heaps.offsets[row]]


@kernel
def heap_replace(heaps: HeapArrays, row: int, score: float, seq: int) -> tuple[float, int]:
    """Put (score, seq) in the place of the weakest one, better or not; return that one. The heap is not empty."""
    first = heaps.offsets[row]
    gone = heaps.scores[first], heaps.seqs[first]
    heaps.scores[first], heaps.seqs[first] = score, seq
    _sift_down(heaps.scores, heaps.seqs, heaps.state[_ORDER], first, 0, int(heaps.sizes[row]))
    return gone


@kernel
def heap_push(heaps: HeapArrays, row: int, score: float, seq: int) -> tuple[int, float, int]:
    """Offer (score, seq); return what happened, and who is out because of it.

    ENTERED, 0.0, -1: there was room. EVICTED, score, seq: of the weakest, which made room. REFUSED, score, seq: of
    the newcomer itself.
    """
    first, size = heaps.offsets[row], int(heaps.sizes[row])
    if size < heaps.limits[row]:
        heaps.scores[first + size], heaps.seqs[first + size] = score, seq
        heaps.sizes[row] = size + 1
        _sift_up(heaps.scores, heaps.seqs, heaps.state[_ORDER], first, size)
        return ENTERED, 0.0, _NOBODY
    if size == 0 or not _is_worse(heaps.state[_ORDER], heaps.scores[first], heaps.seqs[first], score, seq):
        return REFUSED, score, seq
    gone_score, gone_seq = heap_replace(heaps, row, score, seq)
    return EVICTED, gone_score, gone_seq


@kernel
def heap_remove(heaps: HeapArrays, row: int, seq: int) -> bool:
    """Take a seq out of a heap; say whether it was there."""
    first, last = heaps.offsets[row], int(heaps.sizes[row]) - 1
    for at in range(last + 1):
        if heaps.seqs[first + at] == seq:
            heaps.sizes[row] = last
            if at < last:
                heaps.scores[first + at] = heaps.scores[first + last]
                heaps.seqs[first + at] = heaps.seqs[first + last]
                # What came from the end may belong above or below: at most one of the two moves it.
                _sift_up(heaps.scores, heaps.seqs, heaps.state[_ORDER], first, at)
                _sift_down(heaps.scores, heaps.seqs, heaps.state[_ORDER], first, at, last)
            return True
    return False


@kernel
def heap_sorted(heaps: HeapArrays, row: int, scores: NDArray[np.float64], seqs: NDArray[np.int64]) -> int:
    """Write a heap to the start of the buffers, best first, and leave it as it is; return how many there are.

    Buffers that are too short stay untouched: compare the answer with their size.
    """
    first, size = heaps.offsets[row], int(heaps.sizes[row])
    if size > scores.size or size > seqs.size:
        return size
    scores[:size] = heaps.scores[first : first + size]
    seqs[:size] = heaps.seqs[first : first + size]
    for end in range(size - 1, 0, -1):  # the weakest goes to the end, again and again
        scores[0], scores[end] = scores[end], scores[0]
        seqs[0], seqs[end] = seqs[end], seqs[0]
        _sift_down(scores, seqs, heaps.state[_ORDER], 0, 0, end)
    return size


@kernel
def heap_allot(heaps: HeapArrays, rows: NDArray[np.int64], limits: NDArray[np.int32], start: int) -> int:
    """Give rows from `start` on an empty heap of their limit; return where it stopped for want of places.

    A row keeps the block it has if that is large enough: slots of subscriptions are used again.
    """
    for i in range(start, rows.size):
        row, limit = rows[i], limits[i]
        if limit > heaps.rooms[row]:
            if heaps.state[_USED] + limit > heaps.scores.size:
                return i
            heaps.state[_LOST] += heaps.rooms[row]
            heaps.offsets[row] = heaps.state[_USED]
            heaps.rooms[row] = limit
            heaps.state[_USED] += limit
        heaps.limits[row] = limit
        heaps.sizes[row] = 0
    return rows.size


@kernel
def _pack(heaps: HeapArrays, rows: NDArray[np.int64]) -> None:
    """Move blocks down over the places lost; `rows` are in the order of their blocks."""
    used = 0
    for i in range(rows.size):
        row = rows[i]
        first = heaps.offsets[row]
        for at in range(heaps.sizes[row]):
            heaps.scores[used + at] = heaps.scores[first + at]
            heaps.seqs[used + at] = heaps.seqs[first + at]
        heaps.offsets[row] = used
        used += heaps.rooms[row]
    heaps.state[_USED] = used
    heaps.state[_LOST] = 0


class Heaps:
    """A pool of heaps in an arena that grows by itself; opened again if the arena holds it already.

    `arrays` is what kernels take. It is another one after `allot`, so read it anew for every batch.

    >>> heaps = Heaps(Arena(), "best", order=GREATEST)
    >>> heaps.allot([0], [2])
    >>> [heaps.push(0, score, seq) for seq, score in enumerate([0.5, 0.9, 0.5], start=1)]
    [(1, 0.0, -1), (1, 0.0, -1), (2, 0.5, 1)]
    >>> heaps.sorted(0)
    (array([0.9, 0.5]), array([2, 3]))
    """

    def __init__(self, arena: Arena, prefix: str, *, order: int) -> None:
        require(order in (GREATEST, SMALLEST), "order", "must be GREATEST (1) or SMALLEST (-1)", order)
        self._arena, self._prefix = arena, prefix
        if f"{prefix}.state" not in arena:
            with arena.together():
                arena.new(f"{prefix}.scores", np.float64, 0)
                arena.new(f"{prefix}.seqs", np.int64, 0)
                arena.new(f"{prefix}.offsets", np.int64, 0)
                for field in ("rooms", "limits", "sizes"):
                    arena.new(f"{prefix}.{field}", np.int32, 0)
                arena.new(f"{prefix}.state", np.int64, 3)[_ORDER] = order
        self.arrays = arena.bundle(prefix, HeapArrays)
        if self.arrays.state[_ORDER] != order:
            raise StateError(f"heaps {prefix!r} have order {self.arrays.state[_ORDER]}; asked for {order}")

    def allot(self, rows: ArrayLike, limits: ArrayLike) -> None:
        """Give each row an empty heap of its limit, whatever it held before."""
        rows, limits = column(rows, np.int64), column(limits, np.int32)
        same_length(rows=rows, limits=limits)
        if rows.size == 0:
            return
        require(int(rows.min()) >= 0, "row", "must be at least 0", int(rows.min()))
        require(int(limits.min()) >= 1, "limit", "must be at least 1", int(limits.min()))
        self._grow(("offsets", "rooms", "limits", "sizes"), int(rows.max()) + 1)
        done = heap_allot(self.arrays, rows, limits, 0)
        while done < rows.size:
            self._grow(("scores", "seqs"), int(self.arrays.state[_USED]) + int(limits[done]))
            done = heap_allot(self.arrays, rows, limits, done)

    def push(self, row: int, score: float, seq: int) -> tuple[int, float, int]:
        """Offer (score, seq); return what happened, and who is out because of it."""
        self._check(row)
        outcome, gone_score, gone_seq = heap_push(self.arrays, row, score, seq)
        return int(outcome), float(gone_score), int(gone_seq)

    def remove(self, row: int, seq: int) -> bool:
        """Take a seq out of a heap; say whether it was there."""
        self._check(row)
        return bool(heap_remove(self.arrays, row, seq))

    def worst(self, row: int) -> tuple[float, int]:
        """Return the weakest (score, seq) kept; of an empty heap one that is weaker than all."""
        self._check(row)
        score, seq = heap_worst(self.arrays, row)
        return float(score), int(seq)

    def sorted(self, row: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return scores and seqs of a heap, best first."""
        self._check(row)
        size = int(self.arrays.sizes[row])
        scores, seqs = np.empty(size, np.float64), np.empty(size, np.int64)
        heap_sorted(self.arrays, row, scores, seqs)
        return scores, seqs

    def compact(self) -> None:
        """Close the gaps that rows left behind when they moved to a larger block."""
        rows = np.flatnonzero(self.arrays.rooms).astype(np.int64)
        _pack(self.arrays, rows[np.argsort(self.arrays.offsets[rows], kind="stable")])

    def _check(self, row: int) -> None:
        n_rows = self.arrays.sizes.size
        require(0 <= row < n_rows, "row", f"must be in [0, {n_rows}), allotted before", row)

    def _grow(self, fields: tuple[str, ...], length: int) -> None:
        self._arena.grow_all([f"{self._prefix}.{field}" for field in fields], length)
        self.arrays = self._arena.bundle(self._prefix, HeapArrays)
