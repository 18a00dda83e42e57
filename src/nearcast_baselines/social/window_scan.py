"""Baselines 2 and 3, without buffers: the whole window is searched when a result expires (geo-social, section 4).

    a result expires ── every message of the window ── near + dice + social ── the k best
                                                              │
                       baseline 2   the social score of the pair, for each message
                       baseline 3   first the social score of the subscription's leaf (L_ss); that of the pair only
                                    if the bound reaches the k-th score

The social score of a leaf and a place is the greatest of its subscriptions. The paper reads it from lists per place;
here it is computed when the window is searched. Messages are processed one by one, as in the paper. The search, which
takes most of the time, is a kernel; results are stored as in the reference result store. For a new subscription, both
baselines compute all social scores at once.

Cost: size of the window per subscription that loses a result, and a few hundred steps per pair for the social score.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import Arena, kernel
from nearcast.index._kernels.shared.projection import project
from nearcast.index._kernels.social.layout import USER
from nearcast.index._kernels.social.match import n_shared_terms
from nearcast.model import MessageBatch, Scorer, ScoringContext
from nearcast.model._kernels.profiles import LENGTH, RUN, K, X, Y, near
from nearcast.model.profiles import Profiles
from nearcast.social._kernels.graph import GraphArrays, all_places_near
from nearcast.window.ranked import Change, Found
from nearcast.window.recompute import RecomputedResults
from nearcast.window.result_store import Changes, Find, ScoredMessage, ThresholdChanges
from nearcast.window.sliding import SlidingWindow, Step, Steps
from nearcast.window.store import FIRST, HORIZON, WindowArrays
from nearcast.window.store import NEXT as NEXT_NUMBER
from nearcast_baselines.social.base import PREFIX, IndexContext
from nearcast_baselines.social.quadtree_nodes import FIRST as FIRST_SLOT
from nearcast_baselines.social.quadtree_nodes import LEAF, NEXT, NO_SLOT

KNOWN, BY_PAIR, BY_LEAF = 0, 1, 2
"""Where social scores come from: all computed before, pair by pair, or by pair where the leaf's score suffices."""


class View(NamedTuple):
    """The window at one step."""

    window: WindowArrays
    places: NDArray[np.int32]
    """int32 (size of the window's ring,): the place of each message, or -1."""
    keys: NDArray[np.int64]
    """int64 (the same,): the key by which messages expire."""
    first: int
    last: int
    """The numbers between which all live messages are."""
    horizon: int
    """The greatest key that has expired."""


class Scratch(NamedTuple):
    """Scratch arrays of a search."""

    scores: NDArray[np.float64]
    numbers: NDArray[np.int64]
    """float64, int64 (k,): the best scores, and the numbers of their messages."""
    socials: NDArray[np.float64]
    """float64 (n_places,): social scores of a user or a leaf; 0 before and after."""
    own_places: NDArray[np.int8]
    """int8 (n_places,): 1 for the places of the user; 0 before and after."""
    met: NDArray[np.int32]
    counts: NDArray[np.int32]
    others: NDArray[np.int32]
    """int32 (n_places,), (n_users,), (n_users,): scratch arrays of `all_places_near`."""


@kernel
def pair_social(graph: GraphArrays, n_own: int, own_places: NDArray[np.int8], place: int) -> float:
    """Return the social score of a place for a user with `n_own` places, which are marked in `own_places`."""
    user_indptr, user_places, best = graph.user_indptr, graph.user_places, 0.0
    if place < 0:
        return 0.0
    if own_places[place]:
        return 1.0
    for i in range(graph.place_indptr[place], graph.place_indptr[place + 1]):
        visitor = graph.place_users[i]
        shared, first, last = 0, user_indptr[visitor], user_indptr[visitor + 1]
        for at in range(first, last):
            shared += own_places[user_places[at]]
        best = max(best, 2.0 * shared / (n_own + last - first))
    return best


@kernel
def _scan(context: IndexContext, view: View, slot: int, way: int, n_own_places: int, scratch: Scratch) -> int:
    """Write the k best messages of the window, best first, ties newest first; return how many there are."""
    window, places, keys, profiles = view.window, view.places, view.keys, context.profiles
    xs, ys, term_starts, n_terms, term_ids = (
        window.xs, window.ys, window.term_starts, window.n_terms, window.term_ids
    )  # fmt: skip
    scores, numbers, socials, own_places = scratch.scores, scratch.numbers, scratch.socials, scratch.own_places
    x, y, k = profiles.points[slot, X], profiles.points[slot, Y], profiles.heads[slot, K]
    run, n_own = profiles.heads[slot, RUN], profiles.heads[slot, LENGTH]
    on_sphere, max_distance = context.projection.on_sphere, context.projection.max_distance
    mask, lane, n = xs.size - 1, term_ids.size - 1, 0
    for number in range(view.first, view.last + 1):
        at = number & mask
        if keys[at] <= view.horizon:
            continue
        start = term_starts[at] & lane
        shared = n_shared_terms(profiles.run_terms, run, run + n_own, term_ids, start, start + n_terms[at], 0)
        score = near(x, y, xs[at], ys[at], on_sphere, max_distance) + 2.0 * shared / (n_own + n_terms[at])
        place = places[at]
        if way != BY_PAIR:
            social = socials[place] if place >= 0 else 0.0
            if n == k and score + social < scores[k - 1]:
                continue
        if way != KNOWN:
            social = pair_social(context.graph, n_own_places, own_places, place)
        score += social
        if n == k and score < scores[k - 1]:
            continue
        n = min(n + 1, k)
        to = n - 1
        while to > 0 and scores[to - 1] <= score:
            scores[to], numbers[to] = scores[to - 1], numbers[to - 1]
            to -= 1
        scores[to], numbers[to] = score, number
    return n


@kernel
def best_of_window(
    context: IndexContext,
    nodes: NDArray[np.int32],
    slots_of: NDArray[np.int32],
    view: View,
    slot: int,
    way: int,
    scratch: Scratch,
) -> int:
    """Search the whole window for one subscription, see `_scan`; `nodes` and `slots_of` are those of its quadtree."""
    graph, user = context.graph, int(context.sites[slot, USER])
    first, last = graph.user_indptr[user], graph.user_indptr[user + 1]
    if way == KNOWN:
        all_places_near(graph, user, scratch.socials, scratch.met, scratch.counts, scratch.others)
    if way == BY_LEAF:
        other = nodes[slots_of[slot, LEAF], FIRST_SLOT]
        while other != NO_SLOT:
            other_user = int(context.sites[other, USER])
            all_places_near(graph, other_user, scratch.socials, scratch.met, scratch.counts, scratch.others)
            other = slots_of[other, NEXT]
    for at in range(first, last):
        scratch.own_places[graph.user_places[at]] = 1
    n = _scan(context, view, slot, way, last - first, scratch)
    for at in range(first, last):
        scratch.own_places[graph.user_places[at]] = 0
    scratch.socials[:] = 0.0
    return n


class WindowScan(RecomputedResults):
    """Stores the k best messages and searches the whole window when one expires; requires a `Quadtree` as index."""

    def __init__(self, scoring: ScoringContext, window: SlidingWindow, arena: Arena, *, way: int = BY_PAIR) -> None:
        super().__init__()
        self._graph, self._projection = scoring.social, project(scoring.space)
        self._window, self._arena, self._way = window, arena, way
        self._profiles = Profiles(arena)
        self._places = np.zeros(0, np.int32)
        self._noted, self._known = 0, -1
        self._touched: set[int] = set()
        self._steps: Steps | None = None

    def begin(self, slot: int, score: Scorer) -> list[ScoredMessage]:
        """Start a result with the best messages of the window."""
        self._scorers[slot] = score
        state = self._window.store.state
        self._note_places(int(state[FIRST]))
        view = self._view(int(state[FIRST]), int(state[NEXT_NUMBER]) - 1, int(state[HORIZON]))
        self.change(slot, self._search(slot, view, KNOWN))
        return self.results(slot)

    def end(self, slot: int) -> list[ScoredMessage]:
        """Drop the result of a subscription."""
        self._touched.discard(slot)
        return super().end(slot)

    def change(self, slot: int, best: list[ScoredMessage]) -> list[Change]:
        """Set a result, and record that its threshold may have changed."""
        self._touched.add(slot)
        return super().change(slot, best)

    def publish(self, batch: MessageBatch, steps: Steps, find: Find) -> list[Changes]:
        """Process a batch step by step."""
        self._steps = steps
        self._note_places(steps.before)
        return super().publish(batch, steps, find)

    def step(self, step: Step, found: Found) -> list[Change]:
        """Let new messages compete, and search the window again for subscriptions that lost a result."""
        assert self._steps is not None
        changes: list[Change] = []
        lost: set[int] = set()
        for document in step.leaving:
            lost |= self._holders.get(document.seq, set())
        coming = step.arrival
        if coming is not None:
            for slot, score in found:
                if slot not in lost:
                    changes += self.compete(slot, ScoredMessage(coming.seq, coming.id, score))
        if lost:
            n_come = int(np.searchsorted(self._steps.row_steps, step.number, side="right"))
            n_to_come = len(self._steps.row_steps) - n_come
            last = int(self._window.store.state[NEXT_NUMBER]) - n_to_come - 1
            view = self._view(self._steps.before, last, int(self._steps.horizons[step.number]))
            for slot in sorted(lost):
                changes += self.change(slot, self._search(slot, view, self._way))
        for document in step.leaving:
            self._holders.pop(document.seq, None)
        return changes

    def take_threshold_changes(self) -> ThresholdChanges:
        """Return the thresholds that may have changed since the last call."""
        slots, self._touched = sorted(self._touched), set()
        thresholds = [self.threshold(slot) for slot in slots]
        return ThresholdChanges(
            np.array(slots, np.int32),
            np.array([-np.inf if threshold is None else threshold for threshold in thresholds]),
        )

    def _search(self, slot: int, view: View, way: int) -> list[ScoredMessage]:
        """Return the k best messages of the window."""
        n_places, n_users, k = len(self._graph.places), len(self._graph.users), self._k[slot]
        scratch = Scratch(
            np.zeros(k),
            np.zeros(k, np.int64),
            np.zeros(n_places),
            np.zeros(n_places, np.int8),
            np.zeros(n_places, np.int32),
            np.zeros(n_users, np.int32),
            np.zeros(n_users, np.int32),
        )
        sites, nodes, slots_of = (self._arena[f"{PREFIX}.{name}"] for name in ("sites", "nodes", "slots_of"))
        context = IndexContext(self._projection, self._profiles.arrays, self._graph.arrays, sites)
        n = int(best_of_window(context, nodes, slots_of, view, slot, way, scratch))
        numbers, store = scratch.numbers[:n], self._window.store
        columns = store.of("seqs", numbers).tolist(), store.ids(numbers), scratch.scores[:n].tolist()
        return [ScoredMessage(*row) for row in zip(*columns, strict=True)]

    def _view(self, first: int, last: int, horizon: int) -> View:
        store = self._window.store
        return View(store.arrays, self._places, store.keys, first, last, horizon)

    def _note_places(self, first: int) -> None:
        """Number the places of new messages, or of all messages if the graph has new places or the ring has grown."""
        store = self._window.store
        size, stop = len(store.arrays.seqs), int(store.state[NEXT_NUMBER])
        if size != len(self._places) or self._known != len(self._graph.places):
            self._places, self._noted = np.full(size, -1, np.int32), first
            self._known = len(self._graph.places)
        numbers = np.arange(max(self._noted, first), stop)
        self._places[numbers & (size - 1)] = self._graph.number_places(store.places(numbers))
        self._noted = stop
