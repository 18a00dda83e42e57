"""Space divided as in `location`, and the terms of each part as in `prefix` (DSkype, section 8.2).

    shard    part of space * n_runs + run of terms
    message  goes to the shards of its terms in every part, a subscription to those of its own part

Every part of space sees every message, so its terms are cut by all messages and by its own subscriptions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import isqrt

import numpy as np
import numpy.typing as npt

from nearcast.errors import require
from nearcast.model import Footprints, MessageBatch
from nearcast.partition.base import Masks, Region, Sample, ToSome, all_shards, check_shards
from nearcast.partition.keyword import cut_words
from nearcast.partition.location import LocationPartitioner
from nearcast.partition.term_assignment import TermAssignment, TermRouting
from nearcast.partition.term_frequencies import TermFrequencies
from nearcast.partition.tree import Tree
from nearcast.space import Box

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SpatialFirstRouting(ToSome):
    """Subscriptions by location and terms, messages by terms."""

    n_shards: int
    tree: Tree
    frequencies: TermFrequencies
    words: tuple[TermAssignment, ...]
    """The division of terms of each leaf, among n_shards / len(words) shards."""
    loads: Floats
    """Equation 16 within a leaf; each leaf sees all messages."""
    narrows = True

    @cached_property
    def _parts(self) -> list[TermRouting]:
        return [TermRouting(self._width, words, self.frequencies, self.loads) for words in self.words]

    @property
    def _width(self) -> int:
        return self.n_shards // len(self.words)

    def regions(self, bounds: Box) -> list[Region]:
        """Return the leaves, each with several shards."""
        own, width = int(all_shards(self._width)), self._width
        boxes = self.tree.boxes(bounds.as_tuple()).tolist()
        return [Region((a, b, c, d), own << leaf * width) for leaf, (a, b, c, d) in enumerate(boxes)]

    def place(self, footprints: Footprints) -> Masks:
        """Return the shards of its terms, in the leaf that a subscription is in."""
        leaves = self.tree.leaves_at(footprints.xs, footprints.ys)
        masks: Masks = np.zeros(len(footprints), np.uint64)
        for leaf, part in enumerate(self._parts):
            rows = np.flatnonzero(leaves == leaf)
            masks[rows] = part.place(footprints.take(rows)) << np.uint64(leaf * self._width)
        return masks

    def route(self, batch: MessageBatch) -> Masks:
        """Return the shards of its terms, in all leaves."""
        masks: Masks = np.zeros(len(batch), np.uint64)
        for leaf, part in enumerate(self._parts):
            masks |= part.route(batch) << np.uint64(leaf * self._width)
        return masks


class SpatialFirstPartitioner:
    """Cuts space, then terms."""

    name = "spatial_first"

    def __init__(self, n_first: int | None = None) -> None:
        """Cut space into the given number of parts; by default about as many as there are runs of terms per part."""
        self._n_first = n_first

    def fit(self, sample: Sample, *, n_shards: int) -> SpatialFirstRouting:
        """Cut space by the subscriptions and messages of the sample, then the terms of each part."""
        check_shards(n_shards)
        n_parts, width = two_levels(n_shards, self._n_first)
        tree = LocationPartitioner().fit(sample, n_shards=n_parts).tree
        footprints, messages = sample
        leaves, frequencies = tree.leaves_at(footprints.xs, footprints.ys), TermFrequencies.of(messages)
        parts = [
            cut_words(footprints.take(np.flatnonzero(leaves == leaf)), messages, frequencies, n_shards=width)
            for leaf in range(n_parts)
        ]
        loads = np.concatenate([loads for _, loads in parts])
        return SpatialFirstRouting(n_shards, tree, frequencies, tuple(words for words, _ in parts), loads)


def two_levels(n_shards: int, n_first: int | None) -> tuple[int, int]:
    """Return the numbers of parts of the first and second level, by default as equal as possible.

    >>> two_levels(32, None), two_levels(7, None), two_levels(32, 16)
    ((4, 8), (1, 7), (16, 2))
    """
    if n_first is None:
        n_first = max(n for n in range(1, isqrt(n_shards) + 1) if n_shards % n == 0)
    ok = 1 <= n_first <= n_shards and n_shards % n_first == 0
    require(ok, "n_first", f"must divide the number of shards, {n_shards}", n_first)
    return n_first, n_shards // n_first
