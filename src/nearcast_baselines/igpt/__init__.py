"""IGPT, individual and group pruning of Skype (section 5.3, algorithm 1).

    quadtree ── leaf ── (term, leaf) ── table ──> list [ group of small alpha | ... | group of large alpha ]
                 │                                       by rising threshold: slot, threshold, and the greatest
                 └ least nearness needed                 weight and alpha of it and of all later ones in the group

Every message visits every leaf. A leaf that is too far for all its subscriptions is skipped (lemma 6); in the others,
the terms of the message are looked up, rarest first. A group is skipped, or left early, by the statistics of its
postings (theorems 3 and 4); those of the first posting are those of the whole group. The remaining postings are
checked against the prefix (theorem 1) with the inner and outer spatial bound, and against the bound for unseen terms
(theorem 2).

Leaves hold 1,000 subscriptions and lists have ten groups, as in the paper's experiments; groups end at quantiles of
alpha among the subscriptions inserted first. A leaf of the deepest level holds any number. The number of groups is an
option, and each pruning can be switched off, as in Figures 11 and 12.

Faster than the paper: the outer bound on the sphere needs no trigonometric functions; weights are in the postings, so
that only the inner bound is read from the subscription; sets of candidates are marks in an array; lists are
prefetched. Departures from the paper: a subscription is accepted or rejected when it is first found, and scored from
its profile when it is verified, since sums are incomplete where lists were skipped; where the paper divides by
1 - alpha or alpha, the divisor is at least 1 / 1024, which loosens a bound; thresholds are those of the buffers
(theta).

Cost: a lookup per leaf and term of a message, and the postings that no group bound rules out. A change of a threshold
takes time linear in the length of its groups.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import Arena, Table
from nearcast.errors import require
from nearcast.index._kernels.topk.layout import TopKColumns
from nearcast.model import ScoringContext
from nearcast.model._kernels.blocks import NEEDED, USED
from nearcast.model._kernels.profiles import ALPHA
from nearcast_baselines.igpt.bounds import set_box
from nearcast_baselines.igpt.changes import delete_slots, insert_slots, move_thresholds, weigh_rows
from nearcast_baselines.igpt.layout import (
    N_LEAVES,
    N_LISTS,
    N_NODES,
    NEED_LEAVES,
    NEED_LISTS,
    Leaves,
    Lists,
    Members,
    Postings,
    Prunings,
    Runs,
    SlotPlaces,
    State,
)
from nearcast_baselines.igpt.leaves import open_leaf
from nearcast_baselines.igpt.match import match_rows
from nearcast_baselines.topk_base import ROOM, BaselineIndex

CAPACITY = 1000
"""Subscriptions per leaf."""
GROUPS = 10
"""Groups per list."""
_MAX_GROUPS = 127  # an int8 holds the number of a group
_ALL = Prunings()

__all__ = ["CAPACITY", "GROUPS", "IGPT", "Prunings"]


class IGPT(BaselineIndex):
    """A quadtree of subscriptions, with groups of postings in its leaves."""

    delete_slots = staticmethod(delete_slots)
    move_thresholds = staticmethod(move_thresholds)
    match_rows = staticmethod(match_rows)

    def __init__(
        self,
        scoring: ScoringContext,
        arena: Arena,
        *,
        capacity: int = CAPACITY,
        groups: int = GROUPS,
        prunings: Prunings = _ALL,
        room: int = ROOM,
    ) -> None:
        require(1 <= groups <= _MAX_GROUPS, "groups", f"must be in [1, {_MAX_GROUPS}]", groups, subject="IGPT")
        super().__init__(scoring, arena, room=room)
        self._capacity, self._groups, self._prunings = capacity, groups, prunings
        floats, ints, bounds = np.float64, np.int32, scoring.space.bounds
        new, pool = self._arena.new, self._new_pool
        pool("leaves", Leaves, {"boxes": (floats, 4), "angles": (floats, 9), "needs": floats, "heads": (ints, 5),
                                "stale": np.bool_})  # fmt: skip
        pool("lists", Lists, {"starts": ints, "lengths": ints, "classes": np.int8, "keys": np.int64})
        pool("postings", Postings, {"rows": (np.float32, 8), "slots": ints, "lefts": ints, "groups": np.int8})
        pool("runs", Runs, {"weights": (np.float32, 4), "lists": ints})
        pool("members", Members, {"slots": ints})
        pool("slot_places", SlotPlaces, {"bounds": (floats, 2), "leaves": ints, "places": ints})
        new("nodes", ints, 0)
        self._new_state("pool")
        self._new_state("rooms")
        new("counts", np.int64, 8)[:] = 0, -1, 1, 1, 0, 4, 0, 0
        new("frame", floats, 4 + groups - 1)[:4] = bounds.xmin, bounds.ymin, bounds.xmax, bounds.ymax
        self._leaf_lists = Table(self._arena, "leaf_lists")
        self._is_new = True
        self._make_room()
        state = self._state()
        open_leaf(state, 0, 0, 0)
        set_box(state.leaves, 0, bounds.xmin, bounds.ymin, bounds.xmax, bounds.ymax)

    def _post(self, slots: NDArray[np.int32], columns: TopKColumns, places: NDArray[np.int64]) -> None:
        if self._is_new:
            alphas = self._profiles.arrays.points[slots, ALPHA]
            self._arena["frame"][4:] = np.quantile(alphas, np.arange(1, self._groups) / self._groups)
            self._is_new = False
        self._arena.grow_all([f"slot_places.{name}" for name in SlotPlaces._fields], int(slots.max()) + 1)
        self._arena.grow_all([f"runs.{name}" for name in Runs._fields], self._profiles.arrays.run_terms.size)
        order = np.zeros(int(np.diff(columns.indptr).max()), np.int64)
        weigh_rows(self._state().runs, columns, slots.size, places, order)
        done = 0
        while done < slots.size:
            done = insert_slots(self._state(), slots, done, self._capacity)
            self._make_room()

    def _make_room(self) -> None:
        """Grow the arrays that were too small."""
        counts, pool, rooms = self._arena["counts"], self._arena["pool"], self._arena["rooms"]
        if counts[NEED_LISTS]:
            self._leaf_lists.reserve(len(self._leaf_lists) + int(counts[NEED_LISTS]))
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
            self._context(),
            self._prunings,
            self._arena["frame"],
            self._arena["nodes"],
            bundle("leaves", Leaves),
            self._leaf_lists.arrays,
            bundle("lists", Lists),
            bundle("postings", Postings),
            bundle("runs", Runs),
            bundle("members", Members),
            bundle("slot_places", SlotPlaces),
            self._arena["pool"],
            self._arena["rooms"],
            self._arena["counts"],
        )
