"""Terms divided as in `prefix`, and for each run of terms space as in `location` (DSkype, section 8.2).

    shard    run of terms * n_leaves + leaf of that run's tree
    message  goes to all leaves of the runs of its terms, a subscription to the leaf that it is in

For each run, space is cut by the subscriptions and messages with one of its terms.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from nearcast.model import Footprints, MessageBatch
from nearcast.partition.base import Sample, ShardArea, ToSome
from nearcast.partition.location import LocationPartitioner
from nearcast.partition.masks import Masks, check_shards, masks_of, rows_of_shards, united
from nearcast.partition.prefix import PrefixPartitioner, PrefixRouting
from nearcast.partition.spatial_first import ranges_of, two_levels
from nearcast.partition.tree import Tree
from nearcast.space import Box

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class KeywordFirstRouting(ToSome):
    """Subscriptions by terms and location, messages by terms."""

    n_shards: int
    runs: PrefixRouting
    """The run of each term."""
    trees: tuple[Tree, ...]
    """The division of space of each run, among n_shards / len(trees) shards."""
    loads: Floats
    """Equation 15 within a run, times the share of messages that it sees."""
    narrows = True

    @property
    def _width(self) -> int:
        return self.n_shards // len(self.trees)

    @cached_property
    def _of_runs(self) -> Masks:
        """The shards of each run."""
        return ranges_of(len(self.trees), self._width)

    def shard_areas(self, bounds: Box) -> list[ShardArea]:
        """Return the leaves of all trees; they overlap."""
        return [
            ShardArea(region.box, region.shards << run * self._width)
            for run, tree in enumerate(self.trees)
            for region in tree.shard_areas(bounds)
        ]

    def place(self, footprints: Footprints) -> Masks:
        """Return, for each run of its terms, the leaf that a subscription is in."""
        rows_of = rows_of_shards(self.runs.place(footprints), len(self.trees))
        shards = [
            run * self._width + tree.leaves_at(footprints.xs[rows], footprints.ys[rows])
            for run, (tree, rows) in enumerate(zip(self.trees, rows_of, strict=True))
        ]
        rows = np.concatenate(rows_of)
        return masks_of(rows, np.concatenate(shards), n=len(footprints), n_shards=self.n_shards)

    def route(self, batch: MessageBatch) -> Masks:
        """Return all leaves of the runs of its terms."""
        masks = united(batch.term_indptr, self.runs.words.shards_of(batch.term_ids), self._of_runs)
        masks[np.diff(batch.term_indptr) == 0] = self._of_runs[0]
        return masks


class KeywordFirstPartitioner:
    """Cuts terms, then space."""

    name = "keyword_first"

    def __init__(self, n_first: int | None = None) -> None:
        """Cut terms into the given number of runs; by default about as many as there are leaves per run."""
        self._n_first = n_first

    def fit(self, sample: Sample, *, n_shards: int) -> KeywordFirstRouting:
        """Cut the terms of the sample, and space for each run."""
        check_shards(n_shards)
        n_runs, width = two_levels(n_shards, self._n_first)
        footprints, messages = sample
        runs = PrefixPartitioner().fit(sample, n_shards=n_runs)
        held, seen = (rows_of_shards(masks, n_runs) for masks in (runs.place(footprints), runs.route(messages)))
        parts = [
            LocationPartitioner().fit(Sample(footprints.take(own), messages.take(some)), n_shards=width)
            for own, some in zip(held, seen, strict=True)
        ]
        shares = [len(some) / max(1, len(messages)) for some in seen]
        loads = np.concatenate([share * part.loads for share, part in zip(shares, parts, strict=True)])
        return KeywordFirstRouting(n_shards, runs, tuple(part.tree for part in parts), loads)
