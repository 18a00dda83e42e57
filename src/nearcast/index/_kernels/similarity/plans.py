"""Plan of a subscription: its prefix with reaches, its cells and lists, and the fingerprints in its postings."""

from __future__ import annotations

from math import floor, inf

from nearcast._jit import kernel, table_get, table_put
from nearcast.index._kernels.shared.term_order import order_by_weight
from nearcast.index._kernels.similarity.layout import (
    DELTA,
    FACET,
    GLOBAL_CELL,
    LENGTH,
    MANY,
    MAX_FINGERPRINTS,
    RUN,
    SPLIT,
    TAU,
    WEIGHT,
    SimilarityState,
)
from nearcast.index._kernels.similarity.lists import cell_list_key, new_list
from nearcast.index._kernels.similarity.scores import reach_of_nearness, set_frame, upper_bound_text


@kernel
def plan_prefix(state: SimilarityState, slot: int) -> int:
    """Write the prefix of a subscription and its reaches, by falling weight; return its length (STAMP, III and V).

    A message whose first shared term is at position i shares nothing before it, so its reach follows from the weight
    of the remaining terms. `solo_reaches` is the reach if it shares nothing else.
    """
    params, records, scratch = state.params, state.records, state.scratch
    idfs, order = state.terms.idfs, state.scratch.order
    start, n = records.heads[slot, RUN], records.heads[slot, LENGTH]
    delta, tau, weight = records.floats[slot, DELTA], records.floats[slot, TAU], records.floats[slot, WEIGHT]
    for j in range(n):
        scratch.reaches[j] = idfs[records.run_terms[start + j]]  # until the terms are in order
    order_by_weight(scratch.reaches, 0, n, order)
    left = 0.0
    for i in range(n - 1, -1, -1):
        own = idfs[records.run_terms[start + order[i]]]
        left += own
        most = upper_bound_text(params.text, n - i, left, n, weight)
        scratch.reaches[i] = reach_of_nearness(params, tau - delta * most, 1.0 - delta)
        alone = upper_bound_text(params.text, 1, own, n, weight)
        scratch.solo_reaches[i] = reach_of_nearness(params, tau - delta * alone, 1.0 - delta)
    length = 0
    while length < n and scratch.reaches[length] >= 0.0:
        length += 1
    return length


@kernel
def near_reach(state: SimilarityState, slot: int) -> float:
    """Return the reach by nearness alone, that of the paper's virtual token; -1 if a match needs a shared term."""
    floats = state.records.floats
    return reach_of_nearness(state.params, floats[slot, TAU], 1.0 - floats[slot, DELTA])


@kernel
def pack_fingerprints(state: SimilarityState, slot: int, skip: int) -> int:
    """Return the fingerprints of the terms of a subscription except one."""
    start, n = state.records.heads[slot, RUN], state.records.heads[slot, LENGTH]
    packed, count = 0, 0
    for j in range(n):
        if j != skip:
            if count == MAX_FINGERPRINTS:
                return MANY
            packed |= int(state.terms.fingerprints[state.records.run_terms[start + j]]) << (12 * count)
            count += 1
    return packed


@kernel
def cell_along(value: float, side: float) -> int:
    """Return the number of the cell of a coordinate along its axis."""
    return floor(value / side) + (1 << 19)


@kernel
def cell_key(level: int, x: int, y: int, z: int) -> int:
    """Return the key of a cell: 3 bits of level, three times 20 bits of position."""
    return (((((level << 20) | x) << 20) | y) << 20) | z


@kernel
def cell_of(state: SimilarityState, slot: int, reach: float, spread: float, levels: int) -> int:
    """Return the cell of a posting; a missing one is added. There must be room for it."""
    params, frame = state.params, state.scratch.frame
    if reach == inf or not params.by_cells:
        return GLOBAL_CELL
    level, side = 0, params.side
    while level + 1 < levels and reach <= spread * side * 0.5:
        side *= 0.5
        level += 1
    set_frame(params.projection, state.records.floats[slot], frame)
    x, y, z = cell_along(frame[0], side), cell_along(frame[1], side), cell_along(frame[2], side)
    key = cell_key(level, x, y, z)
    cell = table_get(state.cell_table, key, -1)
    if cell < 0:
        cell = add_cell(state, key)
        state.level_cells[level] += 1
    return cell


@kernel
def add_cell(state: SimilarityState, key: int) -> int:
    """Return the number of a new cell. There must be room for it."""
    cell = int(state.cell_table.n_taken[0]) + 1
    table_put(state.cell_table, key, cell)
    return cell


@kernel
def cell_of_facet(state: SimilarityState, facet: int, cell: int) -> int:
    """Return the cell of a facet at the place of a cell, or -1; without a facet it is the cell itself."""
    return cell if facet == 0 else table_get(state.cell_table, facet_cell_key(facet, cell), -1)


@kernel
def facet_cell_key(facet: int, cell: int) -> int:
    """Return the key of the cell of a facet: negative, where keys of places are not."""
    return -((int(facet) << 32) | int(cell))


@kernel
def near_cell(state: SimilarityState, slot: int, reach: float) -> int:
    """Return the cell of a posting by nearness; a missing one is added. There must be room for two."""
    facet = state.records.heads[slot, FACET]
    place = cell_of(state, slot, reach, state.params.near_spread, state.params.levels)
    cell = cell_of_facet(state, facet, place)
    return add_cell(state, facet_cell_key(facet, place)) if cell < 0 else cell


@kernel
def list_of(state: SimilarityState, slot: int, term: int, reach: float) -> int:
    """Return the list of a posting of a term; a missing one is added. There must be room for it."""
    only_list = int(state.terms.only_lists[term])
    if only_list >= 0:
        return only_list
    if only_list != SPLIT:
        row = new_list(state.term_lists, term, -1)
        state.terms.only_lists[term] = row
        return row
    cell = cell_of(state, slot, reach, state.params.term_spread, state.params.term_levels)
    key = cell_list_key(term, cell)
    row = table_get(state.cell_lists, key, -1)
    if row < 0:
        row = new_list(state.term_lists, term, cell)
        table_put(state.cell_lists, key, row)
    return row
