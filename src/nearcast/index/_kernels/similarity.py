"""The loops of `nearcast.index.similarity`: plan a subscription, keep its postings, match a batch of messages.

    plan ──> which terms are posted, how far each reaches          match_rows ──> for each message
    insert_rows, split_term, delete_slots ──> lists and blocks         gather cells, filter lists, verify what is left

Everything works on one nested NamedTuple, `State`; its parts say what they hold.
"""

from __future__ import annotations

from math import asin, cos, floor, inf, nan, pi, radians, sin, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import TableArrays, kernel, mix, table_get, table_put, table_remove
from nearcast.space import metric
from nearcast.text import similarity as text

EARTH_RADIUS_M = metric.EARTH_RADIUS_M
MARGIN = 1e-9
"""Scores this close to tau are decided by the reference arithmetic; bounds give way by as much."""
SLACK = 2.5e-7
"""What rounding to float32 may cost a chord of the frame, twice over."""
LEAST_SIDE = 2.0**-18
"""Cells of the frame are numbered with 20 bits an axis."""
MOST_LEVELS = 8
EVERYWHERE = 0  # the cell of postings that no distance rules out
SPLIT = -2  # home of a term whose postings lie in cells
N_PRINTS = 5  # fingerprints of 12 bits in an int64
MANY = 1 << 60  # more terms than fingerprints

# Places in the state of lists and blocks.
USED, LONGEST, NEEDED, FREE_LIST, N_LISTS, BLOCKS = 0, 1, 2, 3, 4, 5
# Columns of a record.
DELTA, TAU, WEIGHT = 5, 6, 7
# Columns of a head.
RUN, LENGTH, NEAR_PLACE = 0, 1, 2
# Places in the counters.
VISITED, CANDIDATES, VERIFIED, MATCHED = 0, 1, 2, 3

containment, overlap, jaccard = kernel(text.containment), kernel(text.overlap), kernel(text.jaccard)
dice, cosine = kernel(text.dice), kernel(text.cosine)
haversine = kernel(metric.haversine)


class World(NamedTuple):
    """What scores mean, as numbers; constant for the life of an index."""

    on_sphere: bool
    text: int
    """Place of the text function in `TEXT_SIMILARITIES`."""
    max_distance: float
    near_a_unit: float
    """Nearness lost along a unit of distance: of the plane, or of angle."""
    x0: float
    y0: float
    scale: float
    """The frame of the plane is `(x - x0, y - y0) * scale`, within [-1, 1]; that of the sphere is unit vectors."""
    is_fine: bool
    """Whether a chord in float64 gives nearness to better than the margin."""
    side: float
    """Side of a cell of level 0, in the frame; each level halves it."""
    levels: int
    near_spread: float
    """A posting by nearness lies at the finest level whose side, times this, covers its reach."""
    term_spread: float
    """The same of a posting by term."""
    term_levels: int
    """Levels of postings by term: hash probes cost more than a few postings that do not reach."""
    by_reach: bool
    by_cells: bool
    by_others: bool
    """The filters that are on."""


class Records(NamedTuple):
    """All that is known of a subscription, by slot."""

    floats: NDArray[np.float64]
    """float64 (n_slots, 8): point (unit vector, or x, y, 0), x, y, delta, tau, weight of all terms; a cache line."""
    heads: NDArray[np.int32]
    """int32 (n_slots, 4): start of its run or -1, number of terms, place on its list of nearness or -1, 0."""
    run_terms: NDArray[np.int32]
    """int32 (n,): dense terms of each run, by ascending term number."""
    run_places: NDArray[np.int32]
    """int32 (n,): place of the posting on its list."""
    run_state: NDArray[np.int64]
    """int64 (40,): blocks, as in `Lists`."""


class Terms(NamedTuple):
    """The terms of all subscriptions, by dense number."""

    table: TableArrays
    """Term number -> dense number."""
    numbers: NDArray[np.int64]
    idfs: NDArray[np.float64]
    prints: NDArray[np.int32]
    """int32 (n_terms,): fingerprint in 1..4095."""
    homes: NDArray[np.int32]
    """int32 (n_terms,): its only list, -1 if it has none, SPLIT if it has one a cell."""
    marks: NDArray[np.uint8]
    """uint8 (n_terms,): 1 for the terms of the message at hand."""


class Lists(NamedTuple):
    """Lists in blocks of 1, 2, 4, ... postings of a pool."""

    starts: NDArray[np.int32]
    """int32 (n_lists,): first posting; the next free list if free."""
    lengths: NDArray[np.int32]
    classes: NDArray[np.int8]
    """int8 (n_lists,): the block holds 2**class postings; -1 without a block."""
    reaches: NDArray[np.float32]
    """float32 (n_lists,): the greatest squared reach there ever was: the region's least nearness."""
    owners: NDArray[np.int32]
    """int32 (n_lists,): dense term."""
    cells: NDArray[np.int32]
    """int32 (n_lists,): cell, or -1 for the only list of a term."""
    state: NDArray[np.int64]
    """int64 (40,): postings handed out, longest list ever, room that was missing, first free list, lists handed out,
    first free block of each class."""


class Pool(NamedTuple):
    """Postings."""

    points: NDArray[np.float32]
    """float32 (n, 4): point in the frame, squared reach; no rows in the pool of nearness."""
    solos: NDArray[np.float32]
    """float32 (n,): squared reach if no other term is shared, below 0 if that never suffices; as many as points."""
    others: NDArray[np.int64]
    """int64 (n,): fingerprints of the other terms."""
    slots: NDArray[np.int32]
    """int32 (n,): the subscription; the next free block in the first of a free one."""
    exact: NDArray[np.float64]
    """float64 (n, 6): point as in a record, its squared reach, delta, tau; no rows in the pool of terms."""


class Scratch(NamedTuple):
    """Room for one message or one subscription."""

    point: NDArray[np.float64]
    """float64 (8,): point as in a record, x, y, weight, number of terms, nothing of meaning."""
    frame: NDArray[np.float64]
    frame32: NDArray[np.float32]
    hits: NDArray[np.uint8]
    """uint8 (4096,): 1 for the fingerprints of the message."""
    known: NDArray[np.int32]
    """int32 (n_message_terms,): dense terms of the message."""
    cells: NDArray[np.int32]
    cell_gaps: NDArray[np.float32]
    """Cells within reach and the squared distance to their nearest point."""
    term_cells: NDArray[np.int32]
    term_gaps: NDArray[np.float32]
    """Those among them that may hold postings by term."""
    found: NDArray[np.int32]
    """int32 (at least the longest list,): slots of candidates."""
    found_terms: NDArray[np.int32]
    """int32 (as many,): the term by which each was found."""
    found_runs: NDArray[np.int32]
    """int32 (as many,): where its terms stand."""
    order: NDArray[np.int32]
    reaches: NDArray[np.float64]
    solos: NDArray[np.float64]
    rows: NDArray[np.int32]
    """The plan of a subscription, by position of its terms in falling weight; `rows` are lists."""
    queue: NDArray[np.int32]
    """int32 (n,): terms whose list grew long."""


class State(NamedTuple):
    """Everything."""

    world: World
    records: Records
    terms: Terms
    cell_table: TableArrays
    """Level and place of a cell -> its number."""
    level_cells: NDArray[np.int64]
    """int64 (8,): cells of each level."""
    spots: TableArrays
    """Dense term and cell -> list."""
    near_lists: Lists
    """By cell: what may match by nearness alone."""
    near_pool: Pool
    term_lists: Lists
    term_pool: Pool
    scratch: Scratch


class Columns(NamedTuple):
    """A slate or a batch: points and terms."""

    xs: NDArray[np.float64]
    ys: NDArray[np.float64]
    indptr: NDArray[np.int64]
    term_ids: NDArray[np.int64]
    idfs: NDArray[np.float64]
    deltas: NDArray[np.float64]
    taus: NDArray[np.float64]
    """The last two are empty in a batch."""


class Output(NamedTuple):
    """Where matches go."""

    slots: NDArray[np.int32]
    scores: NDArray[np.float64]
    ends: NDArray[np.int64]
    """int64 (n_rows,): where the matches of each row end."""
    work: NDArray[np.int64]
    """int64 (4,): visited, candidates, verified, matched."""


# ---- meaning ----


@kernel
def text_of(
    which: int, shared: int, shared_weight: float, n: int, weight: float, message: tuple[int, float]
) -> float:
    """Return the text similarity, by the place of the function in `TEXT_SIMILARITIES`."""
    if which == 0:
        return containment(shared, shared_weight, n, weight, message[0], message[1])
    if which == 1:
        return overlap(shared, shared_weight, n, weight, message[0], message[1])
    if which == 2:
        return jaccard(shared, shared_weight, n, weight, message[0], message[1])
    if which == 3:
        return dice(shared, shared_weight, n, weight, message[0], message[1])
    return cosine(shared, shared_weight, n, weight, message[0], message[1])


@kernel
def upper_bound_text(which: int, shared: int, shared_weight: float, n: int, weight: float) -> float:
    """Return the most text can bring if a message shares these terms at most; never underestimates.

    The best message holds nothing else: all five functions fall with what the message holds beside.
    """
    return text_of(which, shared, shared_weight, n, weight, (shared, shared_weight))


@kernel
def arc(squared_chord: float) -> float:
    """Return the angle of a chord of the unit circle, to 1e-15 of its length."""
    h = squared_chord * 0.25
    if h > 0.01:
        return 2.0 * asin(min(1.0, sqrt(h)))
    tail = h * (105.0 / 3456.0 + h * (945.0 / 42240.0 + h * (10395.0 / 599040.0)))
    return sqrt(squared_chord) * (1.0 + h * (1.0 / 6.0 + h * (3.0 / 40.0 + h * (15.0 / 336.0 + tail))))


@kernel
def quick_near(world: World, squared: float) -> float:
    """Return nearness of the squared distance of two points, to well within the margin.

    NaN where the chord is not good enough: close to the antipode, and where a metre is far.
    """
    if not world.on_sphere:
        return max(0.0, 1.0 - sqrt(squared) * world.near_a_unit)
    if world.is_fine and squared < 3.9:
        return max(0.0, 1.0 - arc(squared) * world.near_a_unit)
    return nan


@kernel
def true_near(world: World, records: Records, slot: int, point: NDArray[np.float64]) -> float:
    """Return nearness by the metric of the space."""
    x, y = records.floats[slot, 3], records.floats[slot, 4]
    if world.on_sphere:
        distance = haversine(x, y, point[3], point[4])
    else:
        dx, dy = x - point[3], y - point[4]
        distance = sqrt(dx * dx + dy * dy)
    return max(0.0, 1.0 - distance / world.max_distance)


@kernel
def is_clear(score: float, tau: float) -> bool:
    """Say whether rounding cannot change the decision; NaN never is."""
    return abs(score - tau) > MARGIN


@kernel
def set_point(world: World, x: float, y: float, out: NDArray[np.float64]) -> None:
    """Write the point in which distances are chords: a unit vector, or the plane itself."""
    if world.on_sphere:
        lon, lat = radians(x), radians(y)
        out[0], out[1], out[2] = cos(lat) * cos(lon), cos(lat) * sin(lon), sin(lat)
    else:
        out[0], out[1], out[2] = x, y, 0.0
    out[3], out[4] = x, y


@kernel
def to_frame(world: World, point: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Write the point in the frame of cells and postings."""
    if world.on_sphere:
        out[0], out[1], out[2] = point[0], point[1], point[2]
    else:
        out[0], out[1], out[2] = (point[0] - world.x0) * world.scale, (point[1] - world.y0) * world.scale, 0.0


@kernel
def reach_of(world: World, missing: float, share: float) -> float:
    """Return how far in the frame a message may be if nearness has to bring `missing` and counts with `share`.

    Never underestimates; inf if distance does not matter, -1 if nearness cannot bring it.
    """
    missing -= MARGIN
    if missing <= 0.0:
        return inf
    if missing > share:
        return -1.0
    distance = (1.0 - missing / share) * world.max_distance
    if world.on_sphere:
        return 2.0 * sin(min(distance / EARTH_RADIUS_M, pi) * 0.5) + SLACK
    return distance * world.scale + SLACK


@kernel
def squared_reach(reach: float) -> float:
    """Return the square as postings hold it, with room for rounding; -1 stays below any square."""
    return min(reach * reach * (1.0 + 1e-6), 1e30) if reach >= 0.0 else -1.0


# ---- blocks and lists ----


@kernel
def class_of(size: int) -> int:
    """Return the smallest class whose blocks hold `size`."""
    found = 0
    while (1 << found) < size:
        found += 1
    return found


@kernel
def take_block(state: NDArray[np.int64], links: NDArray[np.int32], size_class: int) -> int:
    """Return a block, a free one first; -1 if there is no room."""
    block = int(state[BLOCKS + size_class])
    if block >= 0:
        state[BLOCKS + size_class] = links[block]
        return block
    block = int(state[USED])
    if block + (1 << size_class) > links.size:
        return -1
    state[USED] += 1 << size_class
    return block


@kernel
def give_block(state: NDArray[np.int64], links: NDArray[np.int32], size_class: int, block: int) -> None:
    """Put a block on the free list of its class."""
    links[block] = state[BLOCKS + size_class]
    state[BLOCKS + size_class] = block


@kernel
def copy_posting(source: Pool, at: int, target: Pool, to: int) -> None:
    """Copy one posting."""
    target.others[to] = source.others[at]
    target.slots[to] = source.slots[at]
    if target.exact.size > 0:
        for column in range(6):
            target.exact[to, column] = source.exact[at, column]
    else:
        target.solos[to] = source.solos[at]
        for column in range(4):
            target.points[to, column] = source.points[at, column]


@kernel
def move_list(lists: Lists, pool: Pool, row: int, size_class: int) -> bool:
    """Move a list to a block of another class; False, with nothing changed, if there is no room."""
    block = take_block(lists.state, pool.slots, size_class)
    if block < 0:
        return False
    start = lists.starts[row]
    for i in range(lists.lengths[row]):
        copy_posting(pool, start + i, pool, block + i)
    if lists.classes[row] >= 0:
        give_block(lists.state, pool.slots, int(lists.classes[row]), start)
    lists.starts[row] = block
    lists.classes[row] = size_class
    return True


@kernel
def room_to_append(lists: Lists, row: int) -> int:
    """Return how many fresh postings one more entry of a list may take."""
    size_class = int(lists.classes[row])
    if size_class < 0:
        return 1
    return 2 << size_class if lists.lengths[row] == 1 << size_class else 0


@kernel
def claim(lists: Lists, pool: Pool, row: int, reach: float) -> int:
    """Add an entry to a list for which there is room; return where its posting goes."""
    length, size_class = int(lists.lengths[row]), int(lists.classes[row])
    if size_class < 0 or length == 1 << size_class:
        move_list(lists, pool, row, size_class + 1)
    lists.lengths[row] = length + 1
    lists.reaches[row] = max(lists.reaches[row], reach)
    lists.state[LONGEST] = max(lists.state[LONGEST], length + 1)
    return int(lists.starts[row]) + length


@kernel
def remove_at(lists: Lists, pool: Pool, row: int, place: int) -> int:
    """Remove the entry at a place; return the slot of the one that moved there, or -1."""
    start, last = lists.starts[row], lists.lengths[row] - 1
    moved = -1
    if place != last:
        copy_posting(pool, start + last, pool, start + place)
        moved = pool.slots[start + place]
    lists.lengths[row] = last
    size_class = int(lists.classes[row])
    if last == 0:
        give_block(lists.state, pool.slots, size_class, start)
        lists.classes[row] = -1
        lists.reaches[row] = 0.0
    elif size_class >= 2 and last <= 1 << (size_class - 2):
        move_list(lists, pool, row, size_class - 1)
    return moved


@kernel
def new_list(lists: Lists, term: int, cell: int) -> int:
    """Return an empty list; there is room for one."""
    row = int(lists.state[FREE_LIST])
    if row >= 0:
        lists.state[FREE_LIST] = lists.starts[row]
    else:
        row = int(lists.state[N_LISTS])
        lists.state[N_LISTS] += 1
    lists.lengths[row] = 0
    lists.classes[row] = -1
    lists.reaches[row] = 0.0
    lists.owners[row] = term
    lists.cells[row] = cell
    return row


@kernel
def spot_key(term: int, cell: int) -> int:
    """Return the key of the list of a term in a cell."""
    return (int(term) << 32) | int(cell)


@kernel
def drop_list(state: State, row: int) -> None:
    """Forget a list of a term that is empty."""
    lists, term = state.term_lists, state.term_lists.owners[row]
    if lists.cells[row] < 0:
        state.terms.homes[term] = -1
    else:
        table_remove(state.spots, spot_key(term, lists.cells[row]))
    lists.starts[row] = lists.state[FREE_LIST]
    lists.state[FREE_LIST] = row


# ---- plans ----


@kernel
def plan(state: State, slot: int) -> int:
    """Write reaches of the prefix of a subscription, terms by falling weight; return its length (STAMP, III and V).

    A message whose first shared term is at position i shares nothing before it: its reach follows from the weight of
    what is left. `solos` is the reach if it shares nothing else.
    """
    world, records, scratch = state.world, state.records, state.scratch
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
        most = upper_bound_text(world.text, n - i, left, n, weight)
        scratch.reaches[i] = reach_of(world, tau - delta * most, 1.0 - delta)
        alone = upper_bound_text(world.text, 1, own, n, weight)
        scratch.solos[i] = reach_of(world, tau - delta * alone, 1.0 - delta)
    length = 0
    while length < n and scratch.reaches[length] >= 0.0:
        length += 1
    return length


@kernel
def near_reach(state: State, slot: int) -> float:
    """Return the reach by nearness alone, that of the paper's virtual token; -1 if a match needs a term."""
    floats = state.records.floats
    return reach_of(state.world, floats[slot, TAU], 1.0 - floats[slot, DELTA])


@kernel
def fingerprints(state: State, slot: int, skip: int) -> int:
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
def cell_of(state: State, slot: int, reach: float, spread: float, levels: int) -> int:
    """Return the cell of a posting; a new one, for which there is room, if need be."""
    world, frame = state.world, state.scratch.frame
    if reach == inf or not world.by_cells:
        return EVERYWHERE
    level, side = 0, world.side
    while level + 1 < levels and reach <= spread * side * 0.5:
        side *= 0.5
        level += 1
    to_frame(world, state.records.floats[slot], frame)
    x, y, z = place_in(frame[0], side), place_in(frame[1], side), place_in(frame[2], side)
    key = cell_key(level, x, y, z)
    cell = table_get(state.cell_table, key, -1)
    if cell < 0:
        cell = int(state.cell_table.n_taken[0]) + 1
        table_put(state.cell_table, key, cell)
        state.level_cells[level] += 1
    return cell


@kernel
def near_cell(state: State, slot: int, reach: float) -> int:
    """Return the cell of a posting by nearness; a new one, for which there is room, if need be."""
    return cell_of(state, slot, reach, state.world.near_spread, state.world.levels)


@kernel
def list_of(state: State, slot: int, term: int, reach: float) -> int:
    """Return the list on which a posting of a term belongs; a new one, for which there is room, if need be."""
    home = int(state.terms.homes[term])
    if home >= 0:
        return home
    if home != SPLIT:
        row = new_list(state.term_lists, term, -1)
        state.terms.homes[term] = row
        return row
    cell = cell_of(state, slot, reach, state.world.term_spread, state.world.term_levels)
    key = spot_key(term, cell)
    row = table_get(state.spots, key, -1)
    if row < 0:
        row = new_list(state.term_lists, term, cell)
        table_put(state.spots, key, row)
    return row


# ---- changes ----


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
            terms.homes[dense] = -1
        out[i] = dense


@kernel
def write_posting(state: State, pool: Pool, at: int, slot: int, reach: float, solo: float, others: int) -> None:
    """Write a posting in full."""
    floats, frame = state.records.floats, state.scratch.frame
    pool.others[at] = others
    pool.slots[at] = slot
    if pool.exact.size > 0:
        unit = state.world.scale
        for axis in range(3):
            pool.exact[at, axis] = floats[slot, axis]
        pool.exact[at, 3] = squared_reach(reach) / (unit * unit)
        pool.exact[at, 4] = floats[slot, DELTA]
        pool.exact[at, 5] = floats[slot, TAU]
    else:
        to_frame(state.world, floats[slot], frame)
        for axis in range(3):
            pool.points[at, axis] = frame[axis]
        pool.points[at, 3] = squared_reach(reach)
        pool.solos[at] = squared_reach(solo)


@kernel
def write_record(state: State, slot: int, columns: Columns, row: int, dense: NDArray[np.int32]) -> bool:
    """Write what is known of a subscription; False if there is no room for its terms."""
    records = state.records
    first, stop = columns.indptr[row], columns.indptr[row + 1]
    run = take_block(records.run_state, records.run_terms, class_of(stop - first))
    if run < 0:
        records.run_state[NEEDED] = 1 << class_of(stop - first)
        return False
    set_point(state.world, columns.xs[row], columns.ys[row], records.floats[slot])
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
def forget_record(state: State, slot: int) -> None:
    """Give back the run of a subscription."""
    records = state.records
    n = records.heads[slot, LENGTH]
    give_block(records.run_state, records.run_terms, class_of(n), records.heads[slot, RUN])
    records.heads[slot, RUN] = -1


@kernel
def has_room(state: State, slot: int, n_posted: int, near: float) -> bool:
    """Find the lists of a planned subscription; say whether the pools have room for it."""
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
        cell = near_cell(state, slot, near)
        needed = room_to_append(state.near_lists, cell)
        if state.near_lists.state[USED] + needed > state.near_pool.slots.size:
            state.near_lists.state[NEEDED] = needed
            return False
    return True


@kernel
def insert_rows(
    state: State, columns: Columns, slots: NDArray[np.int32], dense: NDArray[np.int32], start: int, split_at: int
) -> tuple[int, int]:
    """Take in subscriptions from `start` on; return where it stopped for want of room, and how many terms to split.

    There is room for the cells and lists of all. `NEEDED` of what had no room says how much.
    """
    records, scratch, terms = state.records, state.scratch, state.terms
    n_queued = 0
    for row in range(start, slots.size):
        slot = slots[row]
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
            if terms.homes[term] == listed and state.term_lists.lengths[listed] == split_at:
                scratch.queue[n_queued] = term
                n_queued += 1
        if near >= 0.0:
            cell = near_cell(state, slot, near)
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
def position_of(state: State, slot: int, at: int) -> int:
    """Return the position in a plan of the term that stands at a place of the runs."""
    wanted, position = at - state.records.heads[slot, RUN], 0
    while state.scratch.order[position] != wanted:
        position += 1
    return position


@kernel
def split_term(state: State, term: int) -> None:
    """Spread the only list of a term over cells; there is room for four times its length."""
    lists, pool = state.term_lists, state.term_pool
    home = state.terms.homes[term]
    start, length = lists.starts[home], lists.lengths[home]
    state.terms.homes[term] = SPLIT
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
def delete_slots(state: State, slots: NDArray[np.int32]) -> None:
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


# ---- matching ----


@kernel
def enter(state: State, batch: Columns, row: int) -> int:
    """Set up a message; return how many of its terms anybody knows."""
    scratch, terms = state.scratch, state.terms
    set_point(state.world, batch.xs[row], batch.ys[row], scratch.point)
    to_frame(state.world, scratch.point, scratch.frame)
    weight, n_known = 0.0, 0
    for axis in range(3):
        scratch.frame32[axis] = scratch.frame[axis]
    for i in range(batch.indptr[row], batch.indptr[row + 1]):
        weight += batch.idfs[i]
        dense = table_get(terms.table, batch.term_ids[i], -1)
        if dense >= 0:
            scratch.known[n_known] = dense
            n_known += 1
            terms.marks[dense] = 1
            scratch.hits[terms.prints[dense]] = 1
    scratch.point[5] = weight
    scratch.point[6] = batch.indptr[row + 1] - batch.indptr[row]
    return n_known


@kernel
def leave(state: State, n_known: int) -> None:
    """Take the message out again."""
    for i in range(n_known):
        dense = state.scratch.known[i]
        state.terms.marks[dense] = 0
        state.scratch.hits[state.terms.prints[dense]] = 0


@kernel
def gap_along(place: int, side: float, value: float) -> float:
    """Return how far a value lies outside a cell, along one axis."""
    low = (place - (1 << 19)) * side
    return max(low - value, 0.0, value - (low + side))


@kernel
def meets_sphere(world: World, x: int, y: int, z: int, side: float) -> bool:
    """Say whether a cell may hold a unit vector; on the plane every cell may hold a point."""
    if not world.on_sphere:
        return True
    nearest, farthest = 0.0, 0.0
    for place in (x, y, z):
        low = (place - (1 << 19)) * side
        high = low + side
        least = max(low, 0.0, -high)
        most = max(abs(low), abs(high))
        nearest += least * least
        farthest += most * most
    return nearest <= 1.0 + 1e-9 and farthest >= 1.0 - 1e-9


@kernel
def gather_cells(state: State) -> tuple[int, int]:
    """Write the cells from which a posting may reach the message, the one for everywhere first.

    Return how many for postings by nearness, and how many for those by term.
    """
    world, scratch, frame = state.world, state.scratch, state.scratch.frame
    scratch.cells[0] = EVERYWHERE
    scratch.cell_gaps[0] = 0.0
    scratch.term_cells[0] = EVERYWHERE
    scratch.term_gaps[0] = 0.0
    n, n_term = 1, 1
    side = world.side
    for level in range(world.levels):
        if state.level_cells[level] > 0:
            reach = max(world.near_spread, world.term_spread) * side
            term_reach = world.term_spread * side if level < world.term_levels else -1.0
            x0, x1 = place_in(frame[0] - reach, side), place_in(frame[0] + reach, side)
            y0, y1 = place_in(frame[1] - reach, side), place_in(frame[1] + reach, side)
            depth = reach if world.on_sphere else 0.0
            z0, z1 = place_in(frame[2] - depth, side), place_in(frame[2] + depth, side)
            for x in range(x0, x1 + 1):
                gap_x = gap_along(x, side, frame[0])
                for y in range(y0, y1 + 1):
                    gap_y = gap_along(y, side, frame[1])
                    for z in range(z0, z1 + 1):
                        gap_z = gap_along(z, side, frame[2])
                        gap = gap_x * gap_x + gap_y * gap_y + gap_z * gap_z
                        if gap <= reach * reach and meets_sphere(world, x, y, z, side):
                            key = cell_key(level, x, y, z)
                            cell = table_get(state.cell_table, key, -1)
                            if cell >= 0:
                                scratch.cells[n] = cell
                                scratch.cell_gaps[n] = gap
                                n += 1
                                if gap <= term_reach * abs(term_reach):
                                    scratch.term_cells[n_term] = cell
                                    scratch.term_gaps[n_term] = gap
                                    n_term += 1
        side *= 0.5
    return n, n_term


@kernel
def shares_other(hits: NDArray[np.uint8], others: int) -> bool:
    """Say whether the message may hold one of some terms; never denies one it holds."""
    found = hits[others & 4095] | hits[(others >> 12) & 4095] | hits[(others >> 24) & 4095]
    return (found | hits[(others >> 36) & 4095] | hits[(others >> 48) & 4095]) != 0 or others >= MANY


@kernel
def filter_list(world: World, scratch: Scratch, pool: Pool, start: int, length: int, n: int) -> int:
    """Add the postings of a list that no bound rules out to the `n` in `found`; return how many there are then."""
    px, py, pz = scratch.frame32[0], scratch.frame32[1], scratch.frame32[2]
    points, found, hits = pool.points, scratch.found, scratch.hits
    for at in range(start, start + length):
        dx, dy, dz = points[at, 0] - px, points[at, 1] - py, points[at, 2] - pz
        squared = dx * dx + dy * dy + dz * dz
        if world.by_reach and squared > points[at, 3]:
            continue
        if world.by_others and squared > pool.solos[at] and not shares_other(hits, pool.others[at]):
            continue
        found[n] = pool.slots[at]
        n += 1
    return n


@kernel
def scan_near(state: State, start: int, length: int, out: Output, total: int) -> int:
    """Match one list of nearness, for which there is room; return how many matches there are in all."""
    world, point, hits = state.world, state.scratch.point, state.scratch.hits
    exact, pool = state.near_pool.exact, state.near_pool
    x, y, z = point[0], point[1], point[2]
    n_candidates = 0
    for at in range(start, start + length):
        dx, dy, dz = exact[at, 0] - x, exact[at, 1] - y, exact[at, 2] - z
        squared = dx * dx + dy * dy + dz * dz
        if world.by_reach and squared > exact[at, 3]:
            continue
        n_candidates += 1
        slot, delta, tau = pool.slots[at], exact[at, 4], exact[at, 5]
        near = quick_near(world, squared)
        score = (1.0 - delta) * near
        if not is_clear(score, tau):
            near = true_near(world, state.records, slot, point)
            score = (1.0 - delta) * near
        if score >= tau:
            if shares_other(hits, pool.others[at]):
                score = delta * text_shared(state, slot)[0] + (1.0 - delta) * near
            out.slots[total] = slot
            out.scores[total] = score
            total += 1
    out.work[VISITED] += length
    out.work[CANDIDATES] += n_candidates
    out.work[VERIFIED] += n_candidates
    return total


@kernel
def text_shared(state: State, slot: int) -> tuple[float, int]:
    """Return the text similarity of a subscription and the message, and the first term they share, or -1."""
    records, terms = state.records, state.terms
    start, n = records.heads[slot, RUN], records.heads[slot, LENGTH]
    shared, shared_weight, greatest, first = 0, 0.0, -1.0, -1
    for at in range(start, start + n):
        term = records.run_terms[at]
        if terms.marks[term] != 0:
            shared += 1
            weight = terms.idfs[term]
            shared_weight += weight
            if weight > greatest:
                greatest, first = weight, term
    message = (int(state.scratch.point[6]), state.scratch.point[5])
    score = text_of(state.world.text, shared, shared_weight, n, records.floats[slot, WEIGHT], message)
    return score, first


@kernel
def fetch(state: State, n_found: int) -> float:
    """Touch what `verify` will read: the misses of a loop that decides nothing overlap, those of `verify` would not.

    Measured at 2 M subscriptions: 0.12 ms a message for all lists of terms, against 0.18 without.
    """
    records, found, runs = state.records, state.scratch.found, state.scratch.found_runs
    touched = 0.0
    for i in range(n_found):
        runs[i] = records.heads[found[i], RUN]
        touched += records.floats[found[i], 0]
    for i in range(n_found):
        touched += records.run_terms[runs[i]]
    return touched


@kernel
def verify(state: State, n_found: int, out: Output, total: int) -> int:
    """Score candidates by term and write the matches; return how many there are in all, or -1 if they do not fit.

    A match is reported by its first shared term, and not at all if nearness alone suffices: that list reports it.
    """
    world, floats, point = state.world, state.records.floats, state.scratch.point
    if total + n_found > out.slots.size:
        return -1
    state.scratch.point[7] = fetch(state, n_found)  # kept, so that no compiler drops it
    verified = 0
    for i in range(n_found):
        slot = state.scratch.found[i]
        similarity, first = text_shared(state, slot)
        if first != state.scratch.found_terms[i]:
            continue
        verified += 1
        delta, tau = floats[slot, DELTA], floats[slot, TAU]
        dx, dy, dz = floats[slot, 0] - point[0], floats[slot, 1] - point[1], floats[slot, 2] - point[2]
        near = quick_near(world, dx * dx + dy * dy + dz * dz)
        score = delta * similarity + (1.0 - delta) * near
        if not is_clear(score, tau) or not is_clear((1.0 - delta) * near, tau):
            near = true_near(world, state.records, slot, point)
            score = delta * similarity + (1.0 - delta) * near
        if score >= tau and (1.0 - delta) * near < tau:
            out.slots[total] = slot
            out.scores[total] = score
            total += 1
    out.work[VERIFIED] += verified
    return total


@kernel
def match_near(state: State, n_cells: int, out: Output, total: int) -> int:
    """Match what may match by nearness alone; return how many matches there are in all, or -1 if they do not fit."""
    lists, scratch = state.near_lists, state.scratch
    for i in range(n_cells):
        cell = scratch.cells[i]
        length = lists.lengths[cell]
        if length == 0 or (state.world.by_reach and scratch.cell_gaps[i] > lists.reaches[cell]):
            continue
        if total + length > out.slots.size:
            return -1
        total = scan_near(state, lists.starts[cell], length, out, total)
    return total


@kernel
def add_list(state: State, row: int, n_found: int, out: Output, total: int) -> tuple[int, int]:
    """Add the candidates of a list of a term, with those before verified if there is no room.

    Return how many wait in `found`, and how many matches there are in all, or -1 if they do not fit.
    """
    lists, scratch = state.term_lists, state.scratch
    length = int(lists.lengths[row])
    if n_found + length > scratch.found.size:
        total = verify(state, n_found, out, total)
        n_found = 0
    n = filter_list(state.world, scratch, state.term_pool, lists.starts[row], length, n_found)
    for i in range(n_found, n):
        scratch.found_terms[i] = lists.owners[row]
    out.work[VISITED] += length
    out.work[CANDIDATES] += n - n_found
    return n, total


@kernel
def match_terms(state: State, n_known: int, n_cells: int, out: Output, total: int) -> int:
    """Match the lists of all terms; return how many matches there are in all, or -1 if they do not fit."""
    lists, scratch = state.term_lists, state.scratch
    n_found = 0
    for i in range(n_known):
        term = scratch.known[i]
        home = state.terms.homes[term]
        if home >= 0:
            n_found, total = add_list(state, home, n_found, out, total)
        elif home == SPLIT:
            for j in range(n_cells):
                row = table_get(state.spots, spot_key(term, scratch.term_cells[j]), -1)
                if row >= 0 and (scratch.term_gaps[j] <= lists.reaches[row] or not state.world.by_reach):
                    n_found, total = add_list(state, row, n_found, out, total)
                    if total < 0:
                        return total
        if total < 0:
            return total
    return verify(state, n_found, out, total)


@kernel
def match_rows(state: State, batch: Columns, start: int, stop: int, first: int, out: Output) -> int:
    """Match messages from `start` on; return where it stopped: `stop`, or a message whose matches do not fit.

    `ends[row - first]` tells where the matches of a row end.
    """
    total = int(out.ends[start - first - 1]) if start > first else 0
    before = np.empty(4, np.int64)
    for row in range(start, stop):
        before[:] = out.work
        n_known = enter(state, batch, row)
        n_cells, n_term_cells = gather_cells(state)
        total = match_near(state, n_cells, out, total)
        if total >= 0:
            total = match_terms(state, n_known, n_term_cells, out, total)
        leave(state, n_known)
        if total < 0:
            out.work[:] = before
            return row
        out.ends[row - first] = total
    return stop
