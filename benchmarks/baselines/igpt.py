"""How fast is the index of the paper? IGPT, individual and group pruning of Skype (section 5.3, algorithm 1).

    quadtree ── leaf ── (term, leaf) ── table ──> list [ group of small alpha | ... | group of great alpha ]
                 │                                       by rising bar: a bar, and of it and all behind it in its
                 └ least nearness any needs              group the greatest weight and alpha; slot

For every message every leaf is visited. One that is too far for all its subscriptions is skipped (lemma 6); else the
terms of the message, the rarest first, are looked up there. A group is skipped, or left early, by the statistics of
its postings (theorems 3 and 4), which are those of a whole group at its first one. What is left is held against the
prefix (theorem 1) with inner and outer spatial bound, and the bound for unseen terms (theorem 2).

Leaves hold 1,000 subscriptions and lists are parted into ten groups, as in the paper's experiments; groups end at
quantiles of alpha among those who came first. A leaf of the deepest level holds any number.

Kinder than the paper: the outer bound of the sphere takes no trigonometric function; weights stand in the postings,
only the inner bound is the subscription's; sets of candidates are stamps in an array, and memory is asked for in
time. Else than the paper: a subscription is decided on when it is first met, and scored anew when verified, since
what skipping cuts short is no score; where the paper divides by 1 - alpha or alpha, it is by no less than 1 / 1024,
which loosens a bound; bars are those of the buffers (theta), as they are what a message has to reach.

Cost: a lookup for each leaf and term of a message, and the postings that no group bound rules out. A bar that moves
takes time in the length of its groups.
"""

from __future__ import annotations

from math import asin, cos, pi, radians, sin, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.baselines.topk import (
    LEAST,
    VISITED,
    Columns,
    Ground,
    Output,
    Rival,
    Scratch,
    bar_of_bound,
    by_falling_idf,
    enter,
    look_up,
    verify,
)
from nearcast._jit import (
    Arena,
    Table,
    TableArrays,
    kernel,
    prefetch,
    table_get,
    table_put,
    table_remove,
)
from nearcast.model import Meaning
from nearcast.model._kernels.blocks import NEEDED, USED, give_block, take_block
from nearcast.model._kernels.profiles import ALPHA, LENGTH, RUN, X, Y
from nearcast.space import metric
from nearcast.space.metric import EARTH_RADIUS_M

CAPACITY = 1000
"""Subscriptions of a leaf."""
DEEPEST = 20
GROUPS = 10
_TOGETHER = 16  # leaves whose lists are looked up at a time
_SLACK = 1e-13  # of a chord, for rounding
_BEND, _BEND_MORE = 1.0 / 24.0, 3.0 / 640.0

# Columns of a posting: its bar (kScore*), the greatest weight and alpha (alpha*) of it and all behind it in its
# group; its own alpha, the weight of its term, the sum of the later ones, the greatest with and without its own.
BAR, MOST_WEIGHT, MOST_ALPHA, OWN_ALPHA, OWN, REST, GREATEST, GREATEST_LATER = range(8)
# Columns of a subscription: nearness lost on the way to the border of its leaf, and the least it needs (lambda_S).
INNER, NEEDS = 0, 1
# Columns of a leaf on the sphere: sines and cosines of half the angles xmin, ymin, xmax, ymax, and the least cosine
# of a latitude.
SINE, COSINE, LEAST_COSINE = 0, 4, 8
# Places in the counts.
N_LISTS, FREE_LIST, N_LEAVES, N_NODES, NEED_LISTS, NEED_LEAVES = range(6)

nearest = kernel(metric.euclidean_nearest)


class Leaves(NamedTuple):
    """The leaves of the quadtree."""

    boxes: NDArray[np.float64]
    """float64 (n, 4): xmin, ymin, xmax, ymax."""
    angles: NDArray[np.float64]
    """float64 (n, 9): see above; on the plane, nothing."""
    needs: NDArray[np.float64]
    """float64 (n,): the least nearness that any of its subscriptions needs."""
    heads: NDArray[np.int32]
    """int32 (n, 5): first member, how many, class of their block, node, depth."""
    stale: NDArray[np.bool_]
    """bool (n,): whether the needs are to be looked up again."""


MEMBERS, N_MEMBERS, CLASS, NODE, DEPTH = range(5)


class Lists(NamedTuple):
    """The lists of all leaves, in blocks of 1, 2, 4, ... postings."""

    starts: NDArray[np.int32]
    """int32 (n,): first posting; of a list that is free, the next one."""
    lengths: NDArray[np.int32]
    classes: NDArray[np.int8]
    keys: NDArray[np.int64]
    """int64 (n,): under which it is found, -1 if it is free."""


class Postings(NamedTuple):
    """The pool of postings."""

    rows: NDArray[np.float32]
    """float32 (n, 8): see above."""
    slots: NDArray[np.int32]
    """int32 (n,): the subscription; the next free block in the first of a free one."""
    lefts: NDArray[np.int32]
    """int32 (n,): how many there are in its group from here on."""
    groups: NDArray[np.int8]
    """int8 (n,): the number of its group."""


class Runs(NamedTuple):
    """The terms of subscriptions, parallel to the runs of profiles."""

    weights: NDArray[np.float32]
    """float32 (n, 4): OWN to GREATEST_LATER of a posting."""
    lists: NDArray[np.int32]
    """int32 (n,): the list of the posting."""


class Members(NamedTuple):
    """Who is in a leaf, and where."""

    slots: NDArray[np.int32]
    """int32 (n,): blocks of slots."""


class Seats(NamedTuple):
    """What the index knows of a subscription."""

    bounds: NDArray[np.float64]
    """float64 (n_slots, 2): INNER and NEEDS."""
    leaves: NDArray[np.int32]
    """int32 (n_slots,): the leaf."""
    places: NDArray[np.int32]
    """int32 (n_slots,): which member of it."""


class State(NamedTuple):
    """Everything."""

    ground: Ground
    frame: NDArray[np.float64]
    """float64 (4 + GROUPS - 1,): the bounds, then where groups of alpha end."""
    nodes: NDArray[np.int32]
    """int32 (n,): the first of four children, or of a leaf ~ its number."""
    leaves: Leaves
    spots: TableArrays
    """Term and leaf -> list."""
    lists: Lists
    postings: Postings
    runs: Runs
    members: Members
    seats: Seats
    pool: NDArray[np.int64]
    """int64 (STATE,): blocks of postings."""
    rooms: NDArray[np.int64]
    """int64 (STATE,): blocks of members."""
    counts: NDArray[np.int64]
    """int64 (8,): see above."""


# ---- bounds


@kernel
def kept_text(alpha: float) -> float:
    """Return what bounds are divided by in place of 1 - alpha: no less than it."""
    return max(1.0 - alpha, LEAST)


@kernel
def needed_near(bar: float, alpha: float) -> float:
    """Return the least nearness with which the best text reaches a bar (equation 8), or less."""
    return (bar_of_bound(bar) - (1.0 - alpha)) / max(alpha, LEAST)


@kernel
def set_box(leaves: Leaves, leaf: int, xmin: float, ymin: float, xmax: float, ymax: float) -> None:
    """Set the box of a leaf, and what its outer bound on the sphere takes."""
    box, angles = leaves.boxes[leaf], leaves.angles[leaf]
    box[0], box[1], box[2], box[3] = xmin, ymin, xmax, ymax
    for side in range(4):
        half = radians(box[side] % 720.0) * 0.5  # the plane knows no angles, and they have no end there
        angles[SINE + side], angles[COSINE + side] = sin(half), cos(half)
    angles[LEAST_COSINE] = max(0.0, min(cos(radians(ymin % 720.0)), cos(radians(ymax % 720.0))))


@kernel
def lost_inside(ground: Ground, box: NDArray[np.float64], x: float, y: float) -> float:
    """Return the nearness lost on the way from a point to the border of its box; never overestimates."""
    x, y, xmin, ymin, xmax, ymax = float(x), float(y), float(box[0]), float(box[1]), float(box[2]), float(box[3])
    dx, dy = min(x - xmin, xmax - x), min(y - ymin, ymax - y)
    if not ground.on_sphere:
        gap = max(0.0, min(dx, dy))
        return sqrt(gap * gap) / ground.max_distance  # what is too small for a distance is so here
    lat = radians(y)
    across = asin(cos(lat) * sin(radians(dx))) if dx < 90.0 else 0.5 * pi - abs(lat)
    return max(0.0, min(across, radians(dy)) - _SLACK) * EARTH_RADIUS_M / ground.max_distance


@kernel
def lost_outside(
    boxes: NDArray[np.float64],
    angles: NDArray[np.float64],
    leaf: int,
    point: NDArray[np.float64],
    on_sphere: bool,
    unit: float,
) -> float:
    """Return the distance from a message to a leaf in units, 0 inside; never overestimates.

    `point` is x and y, sine and cosine of half of each, and the cosine of y. On the sphere the haversine of what lies
    between is at least that of the differences to the nearest edges, with the least cosine for the box.
    """
    x, y = point[0], point[1]
    xmin, ymin = float(boxes[leaf, 0]), float(boxes[leaf, 1])
    xmax, ymax = float(boxes[leaf, 2]), float(boxes[leaf, 3])
    if not on_sphere:
        return nearest(float(x), float(y), xmin, ymin, xmax, ymax) / unit
    along, across = 0.0, 0.0
    if y < ymin or y > ymax:
        side = 1 if y < ymin else 3
        along = point[4] * angles[leaf, COSINE + side] - point[5] * angles[leaf, SINE + side]
    if x < xmin or x > xmax:
        left = abs(point[2] * angles[leaf, COSINE] - point[3] * angles[leaf, SINE])
        right = abs(point[2] * angles[leaf, COSINE + 2] - point[3] * angles[leaf, SINE + 2])
        across = min(left, right)
    chord = 2.0 * sqrt(along * along + point[6] * angles[leaf, LEAST_COSINE] * across * across)
    chord = max(0.0, chord - _SLACK)
    square = chord * chord
    return chord * (1.0 + square * (_BEND + square * _BEND_MORE)) * EARTH_RADIUS_M / unit


# ---- lists


@kernel
def spot_key(number: int, leaf: int) -> int:
    """Return the key of a term in a leaf."""
    return int((np.int64(number) << 32) | np.int64(leaf))


@kernel
def group_of(frame: NDArray[np.float64], alpha: float) -> int:
    """Return the group of an alpha."""
    group = 0
    while group < GROUPS - 1 and alpha > frame[4 + group]:
        group += 1
    return group


@kernel
def place_of(postings: Postings, start: int, length: int, group: int, bar: float, slot: int) -> int:
    """Return the first posting of a list that is not before this group, bar and slot."""
    rows, slots, groups = postings.rows, postings.slots, postings.groups
    low, high = start, start + length
    while low < high:
        middle = (low + high) >> 1
        is_before = groups[middle] < group
        if groups[middle] == group:
            other = rows[middle, BAR]
            is_before = other < bar or (other == bar and slots[middle] < slot)
        if is_before:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def refresh(postings: Postings, start: int, stop: int, at: int) -> None:
    """Set the statistics of a group anew, from a posting back to its first."""
    rows, groups, lefts = postings.rows, postings.groups, postings.lefts
    if at < start:
        return
    group = groups[at]
    weight, alpha, left = rows[at, GREATEST] * 0, rows[at, OWN_ALPHA] * 0, 0
    if at + 1 < stop and groups[at + 1] == group:
        weight, alpha, left = rows[at + 1, MOST_WEIGHT], rows[at + 1, MOST_ALPHA], int(lefts[at + 1])
    while at >= start and groups[at] == group:
        weight, alpha, left = max(weight, rows[at, GREATEST]), max(alpha, rows[at, OWN_ALPHA]), left + 1
        rows[at, MOST_WEIGHT], rows[at, MOST_ALPHA], lefts[at] = weight, alpha, left
        at -= 1


@kernel
def copy_posting(postings: Postings, source: int, target: int) -> None:
    """Copy a posting."""
    for i in range(8):
        postings.rows[target, i] = postings.rows[source, i]
    postings.slots[target] = postings.slots[source]
    postings.lefts[target] = postings.lefts[source]
    postings.groups[target] = postings.groups[source]


@kernel
def take_out(lists: Lists, postings: Postings, row: int, at: int) -> None:
    """Remove a posting; those behind it move up."""
    start, stop = lists.starts[row], lists.starts[row] + lists.lengths[row]
    for i in range(at, stop - 1):
        copy_posting(postings, i + 1, i)
    lists.lengths[row] -= 1
    refresh(postings, start, stop - 1, at - 1)


@kernel
def put_in(state: State, row: int, slot: int, at_run: int) -> None:
    """Add the posting of a term to a list that has room."""
    lists, postings, weights = state.lists, state.postings, state.runs.weights
    alpha = state.ground.profiles.points[slot, ALPHA]
    group, text = group_of(state.frame, alpha), kept_text(alpha)
    bar = np.float32(bar_of_bound(state.ground.bars[slot]) / text)
    start, length = lists.starts[row], lists.lengths[row]
    at = place_of(postings, start, length, group, bar, slot)
    for i in range(start + length, at, -1):
        copy_posting(postings, i - 1, i)
    lists.lengths[row] += 1
    postings.rows[at, BAR] = bar
    postings.rows[at, OWN_ALPHA] = alpha / text
    for i in range(4):
        postings.rows[at, OWN + i] = weights[at_run, i]
    postings.slots[at] = slot
    postings.groups[at] = group
    refresh(postings, start, start + length + 1, at)


@kernel
def place_of_slot(state: State, row: int, slot: int) -> int:
    """Return the posting of a subscription on a list, by the bar it has."""
    alpha = state.ground.profiles.points[slot, ALPHA]
    bar = np.float32(bar_of_bound(state.ground.bars[slot]) / kept_text(alpha))
    start, length = state.lists.starts[row], state.lists.lengths[row]
    return place_of(state.postings, start, length, group_of(state.frame, alpha), bar, slot)


@kernel
def drop_list(state: State, row: int) -> None:
    """Give back a list."""
    lists, counts = state.lists, state.counts
    give_block(state.pool, state.postings.slots, int(lists.classes[row]), lists.starts[row])
    table_remove(state.spots, lists.keys[row])
    lists.keys[row], lists.lengths[row] = -1, 0
    lists.starts[row], counts[FREE_LIST] = counts[FREE_LIST], row


@kernel
def list_with_room(state: State, number: int, leaf: int) -> int:
    """Return the list of a term in a leaf, with room for one more; there is room to make it."""
    lists, counts, pool, slots = state.lists, state.counts, state.pool, state.postings.slots
    key = spot_key(number, leaf)
    row = table_get(state.spots, key, -1)
    if row < 0:
        row = counts[FREE_LIST]
        if row >= 0:
            counts[FREE_LIST] = lists.starts[row]
        else:
            row = counts[N_LISTS]
            counts[N_LISTS] += 1
        table_put(state.spots, key, row)
        lists.keys[row], lists.lengths[row], lists.classes[row] = key, 0, 0
        lists.starts[row] = take_block(pool, slots, 0, 1)
    elif lists.lengths[row] == 1 << int(lists.classes[row]):
        before, size_class = int(lists.starts[row]), int(lists.classes[row])
        block = take_block(pool, slots, size_class + 1, 1 << (size_class + 1))
        for i in range(lists.lengths[row]):
            copy_posting(state.postings, before + i, block + i)
        give_block(pool, slots, size_class, before)
        lists.starts[row], lists.classes[row] = block, size_class + 1
    return row


# ---- leaves


@kernel
def leaf_at(state: State, x: float, y: float) -> int:
    """Return the leaf of a point."""
    frame = state.frame
    xmin, ymin, xmax, ymax = frame[0], frame[1], frame[2], frame[3]
    node = 0
    while state.nodes[node] >= 0:
        x0, y0 = xmin * 0.5 + xmax * 0.5, ymin * 0.5 + ymax * 0.5
        node = state.nodes[node] + (x > x0) + 2 * (y > y0)
        xmin, xmax = (x0, xmax) if x > x0 else (xmin, x0)
        ymin, ymax = (y0, ymax) if y > y0 else (ymin, y0)
    return ~int(state.nodes[node])


@kernel
def join(state: State, leaf: int, slot: int) -> None:
    """Make a subscription a member of a leaf; there is room."""
    leaves, members, seats = state.leaves, state.members.slots, state.seats
    head, points = leaves.heads[leaf], state.ground.profiles.points
    if head[CLASS] < 0 or head[N_MEMBERS] == 1 << head[CLASS]:
        block = take_block(state.rooms, members, head[CLASS] + 1, 1 << (head[CLASS] + 1))
        for i in range(head[N_MEMBERS]):
            members[block + i] = members[head[MEMBERS] + i]
        if head[CLASS] >= 0:
            give_block(state.rooms, members, head[CLASS], head[MEMBERS])
        head[MEMBERS] = block
        head[CLASS] += 1
    members[head[MEMBERS] + head[N_MEMBERS]] = slot
    seats.leaves[slot], seats.places[slot] = leaf, head[N_MEMBERS]
    head[N_MEMBERS] += 1
    needs = needed_near(state.ground.bars[slot], points[slot, ALPHA])
    seats.bounds[slot, INNER] = lost_inside(state.ground, leaves.boxes[leaf], points[slot, X], points[slot, Y])
    seats.bounds[slot, NEEDS] = needs
    leaves.needs[leaf] = min(leaves.needs[leaf], needs)


@kernel
def leave(state: State, slot: int) -> None:
    """Take a subscription out of its leaf."""
    leaves, members, seats = state.leaves, state.members.slots, state.seats
    leaf, place = seats.leaves[slot], seats.places[slot]
    head = leaves.heads[leaf]
    head[N_MEMBERS] -= 1
    last = members[head[MEMBERS] + head[N_MEMBERS]]
    members[head[MEMBERS] + place] = last
    seats.places[last] = place
    leaves.stale[leaf] |= seats.bounds[slot, NEEDS] <= leaves.needs[leaf]
    if head[N_MEMBERS] == 0:
        give_block(state.rooms, members, head[CLASS], head[MEMBERS])
        head[CLASS] = -1


@kernel
def look_up_needs(state: State, leaf: int) -> None:
    """Set the least nearness that a leaf needs anew."""
    leaves, head = state.leaves, state.leaves.heads[leaf]
    least = np.inf
    for i in range(head[MEMBERS], head[MEMBERS] + head[N_MEMBERS]):
        least = min(least, state.seats.bounds[state.members.slots[i], NEEDS])
    leaves.needs[leaf], leaves.stale[leaf] = least, False


@kernel
def open_leaf(state: State, node: int, leaf: int, depth: int) -> None:
    """Make an empty leaf of a node; its box is set by others."""
    head = state.leaves.heads[leaf]
    head[MEMBERS], head[N_MEMBERS], head[CLASS], head[NODE], head[DEPTH] = 0, 0, -1, node, depth
    state.leaves.needs[leaf], state.leaves.stale[leaf] = np.inf, False
    state.nodes[node] = ~leaf


@kernel
def post(state: State, slot: int) -> None:
    """Write the postings of a subscription in its leaf; there is room."""
    heads, numbers, leaf = state.ground.profiles.heads, state.ground.run_numbers, state.seats.leaves[slot]
    for at in range(heads[slot, RUN], heads[slot, RUN] + heads[slot, LENGTH]):
        row = list_with_room(state, numbers[at], leaf)
        state.runs.lists[at] = row
        put_in(state, row, slot, at)


@kernel
def has_room(state: State, n_lists: int, n_postings: int, n_members: int, n_leaves: int) -> bool:
    """Say whether there is room for so much more of everything; else what is needed is written down."""
    counts, pool, rooms, spots = state.counts, state.pool, state.rooms, state.spots
    lacks_lists = counts[N_LISTS] + n_lists > state.lists.starts.size
    lacks_lists |= spots.n_taken[0] + n_lists > spots.tags.size - spots.tags.size // 4
    counts[NEED_LISTS] = n_lists if lacks_lists else 0
    pool[NEEDED] = n_postings if pool[USED] + n_postings > state.postings.slots.size else 0
    rooms[NEEDED] = n_members if rooms[USED] + n_members > state.members.slots.size else 0
    lacks_leaves = counts[N_LEAVES] + n_leaves > state.leaves.needs.size
    lacks_leaves |= counts[N_NODES] + 4 * n_leaves > state.nodes.size
    counts[NEED_LEAVES] = 4 * n_leaves if lacks_leaves else 0
    return bool(counts[NEED_LISTS] + pool[NEEDED] + rooms[NEEDED] + counts[NEED_LEAVES] == 0)


@kernel
def split(state: State, leaf: int) -> bool:
    """Part a leaf in four, of which it is the first; say whether there was room."""
    counts, leaves, runs, heads = state.counts, state.leaves, state.runs, state.ground.profiles.heads
    head, points = leaves.heads[leaf], state.ground.profiles.points
    n, size_class, first_member = int(head[N_MEMBERS]), int(head[CLASS]), int(head[MEMBERS])
    n_terms = 0
    for i in range(first_member, first_member + n):
        n_terms += heads[state.members.slots[i], LENGTH]
    if not has_room(state, n_terms, 4 * n_terms, 4 * n, 4):  # lists and leaves grow by doubling
        return False
    slots = state.members.slots[first_member : first_member + n].copy()
    for slot in slots:
        for at in range(heads[slot, RUN], heads[slot, RUN] + heads[slot, LENGTH]):
            if state.lists.keys[runs.lists[at]] >= 0:
                drop_list(state, runs.lists[at])
    give_block(state.rooms, state.members.slots, size_class, first_member)
    box = leaves.boxes[leaf].copy()
    x0, y0 = box[0] * 0.5 + box[2] * 0.5, box[1] * 0.5 + box[3] * 0.5
    node, depth, child = head[NODE], head[DEPTH] + 1, counts[N_NODES]
    state.nodes[node] = child
    for i in range(4):
        part = leaf if i == 0 else counts[N_LEAVES] + i - 1
        open_leaf(state, child + i, part, depth)
        set_box(
            leaves, part, x0 if i & 1 else box[0], y0 if i & 2 else box[1],
            box[2] if i & 1 else x0, box[3] if i & 2 else y0,
        )  # fmt: skip
    counts[N_NODES] += 4
    counts[N_LEAVES] += 3
    for slot in slots:
        join(state, ~state.nodes[child + (points[slot, X] > x0) + 2 * (points[slot, Y] > y0)], slot)
        post(state, slot)
    return True


@kernel
def weigh(
    runs: Runs, columns: Columns, row: int, places: NDArray[np.int64], first_place: int, order: NDArray[np.int64]
) -> None:
    """Write the weights of a subscription's terms, and of those behind each in the common order."""
    first, stop = columns.indptr[row], columns.indptr[row + 1]
    by_falling_idf(columns.idfs, first, stop, order)
    rest, greatest = 0.0, 0.0
    for i in range(stop - first - 1, -1, -1):
        unit = columns.units[order[i]]
        weights = runs.weights[places[order[i] - first_place]]
        weights[0], weights[1], weights[3] = unit, rest, greatest
        rest, greatest = rest + unit, max(greatest, unit)
        weights[2] = greatest


@kernel
def weigh_rows(
    runs: Runs, columns: Columns, n_rows: int, places: NDArray[np.int64], order: NDArray[np.int64]
) -> None:
    """Write the weights of the terms of all rows."""
    for row in range(n_rows):
        weigh(runs, columns, row, places, columns.indptr[0], order)


@kernel
def insert_slots(state: State, slots: NDArray[np.int32], start: int, capacity: int) -> int:
    """Take in subscriptions from `start` on; return where it stopped for want of room."""
    points, heads, lists = state.ground.profiles.points, state.ground.profiles.heads, state.lists
    for i in range(start, slots.size):
        slot = slots[i]
        leaf = leaf_at(state, points[slot, X], points[slot, Y])
        while state.leaves.heads[leaf, N_MEMBERS] >= capacity and state.leaves.heads[leaf, DEPTH] < DEEPEST:
            if not split(state, leaf):
                return i
            leaf = leaf_at(state, points[slot, X], points[slot, Y])
        needed = 0
        for at in range(heads[slot, RUN], heads[slot, RUN] + heads[slot, LENGTH]):
            row = table_get(state.spots, spot_key(state.ground.run_numbers[at], leaf), -1)
            needed += 1 if row < 0 else 2 << int(lists.classes[row])
        if not has_room(state, heads[slot, LENGTH], needed, 2 * state.leaves.heads[leaf, N_MEMBERS] + 1, 0):
            return i
        join(state, leaf, slot)
        post(state, slot)
    return slots.size


@kernel
def delete_slots(state: State, slots: NDArray[np.int32]) -> None:
    """Remove all postings of subscriptions."""
    heads, lists = state.ground.profiles.heads, state.lists
    for slot in slots:
        for at in range(heads[slot, RUN], heads[slot, RUN] + heads[slot, LENGTH]):
            row = state.runs.lists[at]
            take_out(lists, state.postings, row, place_of_slot(state, row, slot))
            if lists.lengths[row] == 0:
                drop_list(state, row)
        leave(state, slot)
    for slot in slots:
        if state.leaves.stale[state.seats.leaves[slot]]:
            look_up_needs(state, state.seats.leaves[slot])


@kernel
def move_bars(state: State, slots: NDArray[np.int32], bars: NDArray[np.float64]) -> None:
    """Change bars: postings are taken out of their groups and put where they belong now."""
    heads, points, leaves = state.ground.profiles.heads, state.ground.profiles.points, state.leaves
    for i in range(slots.size):
        slot = slots[i]
        first, stop = heads[slot, RUN], heads[slot, RUN] + heads[slot, LENGTH]
        for at in range(first, stop):
            row = state.runs.lists[at]
            take_out(state.lists, state.postings, row, place_of_slot(state, row, slot))
        state.ground.bars[slot] = bars[i]
        for at in range(first, stop):
            put_in(state, state.runs.lists[at], slot, at)
        leaf, needs = state.seats.leaves[slot], needed_near(bars[i], points[slot, ALPHA])
        leaves.stale[leaf] |= state.seats.bounds[slot, NEEDS] <= leaves.needs[leaf]
        state.seats.bounds[slot, NEEDS] = needs
        leaves.needs[leaf] = min(leaves.needs[leaf], needs)
    for slot in slots:
        if leaves.stale[state.seats.leaves[slot]]:
            look_up_needs(state, state.seats.leaves[slot])


# ---- matching


@kernel
def cells_to_visit(state: State, x: float, y: float, cells: NDArray[np.int32], lost: NDArray[np.float64]) -> int:
    """Write the leaves that are near enough for some of theirs (lemma 6), and the nearness lost on the way to each.

    Those that hold the message lose less than nothing.
    """
    boxes, angles, needs = state.leaves.boxes, state.leaves.angles, state.leaves.needs
    on_sphere, unit = state.ground.on_sphere, state.ground.max_distance
    point = np.array([x, y, 0.0, 0.0, 0.0, 0.0, 0.0])
    if on_sphere:
        point[2], point[3] = sin(radians(x) * 0.5), cos(radians(x) * 0.5)
        point[4], point[5] = sin(radians(y) * 0.5), cos(radians(y) * 0.5)
        point[6] = cos(radians(y))
    n = 0
    for leaf in range(state.counts[N_LEAVES]):
        outer = lost_outside(boxes, angles, leaf, point, on_sphere, unit)
        if max(0.0, 1.0 - outer) >= needs[leaf]:
            is_inside = boxes[leaf, 0] <= x <= boxes[leaf, 2] and boxes[leaf, 1] <= y <= boxes[leaf, 3]
            cells[n] = leaf
            lost[n] = -1.0 if is_inside else outer
            n += 1
    return n


@kernel
def first_to_stop(rows: NDArray[np.float32], start: int, stop: int, most_text: float, near: float) -> int:
    """Return the first posting of a group from which on none can pass (theorem 4)."""
    while start < stop:
        middle = (start + stop) >> 1
        if rows[middle, MOST_WEIGHT] * most_text < rows[middle, BAR] - rows[middle, MOST_ALPHA] * near:
            stop = middle
        else:
            start = middle + 1
    return start


@kernel
def scan_list(
    rows: NDArray[np.float32], slots: NDArray[np.int32], lefts: NDArray[np.int32], inner: NDArray[np.float64],
    start: int, stop: int, lost: float, text: tuple[float, float, float, float, float],
    seen: NDArray[np.int64], found: NDArray[np.int32], n_found: int,
) -> tuple[int, int]:  # fmt: skip
    """Look through the groups of a list; return how many candidates there are then, and how many were looked at.

    `text` is the message's weight of the term, the greatest and the sum from it on, and those behind it.
    """
    own, greatest, total, greatest_later, total_later = text
    near, n_visited = min(1.0, max(0.0, 1.0 - lost)), 0
    while start < stop:
        end = start + lefts[start]
        n_visited += 1
        last = start
        if rows[start, MOST_WEIGHT] * total >= rows[start, BAR] - rows[start, MOST_ALPHA] * near:
            last = first_to_stop(rows, start + 1, end, total, near)
            n_visited += last - start - 1
        for at in range(start, last):
            slot = slots[at]
            if seen[1 + slot] == seen[0]:
                continue
            most_near = 1.0 if lost < 0.0 else max(0.0, 1.0 - lost - inner[slot, INNER])
            needed = rows[at, BAR] - rows[at, OWN_ALPHA] * most_near
            if greatest * (rows[at, OWN] + rows[at, REST]) < needed:  # theorem 1
                continue
            seen[1 + slot] = seen[0]
            unseen = min(rows[at, REST] * greatest_later, total_later * rows[at, GREATEST_LATER])
            if own * rows[at, OWN] + unseen >= needed:  # theorem 2
                found[n_found] = slot
                n_found += 1
        start = end
    return n_found, n_visited


@kernel
def look_up_lists(
    tags: NDArray[np.uint8], entries: NDArray[np.int64], starts: NDArray[np.int32], lengths: NDArray[np.int32],
    numbers: NDArray[np.int64], n_terms: int, cells: NDArray[np.int32], first: int, stop: int,
    hits: NDArray[np.int32],
) -> int:  # fmt: skip
    """Write which lists there are for some leaves, leaf by leaf, term by term; return how many."""
    n = 0
    for cell in range(first, stop):
        for i in range(n_terms):
            row = look_up(tags, entries, spot_key(numbers[i], cells[cell]))
            if row >= 0:
                prefetch(starts, row)
                prefetch(lengths, row)
                hits[n, 0], hits[n, 1], hits[n, 2] = cell, i, row
                n += 1
    return n


@kernel
def find(
    state: State, n_terms: int, n_cells: int, cells: NDArray[np.int32], lost: NDArray[np.float64], scratch: Scratch,
    out: Output,
) -> int:  # fmt: skip
    """Visit leaf by leaf, term by term, and write the candidates; return how many there are.

    The lists of some leaves are looked up together, so that the memory of one is on its way while another is read.
    """
    tags, entries, starts, lengths = state.spots.tags, state.spots.entries, state.lists.starts, state.lists.lengths
    rows, slots, lefts, inner = state.postings.rows, state.postings.slots, state.postings.lefts, state.seats.bounds
    numbers, weights, greatest, sums = scratch.numbers, scratch.weights, scratch.greatest, scratch.sums
    seen, found, n_found, n_visited = scratch.seen, scratch.found, 0, 0
    hits = np.empty((_TOGETHER * n_terms, 3), np.int32)
    for first in range(0, n_cells, _TOGETHER):
        stop = min(first + _TOGETHER, n_cells)
        n_hits = look_up_lists(tags, entries, starts, lengths, numbers, n_terms, cells, first, stop, hits)
        for h in range(n_hits):
            prefetch(rows, starts[hits[h, 2]])
            prefetch(slots, starts[hits[h, 2]])
            prefetch(lefts, starts[hits[h, 2]])
        for h in range(n_hits):
            cell, i, row = hits[h, 0], hits[h, 1], hits[h, 2]
            text = (weights[i], greatest[i], sums[i], greatest[i + 1], sums[i + 1])
            n_found, n = scan_list(
                rows, slots, lefts, inner, starts[row], starts[row] + lengths[row], lost[cell], text,
                seen, found, n_found,
            )  # fmt: skip
            n_visited += n
    out.work[VISITED] += n_visited
    return n_found


@kernel
def match_rows(state: State, batch: Columns, start: int, stop: int, first: int, scratch: Scratch, out: Output) -> int:
    """Match messages from `start` on; return where it stopped: `stop`, or a message whose matches may not fit."""
    total = out.ends[start - first - 1] if start > first else np.int64(0)
    before, n_leaves = np.empty(3, np.int64), state.counts[N_LEAVES]
    cells, lost = np.empty(n_leaves, np.int32), np.empty(n_leaves, np.float64)
    for row in range(start, stop):
        before[:] = out.work
        scratch.seen[0] += 1
        n_terms = enter(state.ground.terms, batch, row, scratch)
        n_found = 0
        if n_terms > 0:
            n_cells = cells_to_visit(state, batch.xs[row], batch.ys[row], cells, lost)
            n_found = find(state, n_terms, n_cells, cells, lost, scratch, out)
        total = verify(state.ground, batch, row, scratch.found, n_found, out, total)
        if total < 0:
            out.work[:] = before
            return row
        out.ends[row - first] = total
    return stop


class IGPT(Rival):
    """A quadtree of subscriptions, with groups of postings in its leaves."""

    def __init__(self, meaning: Meaning, arena: Arena, *, capacity: int = CAPACITY, room: int = 1 << 12) -> None:
        super().__init__(meaning, arena, room=room)
        self._capacity = capacity
        floats, ints, bounds = np.float64, np.int32, meaning.space.bounds
        new, pool = self._arena.new, self._new_pool
        pool("leaves", Leaves, {"boxes": (floats, 4), "angles": (floats, 9), "needs": floats, "heads": (ints, 5),
                                "stale": np.bool_})  # fmt: skip
        pool("lists", Lists, {"starts": ints, "lengths": ints, "classes": np.int8, "keys": np.int64})
        pool("postings", Postings, {"rows": (np.float32, 8), "slots": ints, "lefts": ints, "groups": np.int8})
        pool("runs", Runs, {"weights": (np.float32, 4), "lists": ints})
        pool("members", Members, {"slots": ints})
        pool("seats", Seats, {"bounds": (floats, 2), "leaves": ints, "places": ints})
        new("nodes", ints, 0)
        self._new_state("pool")
        self._new_state("rooms")
        new("counts", np.int64, 8)[:] = 0, -1, 1, 1, 0, 4, 0, 0
        new("frame", floats, 4 + GROUPS - 1)[:4] = bounds.xmin, bounds.ymin, bounds.xmax, bounds.ymax
        self._spots = Table(self._arena, "spots")
        self._is_new = True
        self._make_room()
        state = self._state()
        open_leaf(state, 0, 0, 0)
        set_box(state.leaves, 0, bounds.xmin, bounds.ymin, bounds.xmax, bounds.ymax)

    def _post(self, slots: NDArray[np.int32], columns: Columns, places: NDArray[np.int64]) -> None:
        if self._is_new:
            alphas = self._profiles.arrays.points[slots, ALPHA]
            self._arena["frame"][4:] = np.quantile(alphas, np.arange(1, GROUPS) / GROUPS)
            self._is_new = False
        self._arena.grow_all([f"seats.{name}" for name in Seats._fields], int(slots.max()) + 1)
        self._arena.grow_all([f"runs.{name}" for name in Runs._fields], self._profiles.arrays.run_terms.size)
        order = np.zeros(int(np.diff(columns.indptr).max()), np.int64)
        weigh_rows(self._state().runs, columns, slots.size, places, order)
        done = 0
        while done < slots.size:
            done = insert_slots(self._state(), slots, done, self._capacity)
            self._make_room()

    def _withdraw(self, slots: NDArray[np.int32]) -> None:
        delete_slots(self._state(), slots)

    def _move(self, slots: NDArray[np.int32], bars: NDArray[np.float64]) -> None:
        move_bars(self._state(), slots, bars)

    def _match_rows(self, batch: Columns, row: int, stop: int, first: int, scratch: Scratch, out: Output) -> int:
        return int(match_rows(self._state(), batch, row, stop, first, scratch, out))

    def _make_room(self) -> None:
        """Grow what was too small."""
        counts, pool, rooms = self._arena["counts"], self._arena["pool"], self._arena["rooms"]
        if counts[NEED_LISTS]:
            self._spots.reserve(len(self._spots) + int(counts[NEED_LISTS]))
        self._grow("lists", Lists, int(counts[N_LISTS]), int(counts[NEED_LISTS]))
        self._grow("postings", Postings, int(pool[USED]), int(pool[NEEDED]))
        self._grow("members", Members, int(rooms[USED]), int(rooms[NEEDED]))
        if counts[NEED_LEAVES]:
            needed = int(counts[N_LEAVES] + counts[NEED_LEAVES])
            self._arena.grow_all([f"leaves.{name}" for name in Leaves._fields], needed)
            self._arena.grow("nodes", int(counts[N_NODES] + 4 * counts[NEED_LEAVES]))
        counts[[NEED_LISTS, NEED_LEAVES]] = pool[NEEDED] = rooms[NEEDED] = 0

    def _state(self) -> State:
        bundle = self._arena.bundle
        return State(
            self._ground(),
            self._arena["frame"],
            self._arena["nodes"],
            bundle("leaves", Leaves),
            self._spots.arrays,
            bundle("lists", Lists),
            bundle("postings", Postings),
            bundle("runs", Runs),
            bundle("members", Members),
            bundle("seats", Seats),
            self._arena["pool"],
            self._arena["rooms"],
            self._arena["counts"],
        )
