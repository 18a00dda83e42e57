"""What are buffers made of? Their arrays, what a batch brings, and what is told."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel
from nearcast.model._kernels.profiles import ProfileArrays
from nearcast.window._kernels.lists import ListArrays
from nearcast.window._kernels.params import BOUNDED, FACTOR, BufferParams
from nearcast.window._kernels.search import SearchScratch, wanted
from nearcast.window._kernels.social_window import SocialWindowArrays
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


class ChangeBuffer(NamedTuple):
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
    thresholds: NDArray[np.float32]
    """float32 (n_slots,): what the index was asked to let through."""


class BufferContext(NamedTuple):
    """All that a step may touch."""

    params: BufferParams
    buffers: BufferArrays
    lists: ListArrays
    window: WindowArrays
    profiles: ProfileArrays
    friends: SocialWindowArrays
    signs: NDArray[np.int64]
    keys: NDArray[np.int64]
    scratch: SearchScratch


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
def most_held(params: BufferParams, k: int, n_read: int) -> int:
    """Return how many places a buffer may have before it is cut."""
    need = wanted(params, k, n_read)
    if params.policy == FACTOR:  # theta stays until the window is searched again
        return NO_END
    return need if params.policy == BOUNDED else need + need // 4 + 4


# -- queues ---------------------------------------------------------------------------------------------------
