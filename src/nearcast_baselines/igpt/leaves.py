"""Leaves of the quadtree: a full leaf is split into four, together with its lists."""

from __future__ import annotations

import numpy as np

from nearcast._jit import kernel
from nearcast.model._kernels.blocks import NEEDED, USED, give_block, take_block
from nearcast.model._kernels.profiles import ALPHA, LENGTH, RUN, X, Y
from nearcast_baselines.igpt.bounds import lost_inside, needed_near, set_box
from nearcast_baselines.igpt.layout import (
    CLASS,
    DEPTH,
    INNER,
    MEMBERS,
    N_LEAVES,
    N_LISTS,
    N_MEMBERS,
    N_NODES,
    NEED_LEAVES,
    NEED_LISTS,
    NEEDS,
    NODE,
    State,
)
from nearcast_baselines.igpt.lists import drop_list, list_with_room, put_in


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
    """Add a subscription to a leaf; requires room."""
    leaves, members, slots_of = state.leaves, state.members.slots, state.slots_of
    head, points = leaves.heads[leaf], state.context.profiles.points
    if head[CLASS] < 0 or head[N_MEMBERS] == 1 << head[CLASS]:
        block = take_block(state.rooms, members, head[CLASS] + 1, 1 << (head[CLASS] + 1))
        for i in range(head[N_MEMBERS]):
            members[block + i] = members[head[MEMBERS] + i]
        if head[CLASS] >= 0:
            give_block(state.rooms, members, head[CLASS], head[MEMBERS])
        head[MEMBERS] = block
        head[CLASS] += 1
    members[head[MEMBERS] + head[N_MEMBERS]] = slot
    slots_of.leaves[slot], slots_of.places[slot] = leaf, head[N_MEMBERS]
    head[N_MEMBERS] += 1
    needs = needed_near(state.context.thresholds[slot], points[slot, ALPHA])
    slots_of.bounds[slot, INNER] = lost_inside(state.context, leaves.boxes[leaf], points[slot, X], points[slot, Y])
    slots_of.bounds[slot, NEEDS] = needs
    leaves.needs[leaf] = min(leaves.needs[leaf], needs)


@kernel
def leave(state: State, slot: int) -> None:
    """Remove a subscription from its leaf."""
    leaves, members, slots_of = state.leaves, state.members.slots, state.slots_of
    leaf, place = slots_of.leaves[slot], slots_of.places[slot]
    head = leaves.heads[leaf]
    head[N_MEMBERS] -= 1
    last = members[head[MEMBERS] + head[N_MEMBERS]]
    members[head[MEMBERS] + place] = last
    slots_of.places[last] = place
    leaves.stale[leaf] |= slots_of.bounds[slot, NEEDS] <= leaves.needs[leaf]
    if head[N_MEMBERS] == 0:
        give_block(state.rooms, members, head[CLASS], head[MEMBERS])
        head[CLASS] = -1


@kernel
def recompute_needs(state: State, leaf: int) -> None:
    """Recompute the least nearness that the subscriptions of a leaf need."""
    leaves, head = state.leaves, state.leaves.heads[leaf]
    least = np.inf
    for i in range(head[MEMBERS], head[MEMBERS] + head[N_MEMBERS]):
        least = min(least, state.slots_of.bounds[state.members.slots[i], NEEDS])
    leaves.needs[leaf], leaves.stale[leaf] = least, False


@kernel
def open_leaf(state: State, node: int, leaf: int, depth: int) -> None:
    """Make a node an empty leaf; its box is set by the caller."""
    head = state.leaves.heads[leaf]
    head[MEMBERS], head[N_MEMBERS], head[CLASS], head[NODE], head[DEPTH] = 0, 0, -1, node, depth
    state.leaves.needs[leaf], state.leaves.stale[leaf] = np.inf, False
    state.nodes[node] = ~leaf


@kernel
def post(state: State, slot: int) -> None:
    """Write the postings of a subscription in its leaf; requires room."""
    heads, numbers, leaf = state.context.profiles.heads, state.context.run_numbers, state.slots_of.leaves[slot]
    for at in range(heads[slot, RUN], heads[slot, RUN] + heads[slot, LENGTH]):
        row = list_with_room(state, numbers[at], leaf)
        state.runs.lists[at] = row
        put_in(state, row, slot, at)


@kernel
def has_room(state: State, n_lists: int, n_postings: int, n_members: int, n_leaves: int) -> bool:
    """Return whether so many more of each fit; if not, record how many are needed."""
    counts, pool, rooms, leaf_lists = state.counts, state.pool, state.rooms, state.leaf_lists
    lacks_lists = counts[N_LISTS] + n_lists > state.lists.starts.size
    lacks_lists |= leaf_lists.n_taken[0] + n_lists > leaf_lists.tags.size - leaf_lists.tags.size // 4
    counts[NEED_LISTS] = n_lists if lacks_lists else 0
    pool[NEEDED] = n_postings if pool[USED] + n_postings > state.postings.slots.size else 0
    rooms[NEEDED] = n_members if rooms[USED] + n_members > state.members.slots.size else 0
    lacks_leaves = counts[N_LEAVES] + n_leaves > state.leaves.needs.size
    lacks_leaves |= counts[N_NODES] + 4 * n_leaves > state.nodes.size
    counts[NEED_LEAVES] = 4 * n_leaves if lacks_leaves else 0
    return bool(counts[NEED_LISTS] + pool[NEEDED] + rooms[NEEDED] + counts[NEED_LEAVES] == 0)


@kernel(allocates=True)
def split(state: State, leaf: int) -> bool:
    """Split a leaf into four, of which it is the first; return whether there was room."""
    counts, leaves, runs, heads = state.counts, state.leaves, state.runs, state.context.profiles.heads
    head, points = leaves.heads[leaf], state.context.profiles.points
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
