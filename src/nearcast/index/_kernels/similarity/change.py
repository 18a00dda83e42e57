"""How do subscriptions come and go?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, mix, table_get, table_put
from nearcast.index._kernels.similarity.layout import (
    AHEAD,
    DELTA,
    FREE_LIST,
    LENGTH,
    NEAR_PLACE,
    NEEDED,
    RUN,
    SPLIT,
    TAU,
    USED,
    WEIGHT,
    Pool,
    Records,
    SimilarityColumns,
    SimilarityState,
    Terms,
)
from nearcast.index._kernels.similarity.lists import (
    claim,
    class_of,
    copy_posting,
    drop_list,
    give_block,
    remove_at,
    room_to_append,
    take_block,
)
from nearcast.index._kernels.similarity.plans import fingerprints, list_of, near_cell, near_reach, plan
from nearcast.index._kernels.similarity.scores import set_point, squared_reach, to_frame


@kernel
def number_terms(terms: Terms, ids: NDArray[np.int64], idfs: NDArray[np.float64], out: NDArray[np.int32]) -> None:
    """Give every term a dense number; there is room for all."""
    for i in range(ids.size):
        dense = table_get(terms.table, ids[i], -1)
        if dense < 0:
            dense = terms.table.n_taken[0]
            table_put(terms.table, ids[i], dense)
            terms.numbers[dense] = ids[i]
            terms.idfs[dense] = idfs[i]
            terms.prints[dense] = 1 + (mix(ids[i]) >> 20) % 4095
            terms.n_postings[dense] = -1
        out[i] = dense


@kernel
def write_posting(
    state: SimilarityState, pool: Pool, at: int, slot: int, reach: float, solo: float, others: int
) -> None:
    """Write a posting in full."""
    floats, frame = state.records.floats, state.scratch.frame
    pool.others[at] = others
    pool.slots[at] = slot
    if pool.exact.size > 0:
        unit = state.params.scale
        for axis in range(3):
            pool.exact[at, axis] = floats[slot, axis]
        pool.exact[at, 3] = squared_reach(reach) / (unit * unit)
        pool.exact[at, 4] = floats[slot, DELTA]
        pool.exact[at, 5] = floats[slot, TAU]
    else:
        to_frame(state.params, floats[slot], frame)
        for axis in range(3):
            pool.points[at, axis] = frame[axis]
        pool.points[at, 3] = squared_reach(reach)
        pool.solos[at] = squared_reach(solo)


@kernel
def write_record(
    state: SimilarityState, slot: int, columns: SimilarityColumns, row: int, dense: NDArray[np.int32]
) -> bool:
    """Write what is known of a subscription; False if there is no room for its terms."""
    records = state.records
    first, stop = columns.indptr[row], columns.indptr[row + 1]
    run = take_block(records.run_state, records.run_terms, class_of(stop - first))
    if run < 0:
        records.run_state[NEEDED] = 1 << class_of(stop - first)
        return False
    set_point(state.params, columns.xs[row], columns.ys[row], records.floats[slot])
    weight = 0.0
    for i in range(first, stop):
        records.run_terms[run + i - first] = dense[i]
        records.run_places[run + i - first] = -1
        weight += columns.idfs[i]
    records.floats[slot, DELTA] = columns.deltas[row]
    records.floats[slot, TAU] = columns.taus[row]
    records.floats[slot, WEIGHT] = weight
    records.heads[slot, RUN] = run
    records.heads[slot, LENGTH] = stop - first
    records.heads[slot, NEAR_PLACE] = -1
    return True


@kernel
def forget_record(state: SimilarityState, slot: int) -> None:
    """Give back the run of a subscription."""
    records = state.records
    n = records.heads[slot, LENGTH]
    give_block(records.run_state, records.run_terms, class_of(n), records.heads[slot, RUN])
    records.heads[slot, RUN] = -1


@kernel
def has_room(state: SimilarityState, slot: int, n_posted: int, near: float) -> bool:
    """Find the lists of a planned subscription, and its cell; say whether the pools have room for it."""
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
def touch(state: SimilarityState, dense: NDArray[np.int32]) -> float:
    """Read what posting some terms will need; the answer means nothing.

    Which list and which place follows from which term, so posting waits for one cache miss after the other; those of
    many terms overlap here.
    """
    terms, lists, pool = state.terms, state.term_lists, state.term_pool
    touched = 0.0
    for term in dense:
        touched += terms.idfs[term] + terms.prints[term] + terms.n_postings[term]
    for term in dense:
        home = terms.n_postings[term]
        if home >= 0:
            touched += lists.starts[home] + lists.lengths[home] + lists.classes[home] + lists.reaches[home]
    for term in dense:
        home = terms.n_postings[term]
        if home >= 0:
            at = min(lists.starts[home] + lists.lengths[home], pool.slots.size - 1)
            if at >= 0:
                touched += pool.slots[at] + pool.others[at] + pool.solos[at] + pool.points[at, 0]
    return touched


@kernel
def insert_rows(
    state: SimilarityState,
    columns: SimilarityColumns,
    slots: NDArray[np.int32],
    dense: NDArray[np.int32],
    start: int,
    split_at: int,
) -> tuple[int, int]:
    """Take in subscriptions from `start` on; return where it stopped for want of room, and how many terms to split.

    There is room for the cells and lists of all. `NEEDED` of what had no room says how much.
    """
    records, scratch, terms = state.records, state.scratch, state.terms
    n_queued = 0
    for row in range(start, slots.size):
        slot = slots[row]
        if (row - start) % AHEAD == 0:
            upcoming = dense[columns.indptr[row] : columns.indptr[min(row + AHEAD, slots.size)]]
            scratch.point[7] = touch(state, upcoming)  # kept, so that no compiler drops it
        if not write_record(state, slot, columns, row, dense):
            return row, n_queued
        n_posted = plan(state, slot)
        near = near_reach(state, slot)
        if not has_room(state, slot, n_posted, near):
            forget_record(state, slot)
            return row, n_queued
        run = records.heads[slot, RUN]
        for i in range(n_posted):
            j, listed = scratch.order[i], scratch.rows[i]
            at = claim(state.term_lists, state.term_pool, listed, squared_reach(scratch.reaches[i]))
            others = fingerprints(state, slot, j)
            write_posting(state, state.term_pool, at, slot, scratch.reaches[i], scratch.solos[i], others)
            records.run_places[run + j] = state.term_lists.lengths[listed] - 1
            term = records.run_terms[run + j]
            if terms.n_postings[term] == listed and state.term_lists.lengths[listed] == split_at:
                scratch.queue[n_queued] = term
                n_queued += 1
        if near >= 0.0:
            cell = scratch.cells[0]
            at = claim(state.near_lists, state.near_pool, cell, squared_reach(near))
            write_posting(state, state.near_pool, at, slot, near, near, fingerprints(state, slot, -1))
            records.heads[slot, NEAR_PLACE] = state.near_lists.lengths[cell] - 1
    return slots.size, n_queued


@kernel
def run_place_of(records: Records, slot: int, term: int) -> int:
    """Return where in the runs a term of a subscription stands."""
    at = int(records.heads[slot, RUN])
    while records.run_terms[at] != term:
        at += 1
    return at


@kernel
def position_of(state: SimilarityState, slot: int, at: int) -> int:
    """Return the position in a plan of the term that stands at a place of the runs."""
    wanted, position = at - state.records.heads[slot, RUN], 0
    while state.scratch.order[position] != wanted:
        position += 1
    return position


@kernel
def split_term(state: SimilarityState, term: int) -> None:
    """Spread the only list of a term over cells; there is room for four times its length."""
    lists, pool = state.term_lists, state.term_pool
    home = state.terms.n_postings[term]
    start, length = lists.starts[home], lists.lengths[home]
    state.terms.n_postings[term] = SPLIT
    for i in range(start, start + length):
        slot = pool.slots[i]
        plan(state, slot)
        at = run_place_of(state.records, slot, term)
        reach = state.scratch.reaches[position_of(state, slot, at)]
        row = list_of(state, slot, term, reach)
        copy_posting(pool, i, pool, claim(lists, pool, row, squared_reach(reach)))
        state.records.run_places[at] = lists.lengths[row] - 1
    give_block(lists.state, pool.slots, int(lists.classes[home]), start)
    lists.classes[home] = -1
    lists.starts[home] = lists.state[FREE_LIST]
    lists.state[FREE_LIST] = home


@kernel
def delete_slots(state: SimilarityState, slots: NDArray[np.int32]) -> None:
    """Remove all postings of subscriptions, and what is known of them."""
    records, scratch = state.records, state.scratch
    for slot in slots:
        n_posted = plan(state, slot)
        near = near_reach(state, slot)
        run = records.heads[slot, RUN]
        for i in range(n_posted):
            at = run + scratch.order[i]
            term = records.run_terms[at]
            row = list_of(state, slot, term, scratch.reaches[i])
            place = records.run_places[at]
            moved = remove_at(state.term_lists, state.term_pool, row, place)
            if moved >= 0:
                records.run_places[run_place_of(records, moved, term)] = place
            if state.term_lists.lengths[row] == 0:
                drop_list(state, row)
        if near >= 0.0:
            cell = near_cell(state, slot, near)
            place = records.heads[slot, NEAR_PLACE]
            moved = remove_at(state.near_lists, state.near_pool, cell, place)
            if moved >= 0:
                records.heads[moved, NEAR_PLACE] = place
        forget_record(state, slot)
