"""Subscriptions that look at the same messages are dealt out among all shards (DkM-SKS, section 4).

    all subscriptions ── the dearest set, in four: by space, or dealt out ── ... ── GAMMA_1 sets for each shard
                                                                                         │
    the dearest set first, and in it the dearest subscription: each to the shard that has least

A subscription costs the messages that hold one of its terms and lie where any of its set looks (equation 5); of the
two ways to part a set the one is taken after which all cost less. Sets of more than GAMMA_2 are parted by space
without asking. Every shard sees every message. (The paper prints 100,000 and 20 for GAMMA_1 and GAMMA_2; it can only
have meant them the other way round.)

Who comes later costs what its terms are said, times the share of messages in the box of the set that it looks into
most (equation 7): terms are taken to be said alike everywhere, since counts by set would not fit. It goes to who has
least.

Cost: fitting looks at all terms of the sample some ten times for each set.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nearcast.model import Footprints, MessageBatch
from nearcast.partition.assignment import AssignedRouting, Assignment
from nearcast.partition.base import Masks, Sample, check_shards
from nearcast.partition.density_grid import DensityGrid, around_all, quarters
from nearcast.partition.load import assign_greedily
from nearcast.partition.term_frequencies import TermFrequencies

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]

GAMMA_1, GAMMA_2 = 20, 100_000
_DEEPEST = 60  # parts of parts, where subscriptions cannot be told apart
_AT_ONCE = 4_096


@dataclass(frozen=True)
class DkmRouting(AssignedRouting):
    """Subscriptions by what they and their like cost, messages to all."""

    n_shards: int
    density: DensityGrid
    frequencies: TermFrequencies
    boxes: Floats
    """float64 (n_sets, 4): where those of each set look, within the extent of the sample."""
    assignment: Assignment

    def place(self, footprints: Footprints) -> Masks:
        """Return where it was dealt to, or who has least."""
        return self.assignment.place(footprints.keys, lambda rows: self._costs(footprints.take(rows)))

    def _costs(self, footprints: Footprints) -> Floats:
        said = self.frequencies.costs(footprints)
        if not len(self.boxes):
            return said
        looks = self.density.within(self.density.look_boxes(footprints, said))
        nearest = np.concatenate([self._most_shared(looks[i : i + _AT_ONCE]) for i in range(0, len(looks), _AT_ONCE)])
        costs: Floats = said * self.density.shares_in(self.boxes)[nearest]
        return costs

    def _most_shared(self, looks: Floats) -> Longs:
        """Return the set whose box shares the largest area with each."""
        sides = np.minimum(looks[:, None, 2:], self.boxes[None, :, 2:])
        sides = sides - np.maximum(looks[:, None, :2], self.boxes[None, :, :2])
        most: Longs = np.argmax(np.clip(sides, 0.0, None).prod(axis=2), axis=1)
        return most


class DkmPartitioner:
    """Parts subscriptions by space or by cost, whichever is cheaper."""

    name = "dkm"

    def fit(self, sample: Sample, *, n_shards: int) -> DkmRouting:
        """Part the subscriptions of the sample, and deal them out."""
        check_shards(n_shards)
        footprints, density, frequencies = (
            sample.footprints,
            DensityGrid.of(sample),
            TermFrequencies.of(sample.messages),
        )
        parting = _Parting(
            footprints, density.look_boxes(footprints, frequencies.costs(footprints)), frequencies, sample.messages
        )
        sets = parting.part(GAMMA_1 * n_shards)
        order = [rows[np.argsort(-costs, kind="stable")] for rows, costs in sets]
        assigned, costs = np.concatenate([np.zeros(0, np.int64), *order]), np.zeros(len(footprints))
        for rows, own in sets:
            costs[rows] = own
        shards = np.zeros(len(footprints), np.int32)
        shards[assigned] = assign_greedily(costs[assigned], np.zeros(n_shards), in_order=True)
        loads = np.bincount(shards, weights=costs, minlength=n_shards).astype(np.float64)
        boxes = density.within(np.array([around_all(parting.looks[rows]) for rows, _ in sets]).reshape(-1, 4))
        return DkmRouting(n_shards, density, frequencies, boxes, Assignment.of(footprints.keys, shards, loads))


class _Parting:
    """Sets of subscriptions, and what each in them costs."""

    def __init__(
        self, footprints: Footprints, looks: Floats, frequencies: TermFrequencies, messages: MessageBatch
    ) -> None:
        self._footprints, self.looks, self._frequencies = footprints, looks, frequencies
        lengths = np.diff(messages.term_indptr)
        self._xs, self._ys = np.repeat(messages.xs, lengths), np.repeat(messages.ys, lengths)
        self._terms = np.searchsorted(frequencies.terms, messages.term_ids)
        self._n_messages = len(messages)

    def part(self, wanted: int) -> list[tuple[Longs, Floats]]:
        """Part all subscriptions into so many sets, if they can be; return each with its costs, the dearest first."""
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
        """Return up to four parts of a set, by space or dealt out."""
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
        """Return what subscriptions of a set cost: messages with their terms where any of them looks (equation 5)."""
        xmin, ymin, xmax, ymax = around_all(self.looks[rows])
        inside = (self._xs >= xmin) & (self._xs <= xmax) & (self._ys >= ymin) & (self._ys <= ymax)
        counts = np.bincount(self._terms[inside], minlength=len(self._frequencies.terms))
        return self._frequencies.costs(self._footprints.take(rows), shares=counts / max(1, self._n_messages))
