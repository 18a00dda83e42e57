"""Where does a subscription stand? Its prefix, its cells, and what its postings carry."""

from __future__ import annotations

from math import floor, inf

from nearcast._jit import kernel, table_get, table_put
from nearcast.index._kernels.similarity.layout import (
    DELTA,
    EVERYWHERE,
    LENGTH,
    MANY,
    N_PRINTS,
    RUN,
    SPLIT,
    TAU,
    WEIGHT,
    SimilarityState,
)
from nearcast.index._kernels.similarity.lists import new_list, spot_key
from nearcast.index._kernels.similarity.scores import reach_of, to_frame, upper_bound_text


@kernel
def plan(state: SimilarityState, slot: int) -> int:
    """Write reaches of the prefix of a subscription, terms by falling weight; return its length (STAMP, III and V).

    A message whose first shared term is at position i shares nothing before it: its reach follows from the weight of
    what is left. `solos` is the reach if it shares nothing else.
    """
    params, records, scratch = state.params, state.records, state.scratch
    idfs, order = state.terms.idfs, state.scratch.order
    start, n = records.heads[slot, RUN], records.heads[slot, LENGTH]
    delta, tau, weight = records.floats[slot, DELTA], records.floats[slot, TAU], records.floats[slot, WEIGHT]
    for j in range(n):  # insertion keeps equal weights in the order of their numbers
        at = j
        while at > 0 and idfs[records.run_terms[start + order[at - 1]]] < idfs[records.run_terms[start + j]]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = j
    left = 0.0
    for i in range(n - 1, -1, -1):
        own = idfs[records.run_terms[start + order[i]]]
        left += own
        most = upper_bound_text(params.text, n - i, left, n, weight)
        scratch.reaches[i] = reach_of(params, tau - delta * most, 1.0 - delta)
        alone = upper_bound_text(params.text, 1, own, n, weight)
        scratch.solos[i] = reach_of(params, tau - delta * alone, 1.0 - delta)
    length = 0
    while length < n and scratch.reaches[length] >= 0.0:
        length += 1
    return length


@kernel
def near_reach(state: SimilarityState, slot: int) -> float:
    """Return the reach by nearness alone, that of the paper's virtual token; -1 if a match needs a term."""
    floats = state.records.floats
    return reach_of(state.params, floats[slot, TAU], 1.0 - floats[slot, DELTA])


@kernel
def fingerprints(state: SimilarityState, slot: int, skip: int) -> int:
    """Return the fingerprints of the terms of a subscription, one left out."""
    start, n = state.records.heads[slot, RUN], state.records.heads[slot, LENGTH]
    packed, count = 0, 0
    for j in range(n):
        if j != skip:
            if count == N_PRINTS:
                return MANY
            packed |= int(state.terms.prints[state.records.run_terms[start + j]]) << (12 * count)
            count += 1
    return packed


@kernel
def place_in(value: float, side: float) -> int:
    """Return the number of a cell along an axis."""
    return floor(value / side) + (1 << 19)


@kernel
def cell_key(level: int, x: int, y: int, z: int) -> int:
    """Return the key of a cell: 3 bits of level, three times 20 of place."""
    return (((((level << 20) | x) << 20) | y) << 20) | z


@kernel
def cell_of(state: SimilarityState, slot: int, reach: float, spread: float, levels: int) -> int:
    """Return the cell of a posting; a new one, for which there is room, if need be."""
    params, frame = state.params, state.scratch.frame
    if reach == inf or not params.by_cells:
        return EVERYWHERE
    level, side = 0, params.side
    while level + 1 < levels and reach <= spread * side * 0.5:
        side *= 0.5
        level += 1
    to_frame(params, state.records.floats[slot], frame)
    x, y, z = place_in(frame[0], side), place_in(frame[1], side), place_in(frame[2], side)
    key = cell_key(level, x, y, z)
    cell = table_get(state.cell_table, key, -1)
    if cell < 0:
        cell = int(state.cell_table.n_taken[0]) + 1
        table_put(state.cell_table, key, cell)
        state.level_cells[level] += 1
    return cell


@kernel
def near_cell(state: SimilarityState, slot: int, reach: float) -> int:
    """Return the cell of a posting by nearness; a new one, for which there is room, if need be."""
    return cell_of(state, slot, reach, state.params.near_spread, state.params.levels)


@kernel
def list_of(state: SimilarityState, slot: int, term: int, reach: float) -> int:
    """Return the list on which a posting of a term belongs; a new one, for which there is room, if need be."""
    home = int(state.terms.n_postings[term])
    if home >= 0:
        return home
    if home != SPLIT:
        row = new_list(state.term_lists, term, -1)
        state.terms.n_postings[term] = row
        return row
    cell = cell_of(state, slot, reach, state.params.term_spread, state.params.term_levels)
    key = spot_key(term, cell)
    row = table_get(state.spots, key, -1)
    if row < 0:
        row = new_list(state.term_lists, term, cell)
        table_put(state.spots, key, row)
    return row
