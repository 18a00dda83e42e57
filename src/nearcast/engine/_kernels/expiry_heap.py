"""Kernels of `nearcast.engine.expiry_heap`: a binary heap of times, each with a value, the earliest first."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel


class HeapArrays(NamedTuple):
    """A heap: no entry is earlier than the one at half its position."""

    times: NDArray[np.int64]
    """int64 (room,): microseconds since the epoch."""
    values: NDArray[np.int64]
    """int64 (room,): what expires then."""
    state: NDArray[np.int64]
    """int64 (2,): the number of entries, and that number when entries were last dropped."""


@kernel
def push(heap: HeapArrays, times: NDArray[np.int64], values: NDArray[np.int64]) -> None:
    """Add entries; there must be room for them."""
    for i in range(times.size):
        at = int(heap.state[0])
        while at > 0 and heap.times[(at - 1) >> 1] > times[i]:
            above = (at - 1) >> 1
            heap.times[at], heap.values[at] = heap.times[above], heap.values[above]
            at = above
        heap.times[at], heap.values[at] = times[i], values[i]
        heap.state[0] += 1


@kernel
def pop(heap: HeapArrays, until: int, times: NDArray[np.int64], values: NDArray[np.int64]) -> int:
    """Remove the entries up to a time, earliest first, as many as fit; return how many there were."""
    n = 0
    while n < times.size and heap.state[0] > 0 and heap.times[0] <= until:
        times[n], values[n] = heap.times[0], heap.values[0]
        n += 1
        heap.state[0] -= 1
        size = int(heap.state[0])
        time, value = heap.times[size], heap.values[size]
        at, child = 0, 1
        while child < size:
            if child + 1 < size and heap.times[child + 1] < heap.times[child]:
                child += 1
            if heap.times[child] >= time:
                break
            heap.times[at], heap.values[at] = heap.times[child], heap.values[child]
            at, child = child, 2 * child + 1
        heap.times[at], heap.values[at] = time, value
    return n
