"""Algorithms 1 and 2 of STAMP over the arrays of `SimilarityIndex`.

    sp          a list per term and one of the virtual token, the least nearness in each posting (section III)
    sp-hi       a tree of regions, a list per term and leaf, the least nearness per term and region (section IV-A)
    sp-rp-hi    the same with region-aware prefixes: a message outside a region is compared with the tokens that can
                still match across its border only (sections IV-B and IV-C)

A posting holds its subscription and the least nearness, as in the paper; the point is read from the subscription.
Improvements on the paper: bounds are squared chords, so that a posting that fails costs no square root; sets of
candidates are marks in an array; the five text functions, ties and deletions are exact. `SimilarityIndex` with the
filter `reach` alone is `sp` with the point in the posting. The regions are cubes over the frame of the index, each
halved down to a fixed depth. The nearness of a region's border is that of the nearest face of its cube. A token is in
the region-aware prefix exactly if its reach passes the border: equations 4 and 10 are one condition.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, table_get, table_put
from nearcast.index import similarity
from nearcast.index._kernels.shared.output import CANDIDATES, VERIFIED, VISITED, MatchOutput
from nearcast.index._kernels.similarity.change import find_in_run, free_record, write_posting, write_record
from nearcast.index._kernels.similarity.layout import (
    DELTA,
    GLOBAL_CELL,
    NEAR_PLACE,
    RUN,
    TAU,
    SimilarityColumns,
    SimilarityParams,
    SimilarityState,
)
from nearcast.index._kernels.similarity.lists import (
    append_posting,
    cell_list_key,
    free_list,
    new_list,
    remove_posting,
    room_to_append,
)
from nearcast.index._kernels.similarity.match import clear_message, gap_along, load_message, shared_text
from nearcast.index._kernels.similarity.plans import cell_along, cell_key, near_reach, plan_prefix
from nearcast.index._kernels.similarity.scores import exact_near, fast_near, is_clear, set_frame, squared_reach
from nearcast.model import ScoringContext
from nearcast.model._kernels.blocks import NEEDED, USED

DEPTH = 6  # of the tree; a leaf of the earth is 200 km wide
STAR = 0  # dense number of the virtual token
_STAR_ID = -(1 << 62) - 1
SP, HI, RP = 0, 1, 2  # methods; each includes the one before


@kernel
def side_of(level: int) -> float:
    """Return the side of a region; the root covers the frame, with a little to spare."""
    return 2.0625 / (1 << level)


@kernel
def region_of(state: SimilarityState, level: int) -> int:
    """Return the region of a level that holds the point in the frame; it is created if it does not exist."""
    frame, side = state.scratch.frame, side_of(level)
    x, y, z = cell_along(frame[0], side), cell_along(frame[1], side), cell_along(frame[2], side)
    key = cell_key(level, x, y, z)
    node = table_get(state.cell_table, key, -1)
    if node < 0:
        node = state.cell_table.n_taken[0] + 1
        table_put(state.cell_table, key, node)
    return node


@kernel
def leaf_of(state: SimilarityState, method: int) -> int:
    """Return the leaf that holds the point in the frame; without regions there is one leaf."""
    return region_of(state, DEPTH) if method >= HI else GLOBAL_CELL


@kernel
def border_of(state: SimilarityState, level: int) -> float:
    """Return the distance from the point in the frame to the nearest border of its region."""
    frame, side, least = state.scratch.frame, side_of(level), np.inf
    for axis in range(3):
        low = (cell_along(frame[axis], side) - (1 << 19)) * side
        least = min(least, frame[axis] - low, low + side - frame[axis])
    return least - 1e-12


@kernel
def region_list(state: SimilarityState, term: int, node: int) -> int:
    """Return the list of a token in a region; it is created if it does not exist."""
    key = cell_list_key(term, node)
    row = table_get(state.cell_lists, key, -1)
    if row < 0:
        row = new_list(state.term_lists, term, node)
        table_put(state.cell_lists, key, row)
    return row


@kernel
def sign(state: SimilarityState, term: int, reach: float, change: int, method: int) -> None:
    """Add a token to the signatures of all inner regions around the point in the frame, or remove it."""
    lists = state.term_lists
    for level in range(DEPTH if method >= HI else 0):
        node = region_of(state, level)  # created even if the token is not in its signature: a message may lie inside
        if method >= RP and reach < border_of(state, level):
            continue
        row = region_list(state, term, node)
        lists.lengths[row] += change
        lists.reaches[row] = max(lists.reaches[row], squared_reach(reach))
        if lists.lengths[row] == 0:
            free_list(state, row)


@kernel
def post(state: SimilarityState, slot: int, term: int, reach: float, method: int) -> int:
    """Post a token of a subscription; return its position on the list of the leaf."""
    lists = state.term_lists
    set_frame(state.params.projection, state.records.floats[slot], state.scratch.frame)
    row = region_list(state, term, leaf_of(state, method))
    is_aware = method < RP or reach >= border_of(state, DEPTH)
    at = append_posting(lists, state.term_pool, row, squared_reach(reach) if is_aware else -1.0)
    write_posting(state, state.term_pool, at, slot, reach, 1.0 if is_aware else -1.0, 0)
    sign(state, term, reach, 1, method)
    return lists.lengths[row] - 1  # type: ignore[no-any-return]


@kernel
def insert_subscriptions(
    state: SimilarityState,
    columns: SimilarityColumns,
    slots: NDArray[np.int32],
    dense: NDArray[np.int32],
    start: int,
    method: int,
) -> int:
    """Insert subscriptions from `start` on; return where room ran out, or their number."""
    records, scratch, lists = state.records, state.scratch, state.term_lists
    for row in range(start, slots.size):
        slot = slots[row]
        if not write_record(state, slot, columns, row, dense):
            return row
        n_posted, near = plan_prefix(state, slot), near_reach(state, slot)
        run = records.heads[slot, RUN]
        set_frame(state.params.projection, records.floats[slot], scratch.frame)
        leaf = leaf_of(state, method)
        needed = room_to_append(lists, region_list(state, STAR, leaf)) if near >= 0.0 else 0
        for i in range(n_posted):
            term = records.run_terms[run + scratch.order[i]]
            needed += room_to_append(lists, region_list(state, term, leaf))
        if lists.state[USED] + needed > state.term_pool.slots.size:
            lists.state[NEEDED] = needed
            free_record(state, slot)
            return row
        for i in range(n_posted):
            at = run + scratch.order[i]
            records.run_places[at] = post(state, slot, records.run_terms[at], scratch.reaches[i], method)
        if near >= 0.0:
            records.heads[slot, NEAR_PLACE] = post(state, slot, STAR, near, method)
    return slots.size


@kernel
def withdraw(state: SimilarityState, slot: int, term: int, place: int, reach: float, method: int) -> None:
    """Remove a posting from its leaf and from all signatures."""
    records, lists = state.records, state.term_lists
    set_frame(state.params.projection, records.floats[slot], state.scratch.frame)
    row = region_list(state, term, leaf_of(state, method))
    moved = remove_posting(lists, state.term_pool, row, place)
    if moved >= 0:
        if term == STAR:
            records.heads[moved, NEAR_PLACE] = place
        else:
            records.run_places[find_in_run(records, moved, term)] = place
    if lists.lengths[row] == 0:
        free_list(state, row)
    sign(state, term, reach, -1, method)


@kernel
def delete_subscriptions(state: SimilarityState, slots: NDArray[np.int32], method: int) -> None:
    """Remove all postings and records of subscriptions."""
    records, scratch = state.records, state.scratch
    for slot in slots:
        n_posted, near = plan_prefix(state, slot), near_reach(state, slot)
        run = records.heads[slot, RUN]
        for i in range(n_posted):
            at = run + scratch.order[i]
            withdraw(state, slot, records.run_terms[at], records.run_places[at], scratch.reaches[i], method)
        if near >= 0.0:
            withdraw(state, slot, STAR, records.heads[slot, NEAR_PLACE], near, method)
        free_record(state, slot)


@kernel
def scan_list(state: SimilarityState, row: int, is_outside: bool, seen: NDArray[np.int64], out: MatchOutput) -> int:
    """Write the new candidates of a list to `found`; return how many there are."""
    scratch, pool, lists, floats = state.scratch, state.term_pool, state.term_lists, state.records.floats
    x, y, z = scratch.point[0], scratch.point[1], scratch.point[2]
    unit = state.params.projection.scale * state.params.projection.scale
    n = 0
    for at in range(lists.starts[row], lists.starts[row] + lists.lengths[row]):
        if is_outside and pool.solo_reaches[at] < 0.0:
            continue
        slot = pool.slots[at]
        dx, dy, dz = floats[slot, 0] - x, floats[slot, 1] - y, floats[slot, 2] - z
        if (dx * dx + dy * dy + dz * dz) * unit <= pool.points[at, 3] and seen[2 + slot] != seen[0]:
            seen[2 + slot] = seen[0]
            scratch.found[n] = slot
            n += 1
    out.work[VISITED] += lists.lengths[row]
    out.work[CANDIDATES] += n
    out.work[VERIFIED] += n
    return n


@kernel
def match_list(
    state: SimilarityState, row: int, is_outside: bool, seen: NDArray[np.int64], out: MatchOutput, total: int
) -> int:
    """Match one list; return how many matches there are in all, or -1 if they do not fit."""
    n_found = scan_list(state, row, is_outside, seen, out)
    return verify(state, n_found, out, total) if total + n_found <= out.slots.size else -1


@kernel
def verify(state: SimilarityState, n_found: int, out: MatchOutput, total: int) -> int:
    """Score candidates and write the matches; return how many there are in all."""
    floats, point = state.records.floats, state.scratch.point
    for i in range(n_found):
        slot = state.scratch.found[i]
        similarity_, _ = shared_text(state, slot)
        delta, tau = floats[slot, DELTA], floats[slot, TAU]
        dx, dy, dz = floats[slot, 0] - point[0], floats[slot, 1] - point[1], floats[slot, 2] - point[2]
        near = fast_near(state.params, dx * dx + dy * dy + dz * dz)
        score = delta * similarity_ + (1.0 - delta) * near
        if not is_clear(score, tau):
            near = exact_near(state.params.projection, state.records, slot, point)
            score = delta * similarity_ + (1.0 - delta) * near
        if score >= tau:
            out.slots[total] = slot
            out.scores[total] = score
            total += 1
    return total


@kernel
def may_hold(state: SimilarityState, node: int, gap: float, n_known: int) -> bool:
    """Return whether an inner region may hold a match, by its signature; over-approximates."""
    for i in range(n_known):
        row = table_get(state.cell_lists, cell_list_key(state.scratch.message_terms[i], node), -1)
        if row >= 0 and gap <= state.term_lists.reaches[row]:
            return True
    return False


@kernel
def match_message(
    state: SimilarityState,
    n_known: int,
    stack: NDArray[np.int64],
    seen: NDArray[np.int64],
    out: MatchOutput,
    total: int,
) -> int:
    """Match one message from the root down; return how many matches there are in all, or -1 if they do not fit."""
    frame, lists = state.scratch.frame, state.term_lists
    root = cell_along(-1.0, side_of(0))
    n_stacked = 0
    for corner in range(8):  # the cubes around the origin
        stack[n_stacked] = cell_key(0, root + (corner & 1), root + (corner >> 1 & 1), root + (corner >> 2))
        n_stacked += 1
    while n_stacked > 0:
        n_stacked -= 1
        key = stack[n_stacked]
        node = table_get(state.cell_table, key, -1)
        if node < 0:
            continue
        level, mask, gap = key >> 60, (1 << 20) - 1, 0.0
        side = side_of(level)
        x, y, z = (key >> 40) & mask, (key >> 20) & mask, key & mask
        for axis, place in enumerate((x, y, z)):
            beyond = gap_along(place, side, frame[axis])
            gap += beyond * beyond
        if level < DEPTH:
            if gap <= 0.0 or may_hold(state, node, gap, n_known):
                half = 1 << 19
                for corner in range(8):
                    cx, cy = 2 * (x - half) + (corner & 1) + half, 2 * (y - half) + (corner >> 1 & 1) + half
                    stack[n_stacked] = cell_key(level + 1, cx, cy, 2 * (z - half) + (corner >> 2) + half)
                    n_stacked += 1
            continue
        for i in range(n_known):
            row = table_get(state.cell_lists, cell_list_key(state.scratch.message_terms[i], node), -1)
            if row >= 0 and (gap <= 0.0 or gap <= lists.reaches[row]):
                total = match_list(state, row, gap > 0.0, seen, out, total)
                if total < 0:
                    return total
    return total


@kernel
def match_terms(state: SimilarityState, n_known: int, seen: NDArray[np.int64], out: MatchOutput, total: int) -> int:
    """Match one message against the lists of its tokens; the result is that of `match_message`."""
    for i in range(n_known):
        row = table_get(state.cell_lists, cell_list_key(state.scratch.message_terms[i], GLOBAL_CELL), -1)
        if row >= 0:
            total = match_list(state, row, False, seen, out, total)
            if total < 0:
                return total
    return total


@kernel(allocates=True)
def match_rows(
    state: SimilarityState,
    batch: SimilarityColumns,
    start: int,
    stop: int,
    first: int,
    seen: NDArray[np.int64],
    out: MatchOutput,
) -> int:
    """Match messages from `start` on; return where it stopped: `stop`, or a message whose matches do not fit.

    `seen` begins with the number of the message and the method; then, by slot, the last message that found it.
    """
    total = out.ends[start - first - 1] if start > first else np.int64(0)
    before, stack = np.empty(4, np.int64), np.empty(8 + 8 * (DEPTH + 1) * 8, np.int64)
    for row in range(start, stop):
        before[:] = out.work
        seen[0] += 1
        n_known = load_message(state, batch, row)
        state.scratch.message_terms[n_known] = STAR
        if seen[1] == SP:
            total = match_terms(state, n_known + 1, seen, out, total)  # type: ignore[arg-type]
        else:
            total = match_message(state, n_known + 1, stack, seen, out, total)  # type: ignore[arg-type]
        clear_message(state, n_known)
        if total < 0:
            out.work[:] = before
            return row
        out.ends[row - first] = total
    return stop


class Workspace(similarity.SimilarityWorkspace):
    """Scratch arrays of one match, with the marks of candidates."""

    def __init__(self, world: SimilarityParams, room: int, method: int) -> None:
        super().__init__(world, room)
        self._seen = np.array([0, method], np.int64)

    def seen_for(self, n_slots: int) -> NDArray[np.int64]:
        """Return the marks, long enough for so many slots."""
        if self._seen.size < 2 + n_slots:
            self._seen = np.append(self._seen, np.zeros(2 + n_slots - self._seen.size, np.int64))
        return self._seen


class Stamp(similarity.SimilarityIndex):
    """One of the paper's methods, behind the interface of the index whose arrays it uses."""

    def __init__(self, scoring: ScoringContext, *, method: int) -> None:
        self._method = method
        super().__init__(scoring)

    def delete(self, slots: NDArray[np.int32]) -> None:
        """Delete the subscriptions of some slots."""
        delete_subscriptions(self._state(), slots, self._method)

    def _insert_slice(self, slots: NDArray[np.int32], part: SimilarityColumns) -> None:
        if not len(self._tables["terms.table"]):
            self._number(np.array([_STAR_ID]), np.zeros(1))
        dense = self._number(part.term_ids, part.idfs)
        self._reserve(lists=(DEPTH + 1) * (dense.size + slots.size), cells=(DEPTH + 1) * slots.size)
        self._need_plan(int(np.diff(part.indptr).max()))
        row = 0
        while row < slots.size:
            self._make_room()
            row = insert_subscriptions(self._state(), part, slots, dense, row, self._method)

    def _new_workspace(self, room: int) -> Workspace:
        return Workspace(self._params, room, self._method)

    def _match_rows(
        self,
        workspace: similarity.SimilarityWorkspace,
        columns: SimilarityColumns,
        row: int,
        stop: int,
        first: int,
        out: MatchOutput,
    ) -> int:
        assert isinstance(workspace, Workspace)
        seen = workspace.seen_for(self._array("records.heads").shape[0])
        return int(match_rows(self._state(workspace), columns, row, stop, first, seen, out))


BASELINES: dict[str, Callable[[ScoringContext], Any]] = {
    "sp": partial(Stamp, method=SP),
    "sp-hi": partial(Stamp, method=HI),
    "sp-rp-hi": partial(Stamp, method=RP),
}
"""Name -> factory, the weakest first."""
