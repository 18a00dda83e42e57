"""Kernels of `nearcast.model.filters`: programs of tests by slot, evaluated for messages of a batch or a window."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch
from nearcast.model._kernels.program_layout import (
    AMONG,
    FAIL,
    GREATER,
    GREATER_OR_EQUAL,
    HOLDS,
    IN_REGION,
    IS_KNOWN,
    IS_NULL,
    LESS,
    LESS_OR_EQUAL,
    NOT_AMONG,
    OPERANDS,
    SIDE_BY_SIDE,
)
from nearcast.model._kernels.slot_words import LENGTH, RUN
from nearcast.space._kernels.regions import (
    RegionArrays,
    prefetch_cell,
    prefetch_edges,
    prefetch_line,
    prefetch_points,
    region_covers,
)

_NULL = -(1 << 63)
_AHEAD = 8


class FilterArrays(NamedTuple):
    """All programs, by slot."""

    heads: NDArray[np.int64]
    """int64 (n_slots, 2): start of its program or -1, and number of words, 0 if the region is all that it tests."""
    words: NDArray[np.int64]
    """int64 (n,): the programs; the next free block in the first word of a free one."""
    values: NDArray[np.float64]
    """float64 (n,): the same bytes, to read codes as numbers."""
    state: NDArray[np.int64]
    """int64 (STATE,): see `blocks`."""
    regions: RegionArrays
    """The regions of the slots."""


class MessageRows(NamedTuple):
    """Messages as filters read them: the rows of a batch, or the ring buffers of a window.

    A row is taken modulo a power of two, and so are the positions of its terms; in a batch these masks change
    nothing.
    """

    xs: NDArray[np.float64]
    ys: NDArray[np.float64]
    term_starts: NDArray[np.int64]
    n_terms: NDArray[np.int32]
    term_ids: NDArray[np.int64]
    """int64: ascending within a row."""
    order_starts: NDArray[np.int64]
    n_ordered: NDArray[np.int32]
    ranks: NDArray[np.uint16]
    """uint16: the terms in the order of the text, as positions in the row."""
    codes: NDArray[np.int64]
    """int64 (n, n_attributes): the values of attributes."""
    masks: NDArray[np.int64]
    """int64 (3,): of rows, of terms and of ranks."""


@kernel(inline=True)
def _find(values: NDArray[np.int64], start: int, stop: int, value: int) -> int:
    """Return the position of a value among ascending ones, or -1."""
    low, high = start, stop
    while low < high:
        middle = (low + high) // 2
        if values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return int(low) if low < stop and values[low] == value else -1


@kernel(inline=True)
def _find_term(messages: MessageRows, row: int, term: int) -> int:
    """Return the position of a term among those of a message, or -1."""
    start = messages.term_starts[row] & messages.masks[1]
    at = _find(messages.term_ids, start, start + messages.n_terms[row], term)
    return int(at - start) if at >= 0 else -1


@kernel(inline=True)
def _holds_phrase(filters: FilterArrays, at: int, n: int, messages: MessageRows, row: int) -> bool:
    """Return whether the message has the terms of a phrase side by side; `n` counts its terms and their borders."""
    words, ranks, n_terms = filters.words, messages.ranks, n // 2
    start, n_ordered = messages.order_starts[row] & messages.masks[2], messages.n_ordered[row]
    first, term_start = _find_term(messages, row, words[at]), messages.term_starts[row] & messages.masks[1]
    if first < 0 or n_terms > n_ordered:
        return False
    matched = 0
    for i in range(start, start + n_ordered):
        if matched == 0 and ranks[i] != first:
            continue
        term = messages.term_ids[term_start + ranks[i]]
        while matched > 0 and words[at + matched] != term:
            matched = words[at + n_terms + matched - 1]
        if words[at + matched] == term:
            matched += 1
        if matched == n_terms:
            return True
    return False


@kernel(inline=True)
def _holds_value(filters: FilterArrays, at: int, n: int, test: int, code: int) -> bool:
    """Return whether the value of an attribute, given by its code, passes a test; null passes IS_NULL only."""
    if test == IS_NULL:
        return code == _NULL
    if code == _NULL:
        return False
    if test == IS_KNOWN:
        return True
    if test in (AMONG, NOT_AMONG):
        return (_find(filters.words, at, at + n, code) >= 0) == (test == AMONG)
    value, bound = np.int64(code).view(np.float64), filters.values[at]
    if test == LESS:
        return bool(value < bound)
    if test == LESS_OR_EQUAL:
        return bool(value <= bound)
    if test == GREATER:
        return bool(value > bound)
    return bool(test == GREATER_OR_EQUAL and value >= bound)


@kernel(inline=True)
def passes(filters: FilterArrays, slot: int, messages: MessageRows, number: int) -> bool:
    """Return whether a message, given by its row or number, passes the filters of a subscription."""
    if slot >= filters.heads.shape[0] or filters.heads[slot, RUN] < 0:
        return True
    start, words, row = filters.heads[slot, RUN], filters.words, number & messages.masks[0]
    if filters.heads[slot, LENGTH] == 0:
        return region_covers(filters.regions, slot, messages.xs[row], messages.ys[row])
    to = 0
    while to >= 0:
        at = start + to
        head = words[at]
        test, n, operand = head & 255, head >> 32, at + OPERANDS
        if test == HOLDS:
            is_true = _find_term(messages, row, words[operand]) >= 0
        elif test == SIDE_BY_SIDE:
            is_true = _holds_phrase(filters, operand, n, messages, row)
        elif test == IN_REGION:
            is_true = region_covers(filters.regions, slot, messages.xs[row], messages.ys[row])
        else:
            is_true = _holds_value(filters, operand, n, test, messages.codes[row, (head >> 8) & 0xFFFFFF])
        to = words[at + 1] if is_true else words[at + 2]
    return bool(to != FAIL)


@kernel(inline=True)
def _prefetch(
    filters: FilterArrays, messages: MessageRows, rows: NDArray[np.int64], slots: NDArray[np.int32], i: int
) -> None:
    """Prefetch what the programs of later pairs read, each step when what leads to it has arrived."""
    heads, regions, n = filters.heads, filters.regions, slots.size
    at = i + 5 * _AHEAD
    if at < n and slots[at] < heads.shape[0]:
        prefetch(heads, slots[at])
    at = i + 4 * _AHEAD
    if at < n and slots[at] < heads.shape[0] and heads[slots[at], RUN] >= 0:
        if heads[slots[at], LENGTH] > 0:
            prefetch(filters.words, heads[slots[at], RUN])
        prefetch_line(regions, slots[at])
    if regions.lines.shape[0] == 0:
        return
    at = i + 3 * _AHEAD
    if at < n:
        row = rows[at] & messages.masks[0]
        prefetch_cell(regions, slots[at], messages.xs[row], messages.ys[row])
    at = i + 2 * _AHEAD
    if at < n:
        row = rows[at] & messages.masks[0]
        prefetch_edges(regions, slots[at], messages.xs[row], messages.ys[row])
    at = i + _AHEAD
    if at < n:
        row = rows[at] & messages.masks[0]
        prefetch_points(regions, slots[at], messages.xs[row], messages.ys[row])


@kernel(inline=True)
def select_passing(
    filters: FilterArrays,
    messages: MessageRows,
    rows: NDArray[np.int64],
    slots: NDArray[np.int32],
    out: NDArray[np.int64],
) -> int:
    """Write the positions of the pairs of message and subscription that pass the filters; return how many."""
    n = 0
    for i in range(slots.size):
        _prefetch(filters, messages, rows, slots, i)
        out[n] = i
        n += passes(filters, slots[i], messages, rows[i])
    return n
