"""Insertion and deletion of subscriptions, and splits of long lists by cell."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, mix
from nearcast.index._kernels.shared.size_class import class_of_size
from nearcast.index._kernels.similarity.layout import (
    AHEAD,
    DELTA,
    FACET,
    FREE_LIST,
    LENGTH,
    NEAR_PLACE,
    RUN,
    SPLIT,
    TAU,
    WEIGHT,
    PostingPool,
    SimilarityColumns,
    SimilarityRecords,
    SimilarityState,
    SimilarityTerms,
)
from nearcast.index._kernels.similarity.lists import (
    append_posting,
    copy_posting,
    free_list,
    remove_posting,
    room_to_append,
)
from nearcast.index._kernels.similarity.plans import list_of, near_cell, near_reach, pack_fingerprints, plan_prefix
from nearcast.index._kernels.similarity.scores import set_frame, set_point, squared_reach
from nearcast.model._kernels.blocks import NEEDED, USED, give_block, take_block


@kernel
def describe_terms(
    terms: SimilarityTerms,
    term_ids: NDArray[np.int64],
    idfs: NDArray[np.float64],
    numbers: NDArray[np.int32],
    first: int,
) -> None:
    """Write the columns of the new ones among some terms: those whose numbers are `first` or above."""
    for i in range(term_ids.size):
        number = numbers[i]
        if number >= first:
            terms.ids[number] = term_ids[i]
            terms.idfs[number] = idfs[i]
            terms.fingerprints[number] = 1 + (mix(term_ids[i]) >> 20) % 4095
            terms.only_lists[number] = -1


@kernel
def write_posting(
    state: SimilarityState, pool: PostingPool, at: int, slot: int, reach: float, solo: float, others: int
) -> None:
    """Write all fields of a posting."""
    floats, frame = state.records.floats, state.scratch.frame
    pool.others[at] = others
    pool.slots[at] = slot
    if pool.exact.size > 0:
        unit = state.params.projection.scale
        for axis in range(3):
            pool.exact[at, axis] = floats[slot, axis]
        pool.exact[at, 3] = squared_reach(reach) / (unit * unit)
        pool.exact[at, 4] = floats[slot, DELTA]
        pool.exact[at, 5] = floats[slot, TAU]
    else:
        set_frame(state.params.projection, floats[slot], frame)
        for axis in range(3):
            pool.points[at, axis] = frame[axis]
        pool.points[at, 3] = squared_reach(reach)
        pool.solo_reaches[at] = squared_reach(solo)


@kernel
def write_record(
    state: SimilarityState, slot: int, columns: SimilarityColumns, row: int, numbers: NDArray[np.int32]
) -> bool:
    """Write the record of a subscription; return False if there is no room for its run."""
    records = state.records
    first, stop = columns.indptr[row], columns.indptr[row + 1]
    size_class = class_of_size(stop - first)
    run = take_block(records.run_state, records.run_terms, size_class, 1 << size_class)
    if run < 0:
        return False
    set_point(state.params.projection, columns.xs[row], columns.ys[row], records.floats[slot])
    weight = 0.0
    for i in range(first, stop):
        records.run_terms[run + i - first] = numbers[i]
        records.run_places[run + i - first] = -1
        weight += columns.idfs[i]
    records.floats[slot, DELTA] = columns.deltas[row]
    records.floats[slot, TAU] = columns.taus[row]
    records.floats[slot, WEIGHT] = weight
    records.heads[slot, RUN] = run
    records.heads[slot, LENGTH] = stop - first
    records.heads[slot, NEAR_PLACE] = -1
    records.heads[slot, FACET] = columns.facets[row]
    return True


@kernel
def free_record(state: SimilarityState, slot: int) -> None:
    """Free the run of a subscription."""
    records = state.records
    n = records.heads[slot, LENGTH]
    give_block(records.run_state, records.run_terms, class_of_size(n), records.heads[slot, RUN])
    records.heads[slot, RUN] = -1


@kernel
def has_room(state: SimilarityState, slot: int, n_posted: int, near: float) -> bool:
    """Find the lists and the cell of a planned subscription; return whether the pools have room for it."""
    records, scratch, lists = state.records, state.scratch, state.term_lists
    start = records.heads[slot, RUN]
    needed = 0
    for i in range(n_posted):
        term = records.run_terms[start + scratch.order[i]]
        scratch.rows[i] = list_of(state, slot, term, scratch.reaches[i])
        needed += room_to_append(lists, scratch.rows[i])
    if lists.state[USED] + needed > state.term_pool.slots.size:
        lists.state[NEEDED] = needed
        return False
    if near >= 0.0:
        scratch.cells[0] = near_cell(state, slot, near)
        needed = room_to_append(state.near_lists, scratch.cells[0])
        if state.near_lists.state[USED] + needed > state.near_pool.slots.size:
            state.near_lists.state[NEEDED] = needed
            return False
    return True


@kernel
def touch_lists(state: SimilarityState, numbers: NDArray[np.int32]) -> float:
    """Read what posting some terms needs, so that the cache misses overlap; the value returned has no meaning.

    The list and the position follow from the term, so posting alone would wait for one miss after the other.
    """
    terms, lists, pool = state.terms, state.term_lists, state.term_pool
    touched = 0.0
    for term in numbers:
        touched += terms.idfs[term] + terms.fingerprints[term] + terms.only_lists[term]
    for term in numbers:
        row = terms.only_lists[term]
        if row >= 0:
            touched += lists.starts[row] + lists.lengths[row] + lists.classes[row] + lists.reaches[row]
    for term in numbers:
        row = terms.only_lists[term]
        if row >= 0:
            at = min(lists.starts[row] + lists.lengths[row], pool.slots.size - 1)
            if at >= 0:
                touched += pool.slots[at] + pool.others[at] + pool.solo_reaches[at] + pool.points[at, 0]
    return touched


@kernel
def insert_rows(
    state: SimilarityState,
    columns: SimilarityColumns,
    slots: NDArray[np.int32],
    numbers: NDArray[np.int32],
    start: int,
    split_at: int,
) -> tuple[int, int]:
    """Insert subscriptions from row `start` on; return the row without room, or their number, and the terms to split.

    There must be room for all cells and lists. NEEDED in the state of what had no room is the room that was missing.
    Terms whose only list reaches `split_at` postings are written to `queue`.
    """
    records, scratch, terms = state.records, state.scratch, state.terms
    n_queued = 0
    for row in range(start, slots.size):
        slot = slots[row]
        if (row - start) % AHEAD == 0:
            upcoming = numbers[columns.indptr[row] : columns.indptr[min(row + AHEAD, slots.size)]]
            scratch.point[7] = touch_lists(state, upcoming)  # stored, so that the compiler keeps the reads
        if not write_record(state, slot, columns, row, numbers):
            return row, n_queued
        n_posted = plan_prefix(state, slot)
        near = near_reach(state, slot)
        if not has_room(state, slot, n_posted, near):
            free_record(state, slot)
            return row, n_queued
        run = records.heads[slot, RUN]
        for i in range(n_posted):
            j, listed = scratch.order[i], scratch.rows[i]
            at = append_posting(state.term_lists, state.term_pool, listed, squared_reach(scratch.reaches[i]))
            others = pack_fingerprints(state, slot, j)
            write_posting(state, state.term_pool, at, slot, scratch.reaches[i], scratch.solo_reaches[i], others)
            records.run_places[run + j] = state.term_lists.lengths[listed] - 1
            term = records.run_terms[run + j]
            if terms.only_lists[term] == listed and state.term_lists.lengths[listed] == split_at:
                scratch.queue[n_queued] = term
                n_queued += 1
        if near >= 0.0:
            cell = scratch.cells[0]
            at = append_posting(state.near_lists, state.near_pool, cell, squared_reach(near))
            write_posting(state, state.near_pool, at, slot, near, near, pack_fingerprints(state, slot, -1))
            records.heads[slot, NEAR_PLACE] = state.near_lists.lengths[cell] - 1
    return slots.size, n_queued


@kernel
def find_in_run(records: SimilarityRecords, slot: int, term: int) -> int:
    """Return the position of a term of a subscription in the runs."""
    at = int(records.heads[slot, RUN])
    while records.run_terms[at] != term:
        at += 1
    return at


@kernel
def position_in_plan(state: SimilarityState, slot: int, at: int) -> int:
    """Return the position in the plan of the term at a position of the runs."""
    wanted, position = at - state.records.heads[slot, RUN], 0
    while state.scratch.order[position] != wanted:
        position += 1
    return position


@kernel
def split_term(state: SimilarityState, term: int) -> None:
    """Distribute the only list of a term over cells. There must be room for four times its length."""
    lists, pool = state.term_lists, state.term_pool
    only_list = state.terms.only_lists[term]
    start, length = lists.starts[only_list], lists.lengths[only_list]
    state.terms.only_lists[term] = SPLIT
    for i in range(start, start + length):
        slot = pool.slots[i]
        plan_prefix(state, slot)
        at = find_in_run(state.records, slot, term)
        reach = state.scratch.reaches[position_in_plan(state, slot, at)]
        row = list_of(state, slot, term, reach)
        copy_posting(pool, i, pool, append_posting(lists, pool, row, squared_reach(reach)))
        state.records.run_places[at] = lists.lengths[row] - 1
    give_block(lists.state, pool.slots, int(lists.classes[only_list]), start)
    lists.classes[only_list] = -1
    lists.starts[only_list] = lists.state[FREE_LIST]
    lists.state[FREE_LIST] = only_list


@kernel
def delete_slots(state: SimilarityState, slots: NDArray[np.int32]) -> None:
    """Remove all postings of subscriptions, and their records."""
    records, scratch = state.records, state.scratch
    for slot in slots:
        n_posted = plan_prefix(state, slot)
        near = near_reach(state, slot)
        run = records.heads[slot, RUN]
        for i in range(n_posted):
            at = run + scratch.order[i]
            term = records.run_terms[at]
            row = list_of(state, slot, term, scratch.reaches[i])
            place = records.run_places[at]
            moved = remove_posting(state.term_lists, state.term_pool, row, place)
            if moved >= 0:
                records.run_places[find_in_run(records, moved, term)] = place
            if state.term_lists.lengths[row] == 0:
                free_list(state, row)
        if near >= 0.0:
            cell = near_cell(state, slot, near)
            place = records.heads[slot, NEAR_PLACE]
            moved = remove_posting(state.near_lists, state.near_pool, cell, place)
            if moved >= 0:
                records.heads[moved, NEAR_PLACE] = place
        free_record(state, slot)
