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
from nearcast.model._kernels.slot_words import RUN
from nearcast.space._kernels.regions import (
    RegionArrays,
    cell_of_point,
    edges_cover,
    prefetch_edges,
    prefetch_line,
    prefetch_points,
    region_covers,
    side_by_line,
)

_NULL = -(1 << 63)
_AHEAD = 8
_FEW_TERMS = 32
_BLOCK = 256
"""Pairs that are decided together."""


HAS_REGION, HAS_PROGRAM = 1, 2
"""Bits of a form. A filter without a program is its region; a program tests the region, too, if there is one."""


class FilterArrays(NamedTuple):
    """All programs, by slot."""

    forms: NDArray[np.uint8]
    """uint8 (n_slots,): HAS_REGION and HAS_PROGRAM, or 0 without a filter; small enough to stay in a cache."""
    heads: NDArray[np.int64]
    """int64 (n_slots, 2): start of its program or -1, and number of words."""
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
def _holds_term(messages: MessageRows, row: int, term: int) -> bool:
    """Return whether a message holds a term; the few terms of most messages are compared without a branch."""
    n, start = messages.n_terms[row], messages.term_starts[row] & messages.masks[1]
    if n > _FEW_TERMS:
        return bool(_find(messages.term_ids, start, start + n, term) >= 0)
    is_held = False
    for i in range(start, start + n):
        is_held |= messages.term_ids[i] == term
    return is_held


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
    if slot >= filters.forms.size or filters.forms[slot] == 0:
        return True
    row = number & messages.masks[0]
    if filters.forms[slot] == HAS_REGION:
        return region_covers(filters.regions, slot, messages.xs[row], messages.ys[row])
    start, words, to = filters.heads[slot, RUN], filters.words, 0
    while to >= 0:
        at = start + to
        head = words[at]
        test, n, operand = head & 255, head >> 32, at + OPERANDS
        if test == HOLDS:
            is_true = _holds_term(messages, row, words[operand])
        elif test == SIDE_BY_SIDE:
            is_true = _holds_phrase(filters, operand, n, messages, row)
        elif test == IN_REGION:
            is_true = region_covers(filters.regions, slot, messages.xs[row], messages.ys[row])
        else:
            is_true = _holds_value(filters, operand, n, test, messages.codes[row, (head >> 8) & 0xFFFFFF])
        to = words[at + 1] if is_true else words[at + 2]
    return bool(to != FAIL)


class _Pending(NamedTuple):
    """Pairs of a block that their lines did not decide."""

    pairs: NDArray[np.int64]
    """int64 (_BLOCK,): positions of the pairs."""
    cells: NDArray[np.int64]
    """int64 (_BLOCK,): the cell of polygons that may decide each, or -1."""


@kernel
def _decide_by_lines(
    filters: FilterArrays,
    messages: MessageRows,
    rows: NDArray[np.int64],
    slots: NDArray[np.int32],
    block: tuple[int, int],
    passed: NDArray[np.bool_],
    pending: _Pending,
) -> int:
    """Write which pairs of a block pass by their lines, and the pairs that these leave open; return their number."""
    forms, heads, regions, n_pending, n = filters.forms, filters.heads, filters.regions, 0, slots.size
    for i in range(block[0], block[1]):
        at = i + 3 * _AHEAD
        if at < n and slots[at] < forms.size:
            prefetch(forms, slots[at])
        at = i + 2 * _AHEAD
        if at < n and slots[at] < forms.size and forms[slots[at]] != 0:
            if forms[slots[at]] & HAS_REGION:
                prefetch_line(regions, slots[at])
            if forms[slots[at]] & HAS_PROGRAM:
                prefetch(heads, slots[at])
        at = i + _AHEAD
        if at < n and slots[at] < forms.size and forms[slots[at]] & HAS_PROGRAM:
            prefetch(filters.words, heads[slots[at], RUN])
        slot, side, cell = slots[i], 1, -1
        form = forms[slot] if slot < forms.size else 0
        if form & HAS_REGION:
            x, y = messages.xs[rows[i] & messages.masks[0]], messages.ys[rows[i] & messages.masks[0]]
            side = side_by_line(regions, slot, x, y)
            if side < 0:
                cell = cell_of_point(regions, slot, x, y)
                prefetch(regions.cells, cell)
        passed[i - block[0]] = side == 1
        pending.pairs[n_pending], pending.cells[n_pending] = i, cell
        n_pending += form >= HAS_PROGRAM or side < 0
    return n_pending


@kernel
def _decide_pending(
    filters: FilterArrays,
    messages: MessageRows,
    rows: NDArray[np.int64],
    slots: NDArray[np.int32],
    first: int,
    passed: NDArray[np.bool_],
    pending: _Pending,
) -> None:
    """Write which of the pending pairs pass, each step when what leads to it has arrived."""
    regions, n = filters.regions, pending.pairs.size
    for i in range(n):
        if pending.cells[i] >= 0:
            prefetch_edges(regions, slots[pending.pairs[i]], pending.cells[i])
    for i in range(n + _AHEAD):
        if i < n and pending.cells[i] >= 0:
            prefetch_points(regions, slots[pending.pairs[i]], pending.cells[i])
        if i >= _AHEAD:
            pair, cell = pending.pairs[i - _AHEAD], pending.cells[i - _AHEAD]
            slot, row = slots[pair], rows[pair] & messages.masks[0]
            if filters.forms[slot] & HAS_PROGRAM:
                passed[pair - first] = passes(filters, slot, messages, row)
            else:
                passed[pair - first] = edges_cover(regions, slot, cell, messages.xs[row], messages.ys[row])


@kernel(allocates=True)
def keep_passing(
    filters: FilterArrays,
    messages: MessageRows,
    rows: NDArray[np.int64],
    slots: NDArray[np.int32],
    scores: NDArray[np.float64],
) -> int:
    """Move the pairs of message and subscription that pass the filters to the front; return how many there are.

    Pairs are decided in blocks: by their lines first, then by programs and edges, which have arrived by then.
    """
    passed, n = np.empty(_BLOCK, np.bool_), 0
    pending = _Pending(np.empty(_BLOCK, np.int64), np.empty(_BLOCK, np.int64))
    for first in range(0, slots.size, _BLOCK):
        last = min(first + _BLOCK, slots.size)
        n_open = _decide_by_lines(filters, messages, rows, slots, (first, last), passed, pending)
        left = _Pending(pending.pairs[:n_open], pending.cells[:n_open])
        _decide_pending(filters, messages, rows, slots, first, passed, left)
        for i in range(first, last):
            rows[n], slots[n], scores[n] = rows[i], slots[i], scores[i]
            n += passed[i - first]
    return n
