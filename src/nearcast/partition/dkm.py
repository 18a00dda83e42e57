"""DkM-SKS (section 4): subscriptions that depend on the same messages are spread over all shards.

    all subscriptions ── the most expensive set, in four: by space, or spread ── ... ── GAMMA_1 sets per shard
                                                                                             │
    the most expensive set first, and in it the most expensive subscription: each to the least loaded shard

A subscription costs the messages that hold one of its terms and lie in the area of its set (equation 5); of the two
ways to divide a set, the cheaper one is taken. Sets of more than GAMMA_2 subscriptions are divided by space at once.
Every shard sees every message. (The paper prints 100,000 and 20 for GAMMA_1 and GAMMA_2; they must be swapped.)

A later subscription costs the frequency of its terms times the share of messages in the box of the set that overlaps
its area most (equation 7): frequencies are taken as equal everywhere, since counts per set would not fit in memory.
It goes to the least loaded shard, whose load falls again when it is removed.

Cost: fitting reads all terms of the sample about ten times per set.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nearcast.model import Footprints, MessageBatch
from nearcast.partition.assignment import AssignedRouting, Assignment
from nearcast.partition.base import Sample
from nearcast.partition.density_grid import DensityGrid, around_all, quarters
from nearcast.partition.load import assign_greedily
from nearcast.partition.masks import check_shards
from nearcast.partition.term_frequencies import TermFrequencies

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]

GAMMA_1, GAMMA_2 = 20, 100_000
_DEEPEST = 60  # depth limit for subscriptions at the same location
_AT_ONCE = 4_096


@dataclass(frozen=True)
class DkmRouting(AssignedRouting):
    """Subscriptions by the cost of their set, messages to all shards."""

    n_shards: int
    density: DensityGrid
    frequencies: TermFrequencies
    boxes: Floats
    """float64 (n_sets, 4): the area of each set, within the extent of the sample."""
    assignment: Assignment

    def costs(self, footprints: Footprints) -> Floats:
        """Return what later subscriptions add to the load of a shard."""
        term_costs = self.frequencies.costs(footprints)
        if not len(self.boxes):
            return term_costs
        areas = self.density.within(self.density.dependency_boxes(footprints, term_costs))
        nearest = np.concatenate([self._most_shared(areas[i : i + _AT_ONCE]) for i in range(0, len(areas), _AT_ONCE)])
        costs: Floats = term_costs * self.density.shares_in(self.boxes)[nearest]
        return np.maximum(costs, self.frequencies.least)

    def _most_shared(self, areas: Floats) -> Longs:
        """Return the set whose box overlaps each box most."""
        sides = np.minimum(areas[:, None, 2:], self.boxes[None, :, 2:])
        sides = sides - np.maximum(areas[:, None, :2], self.boxes[None, :, :2])
        most: Longs = np.argmax(np.clip(sides, 0.0, None).prod(axis=2), axis=1)
        return most


class DkmPartitioner:
    """Divides subscriptions by space or by cost, whichever is cheaper."""

    name = "dkm"

    def fit(self, sample: Sample, *, n_shards: int) -> DkmRouting:
        """Divide the subscriptions of the sample and assign them."""
        check_shards(n_shards)
        footprints, density, frequencies = (
            sample.footprints,
            DensityGrid.of(sample),
            TermFrequencies.of(sample.messages),
        )
        parting = _Division(
            footprints,
            density.dependency_boxes(footprints, frequencies.costs(footprints)),
            frequencies,
            sample.messages,
        )
        sets = parting.part(GAMMA_1 * n_shards)
        order = [rows[np.argsort(-costs, kind="stable")] for rows, costs in sets]
        assigned, costs = np.concatenate([np.zeros(0, np.int64), *order]), np.zeros(len(footprints))
        for rows, own in sets:
            costs[rows] = own
        shards = np.zeros(len(footprints), np.int32)
        shards[assigned] = assign_greedily(costs[assigned], np.zeros(n_shards), in_order=True)
        boxes = density.within(np.array([around_all(parting.areas[rows]) for rows, _ in sets]).reshape(-1, 4))
        assignment = Assignment.of(footprints.keys, shards, costs, n_shards=n_shards)
        return DkmRouting(n_shards, density, frequencies, boxes, assignment)


class _Division:
    """Sets of subscriptions with the cost of each subscription."""

    def __init__(
        self, footprints: Footprints, areas: Floats, frequencies: TermFrequencies, messages: MessageBatch
    ) -> None:
        self._footprints, self.areas, self._frequencies = footprints, areas, frequencies
        lengths = np.diff(messages.term_indptr)
        self._xs, self._ys = np.repeat(messages.xs, lengths), np.repeat(messages.ys, lengths)
        self._terms = np.searchsorted(frequencies.terms, messages.term_ids)
        self._n_messages = len(messages)

    def part(self, wanted: int) -> list[tuple[Longs, Floats]]:
        """Divide all subscriptions into up to `wanted` sets; return sets with costs, the most expensive first."""
        all_shards = np.arange(len(self._footprints))
        if not len(all_shards):
            return []
        n_made, costs = 1, self._costs(all_shards)
        open_ = [(-costs.sum(), 0, 0, all_shards, costs)]
        made: list[tuple[float, int, int, Longs, Floats]] = []
        while open_ and len(open_) + len(made) < wanted:
            one = heapq.heappop(open_)
            _, _, depth, rows, costs = one
            if depth == _DEEPEST or len(rows) < 2:
                made.append(one)
                continue
            for inside, own in self._parts(rows, costs):
                heapq.heappush(open_, (-own.sum(), n_made, depth + 1, inside, own))
                n_made += 1
        return [(rows, costs) for _, _, _, rows, costs in sorted(made + open_, key=lambda one: one[:2])]

    def _parts(self, rows: Longs, costs: Floats) -> list[tuple[Longs, Floats]]:
        """Return up to four parts of a set, by space or spread."""
        xs, ys = self._footprints.xs[rows], self._footprints.ys[rows]
        numbers, _ = quarters(xs, ys, np.array([xs.min(), ys.min(), xs.max(), ys.max()]))
        by_space = self._weighed(rows, numbers)
        if len(rows) > GAMMA_2:
            return by_space
        assigned = self._weighed(rows, assign_greedily(costs, np.zeros(4)).astype(np.int64))
        return min(by_space, assigned, key=lambda parts: sum(float(own.sum()) for _, own in parts))

    def _weighed(self, rows: Longs, numbers: Longs) -> list[tuple[Longs, Floats]]:
        parts = (rows[numbers == number] for number in range(4))
        return [(part, self._costs(part)) for part in parts if len(part)]

    def _costs(self, rows: Longs) -> Floats:
        """Return the costs of a set's subscriptions: messages with their terms in the area of the set (eq. 5)."""
        xmin, ymin, xmax, ymax = around_all(self.areas[rows])
        inside = (self._xs >= xmin) & (self._xs <= xmax) & (self._ys >= ymin) & (self._ys <= ymax)
        counts = np.bincount(self._terms[inside], minlength=len(self._frequencies.terms))
        return self._frequencies.costs(self._footprints.take(rows), shares=counts / max(1, self._n_messages))
