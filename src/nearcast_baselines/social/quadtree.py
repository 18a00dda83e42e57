"""A quadtree of subscriptions (geo-social, section 3).

    node    box, keywords, least threshold below (score_min); for one message, the greatest social score below (T_ss)
              │
    4 children, or up to m = 10 subscriptions in a linked list

A message descends from the root and skips a node where `near(box) + dice(keywords) + social` is below the least
threshold (equations 6 and 7); all subscriptions of a leaf that it reaches are scored. The keywords of a node are
counted in one hash table of (node, term), so that subscriptions can be deleted; below a node, only the terms that the
message shares with it are looked up.

Departures from the paper: boxes are the bounding boxes of the points, not the quarters of the space, which prunes
more. The paper's lists of social scores per place (L_ss) would hold a few hundred million pairs, and would not follow
changes of the graph; here the scores of a message's place are computed on arrival, and only nodes with a score above
0 are updated. The bound below which the paper recomputes a result (s_p) is theta of the engine's buffers.

Cost: with 20,000 subscriptions and a window of 20,000, a message visits 1,800 nodes and scores 760 subscriptions. A
change of a threshold walks up to the root.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import (
    Arena,
    PostingArrays,
    Table,
    column,
    kernel,
    postings_first,
    postings_next,
    table_find,
    table_get,
)
from nearcast.index import scratch_pool
from nearcast.index._kernels.shared.output import VISITED, MatchOutput
from nearcast.index._kernels.shared.projection import BEND, to_frame, upper_bound_near
from nearcast.index._kernels.social.layout import SocialColumns
from nearcast.model import ScoringContext
from nearcast.model.subscription_columns import KeywordColumns
from nearcast_baselines.social.base import (
    PREFIX,
    BaselineIndex,
    IndexContext,
    UserScores,
    clear_user_scores,
    new_user_scores,
    score_users,
    verify,
)
from nearcast_baselines.social.quadtree_nodes import (
    CHILD,
    DEEPEST,
    DEPTH,
    DONE,
    FIRST,
    LEAF,
    N_NODES,
    NEEDED,
    NEXT,
    NO_SLOT,
    NODES,
    PARENT,
    SIZE,
    TERM_BITS,
    Tree,
    delete_slots,
    follow_thresholds,
    insert_slots,
)

CAPACITY = 10
"""Subscriptions per leaf, the paper's m."""


class Scratch(NamedTuple):
    """Scratch arrays of one message; the first four are those of `UserScores`."""

    socials: NDArray[np.float64]
    met: NDArray[np.int32]
    counts: NDArray[np.int32]
    others: NDArray[np.int32]
    node_socials: NDArray[np.float64]
    """float64 (n_nodes,): the greatest social score below each node; 0 between messages."""
    touched: NDArray[np.int32]
    """int32 (n_nodes,): nodes whose score is not 0."""
    held: NDArray[np.int64]
    """int64 (DEEPEST + 2, n_terms), flat: by depth, dense numbers of the terms that the node above shares."""
    n_held: NDArray[np.int64]
    """int64 (DEEPEST + 2,): how many there are per depth."""
    stack: NDArray[np.int32]
    """int32 (4 x DEEPEST + 8,): nodes to visit."""
    found: NDArray[np.int32]
    """int32 (n_slots,): subscriptions of the leaves that were reached."""


@kernel
def _raise_socials(tree: Tree, users: PostingArrays, n_met: int, scratch: Scratch) -> int:
    """Write the greatest social score below each node (equation 5); return how many nodes have one."""
    nodes, slots_of, node_socials, touched = tree.nodes, tree.slots_of, scratch.node_socials, scratch.touched
    n = 0
    for i in range(n_met):
        user = scratch.met[i]
        if user >= users.heads.size:
            continue
        social = scratch.socials[user]
        chunk, n_items = postings_first(users, user)
        while n_items > 0:
            for place in range(n_items):
                node = slots_of[users.items[chunk, place], LEAF]
                while node >= 0 and node_socials[node] < social:
                    if node_socials[node] == 0.0:
                        touched[n] = node
                        n += 1
                    node_socials[node] = social
                    node = nodes[node, PARENT]
            chunk, n_items = postings_next(users, user, chunk)
    return n


@kernel
def _walk(
    tree: Tree,
    context: IndexContext,
    x: float,
    y: float,
    z: float,
    n_terms: int,
    scratch: Scratch,
    work: NDArray[np.int64],
) -> int:
    """Write the subscriptions of the leaves that no bound rules out; return how many there are."""
    nodes, boxes, leasts, slots_of, words = tree.nodes, tree.boxes, tree.leasts, tree.slots_of, tree.words
    node_socials, held, n_held = scratch.node_socials, scratch.held, scratch.n_held
    stack, found, width = scratch.stack, scratch.found, scratch.held.size // (DEEPEST + 2)
    bend, unit, margin = (
        BEND if context.projection.on_sphere else 0.0,
        context.projection.unit,
        context.projection.margin,
    )
    n_found, top = 0, int(leasts[0] < np.inf)
    stack[0] = 0
    while top > 0:
        top -= 1
        node = int(stack[top])
        depth, least = nodes[node, DEPTH], leasts[node]
        work[VISITED] += 1
        dx = max(boxes[node, 0] - x, 0.0, x - boxes[node, 3])
        dy = max(boxes[node, 1] - y, 0.0, y - boxes[node, 4])
        dz = max(boxes[node, 2] - z, 0.0, z - boxes[node, 5])
        bound = upper_bound_near(dx, dy, dz, bend, unit, margin) + node_socials[node]
        n, above = 0, n_held[depth]
        if above > 0 and bound + 2.0 * above / (above + n_terms) < least:
            continue
        for i in range(depth * width, depth * width + above):
            if table_find(words, (node << TERM_BITS) | held[i]) >= 0:
                held[(depth + 1) * width + n] = held[i]
                n += 1
        n_held[depth + 1] = n
        if n > 0:
            bound += 2.0 * n / (n + n_terms)
        if bound < least:
            continue
        child = nodes[node, CHILD]
        if child < 0:
            slot = nodes[node, FIRST]
            while slot != NO_SLOT:
                found[n_found] = slot
                n_found += 1
                slot = slots_of[slot, NEXT]
        else:
            for one in range(child, child + 4):
                if leasts[one] < np.inf:
                    stack[top] = one
                    top += 1
    return n_found


@kernel(allocates=True)
def match_rows(
    tree: Tree,
    context: IndexContext,
    users: PostingArrays,
    batch: SocialColumns,
    rows: tuple[int, int, int],
    scratch: Scratch,
    out: MatchOutput,
) -> int:
    """Match messages from the first of three rows to the second; return where it stopped, see `BaselineIndex`.

    Ends in the output are counted from the third row.
    """
    start, stop, first = rows
    user_scores = UserScores(scratch.socials, scratch.met, scratch.counts, scratch.others)
    total, before = int(out.ends[start - first - 1]) if start > first else 0, np.empty(4, np.int64)
    for row in range(start, stop):
        before[:] = out.work
        n_terms, n = batch.indptr[row + 1] - batch.indptr[row], 0
        for i in range(batch.indptr[row], batch.indptr[row + 1]):
            number = table_get(tree.terms, batch.term_ids[i], -1)
            if number >= 0:
                scratch.held[n] = number
                n += 1
        scratch.n_held[0] = n
        n_met = score_users(context.graph, batch.places[row], user_scores)
        n_touched = _raise_socials(tree, users, n_met, scratch)
        x, y, z = to_frame(context.projection, batch.xs[row], batch.ys[row])
        n_found = _walk(tree, context, x, y, z, n_terms, scratch, out.work)
        out.work[VISITED] += n_found
        total = verify(context, batch, row, user_scores.socials, scratch.found, n_found, out, total)
        for i in range(n_touched):
            scratch.node_socials[scratch.touched[i]] = 0.0
        clear_user_scores(user_scores, n_met)
        if total < 0:
            out.work[:] = before
            return row
        out.ends[row - first] = total
    return stop


class Quadtree(BaselineIndex):
    """The paper's index of subscriptions."""

    def __init__(
        self, scoring: ScoringContext, arena: Arena | None = None, *, capacity: int = CAPACITY, room: int = 1 << 12
    ) -> None:
        super().__init__(scoring, arena, room=room)
        self._capacity, bounds = capacity, scoring.space.bounds
        for name, kind, fill, columns in (
            ("nodes", np.int32, -1, 5),
            ("regions", np.float64, 0.0, 4),
            ("boxes", np.float64, 0.0, 6),
            ("leasts", np.float64, np.inf, None),
        ):
            self._arena.new(f"{PREFIX}.{name}", kind, 1, fill, columns=columns)
        self._arena.new(f"{PREFIX}.slots_of", np.int32, 0, -1, columns=3)
        self._arena.new(f"{PREFIX}.state", np.int64, 2)[N_NODES] = 1
        self._words = Table(self._arena, f"{PREFIX}.words")
        self._terms = Table(self._arena, f"{PREFIX}.terms")
        tree = self._tree()
        tree.nodes[0, DEPTH], tree.nodes[0, SIZE] = 0, 0
        tree.regions[0] = bounds.as_tuple()
        tree.boxes[0, :3], tree.boxes[0, 3:] = np.inf, -np.inf

    def _scratch(self) -> Scratch:
        return Scratch(
            *new_user_scores(0),
            np.zeros(0),
            np.zeros(0, np.int32),
            np.zeros(0, np.int64),
            np.zeros(DEEPEST + 2, np.int64),
            np.zeros(4 * DEEPEST + 8, np.int32),
            np.zeros(0, np.int32),
        )

    def _post(self, slots: NDArray[np.int32], columns: KeywordColumns) -> None:
        new = np.unique(column(columns.term_ids, np.int64))
        new = new[self._terms.get_many(new) < 0]
        self._terms.put_many(new, np.arange(len(self._terms), len(self._terms) + new.size))
        self._arena.grow(f"{PREFIX}.slots_of", int(slots.max()) + 1)
        done, code = insert_slots(self._tree(), self._context(), slots, 0)
        while code != DONE:
            tree = self._tree()
            if code == NODES:
                names = [f"{PREFIX}.{name}" for name in ("nodes", "regions", "boxes", "leasts")]
                self._arena.grow_all(names, int(tree.state[N_NODES]) + 4)
            else:
                self._words.reserve(len(self._words) + int(tree.state[NEEDED]))
            done, code = insert_slots(self._tree(), self._context(), slots, done)

    def _withdraw(self, slots: NDArray[np.int32]) -> None:
        delete_slots(self._tree(), self._context(), slots)

    def _follow(self, slots: NDArray[np.int32]) -> None:
        follow_thresholds(self._tree(), self._context(), slots)

    def _prepare(self, workspace: scratch_pool.OutputWorkspace, n_terms: int) -> None:
        workspace.need(len(self._arena[f"{PREFIX}.leasts"]), "node_socials", "touched")
        workspace.need((DEEPEST + 2) * n_terms, "held")
        workspace.need(len(self._sites), "found")

    def _match_rows(
        self, batch: SocialColumns, row: int, stop: int, first: int, scratch: Scratch, out: MatchOutput
    ) -> int:
        rows, users = (row, stop, first), self._users.arrays
        return int(match_rows(self._tree(), self._context(), users, batch, rows, scratch, out))

    def _tree(self) -> Tree:
        arrays = [self._arena[f"{PREFIX}.{name}"] for name in ("nodes", "regions", "boxes", "leasts", "slots_of")]
        tables = self._words.arrays, self._terms.arrays
        return Tree(self._capacity, *arrays, *tables, self._arena[f"{PREFIX}.state"])  # type: ignore[call-arg, arg-type]
