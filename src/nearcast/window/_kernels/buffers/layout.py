"""The arrays of buffers, the steps of a batch, and the changes that it causes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel
from nearcast.window._kernels.horizon import Horizon
from nearcast.window._kernels.params import BOUNDED, FACTOR, BufferParams
from nearcast.window._kernels.search import target_size

START, CLASS, SIZE, RESULT_SIZE, NEXT, PREVIOUS, QUEUE = 1, 2, 3, 4, 5, 6, 7
"""Columns of a head; theta, a float32, is in column 0, and the result size is k."""
THETA = 0
NONE = -1
STEPS_PER_OCTAVE = 4
SCORES_PER_LINE = 8  # of a cache line
NO_LIMIT = 1 << 30

DONE, OUT, POOL, SCRATCH, PENDING, MOVED = 0, 1, 2, 3, 4, 5
"""Return codes of a kernel: done, or which array was too small."""

STEP, ROW, MATCH, EXPIRY, FIRST_ALIVE, NOW, FIRST_ROW, ARRIVING = 0, 1, 2, 3, 4, 5, 6, 13
"""Positions in a cursor: the next step, row, match and expiry; the first number that is alive, the newest number,
that of the first row, and that of the message that arrives at this step, or -1."""
N_OUT, N_MOVED, N_PENDING, N_ENTERED, N_SEARCHED, N_SWEPT = 7, 8, 9, 10, 11, 12
"""Positions in a cursor: changes, thetas moved, pending arrivals, arrivals that entered, searches, sweeps."""
CURSOR = 16


class BufferArrays(NamedTuple):
    """The buffers of one kind."""

    heads: NDArray[np.int32]
    """int32 (n_slots, 8): see the columns; the class is -1 without a block, the result size 0 for a free slot."""
    thetas: NDArray[np.float32]
    """float32 (n_slots, 8): the same bytes."""
    scores: NDArray[np.float64]
    numbers: NDArray[np.int32]
    """float64, int32 (room,): blocks; numbers are relative to the base of the lists."""
    queues: NDArray[np.int32]
    """int32 (size of the window's rings,): the first subscription in the queue of a message, or -1."""
    state: NDArray[np.int64]
    """int64 (STATE,): see `blocks`."""


class BatchSteps(NamedTuple):
    """The steps of a batch and the matches of its messages."""

    first_number: int
    """The number of its first message."""
    row_steps: NDArray[np.int64]
    horizons: NDArray[np.int64]
    leaving: NDArray[np.int64]
    leaving_steps: NDArray[np.int64]
    rows: NDArray[np.int64]
    slots: NDArray[np.int32]
    scores: NDArray[np.float64]
    in_order: bool
    """True if messages expire in the order of arrival."""


class StepState(NamedTuple):
    """One step: its position in the batch, and which messages are alive at its end."""

    number: int
    horizon: Horizon


class Arrival(NamedTuple):
    """A message that competes for a buffer; its number is -1 if there is none."""

    score: float
    number: int


class ChangeBuffer(NamedTuple):
    """The changes of results, and the cursor of the batch."""

    steps: NDArray[np.int64]
    slots: NDArray[np.int32]
    enters: NDArray[np.bool_]
    scores: NDArray[np.float64]
    numbers: NDArray[np.int64]
    cursor: NDArray[np.int64]
    """int64 (16,): see the positions."""


class PendingArrivals(NamedTuple):
    """Arrivals of the batch that a search found before their step: chains by row."""

    heads: NDArray[np.int32]
    """int32 (n_rows,): the first of a row, or -1."""
    links: NDArray[np.int32]
    slots: NDArray[np.int32]
    scores: NDArray[np.float64]
    moved: NDArray[np.int32]
    """int32: slots whose theta moved, with repetitions."""
    thresholds: NDArray[np.float32]
    """float32 (n_slots,): the thresholds that the index applied."""


class BufferContext(NamedTuple):
    """All that a step may read or write."""

    buffers: BufferArrays
    keys: NDArray[np.int64]
    """int64 (a power of two,): expiry keys by number modulo the size."""
    source: Any
    """The source of candidates; see `candidates.source`."""


@kernel(inline=True)
def write_change(changes: ChangeBuffer, step: int, slot: int, enters: bool, score: float, number: int) -> None:
    """Append a change."""
    n = changes.cursor[N_OUT]
    changes.steps[n], changes.slots[n], changes.enters[n] = step, slot, enters
    changes.scores[n], changes.numbers[n] = score, number
    changes.cursor[N_OUT] = n + 1


@kernel
def move_theta(
    buffers: BufferArrays, slot: int, theta: float, changes: ChangeBuffer, pending: PendingArrivals
) -> None:
    """Set theta and record the slot; requires room in `moved`."""
    buffers.thetas[slot, THETA] = theta
    pending.moved[changes.cursor[N_MOVED]] = slot
    changes.cursor[N_MOVED] += 1


@kernel
def class_for(n: int) -> int:
    """Return the class of the smallest block for n places: 4, 5, 6, 7, 8, 10, 12, 14, 16, 20 ..., 4 per doubling."""
    if n <= STEPS_PER_OCTAVE:
        return 0
    octave = 0
    while (2 * STEPS_PER_OCTAVE << octave) < n:
        octave += 1
    return octave * STEPS_PER_OCTAVE + ((n - 1) >> octave) + 1 - STEPS_PER_OCTAVE


@kernel
def capacity_of(block_class: int) -> int:
    """Return how many entries a block of a class holds."""
    octave, within = block_class // STEPS_PER_OCTAVE, block_class % STEPS_PER_OCTAVE
    return (STEPS_PER_OCTAVE + within) << octave


@kernel
def max_entries(params: BufferParams, k: int, n_postings: int) -> int:
    """Return how many entries a buffer may hold before it is cut."""
    need = target_size(params, k, n_postings)
    if params.policy == FACTOR:  # theta stays until the window is searched again
        return NO_LIMIT
    return need if params.policy == BOUNDED else need + need // 4 + 4
