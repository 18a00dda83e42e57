"""Space divided as in `location`, and the terms of each part as in `prefix` (DSkype, section 8.2).

    shard    part of space * n_runs + run of terms
    message  goes to the shards of its terms in every part, a subscription to those of its own part

Every part of space sees every message, so its terms are cut by all messages and by its own subscriptions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isqrt

import numpy as np
import numpy.typing as npt

from nearcast.errors import require
from nearcast.model import Footprints, MessageBatch
from nearcast.partition.base import Sample, ShardArea, ToSome
from nearcast.partition.keyword import cut_words
from nearcast.partition.location import LocationPartitioner
from nearcast.partition.masks import Masks, all_shards, as_ints, check_shards, masks_of, united
from nearcast.partition.term_assignment import TermAssignment, posting_terms
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
    def _of_terms(self) -> TermMasks:
        return TermMasks.of(self.words)

    @cached_property
    def _of_leaves(self) -> Masks:
        return ranges_of(len(self.words), self._width)

    @property
    def _width(self) -> int:
        return self.n_shards // len(self.words)

    def shard_areas(self, bounds: Box) -> list[ShardArea]:
        """Return the leaves, each with several shards."""
        boxes, shards = self.tree.boxes(bounds.as_tuple()).tolist(), as_ints(self._of_leaves)
        return [ShardArea((a, b, c, d), shards[leaf]) for leaf, (a, b, c, d) in enumerate(boxes)]

    def place(self, footprints: Footprints) -> Masks:
        """Return the shards of its terms, in the leaf that a subscription is in."""
        branches, terms = posting_terms(footprints, self.frequencies)
        posts = np.full(len(footprints.term_indptr) - 1, self._of_terms.everywhere)
        posts[branches] = self._of_terms.rows_of(terms)
        masks = united(footprints.branch_indptr, posts, self._of_terms.masks)
        masks &= self._of_leaves[self.tree.leaves_at(footprints.xs, footprints.ys)]
        return masks

    def route(self, batch: MessageBatch) -> Masks:
        """Return the shards of its terms, in all leaves."""
        masks = united(batch.term_indptr, self._of_terms.rows_of(batch.term_ids), self._of_terms.masks)
        masks[np.diff(batch.term_indptr) == 0] = self._of_terms.first
        return masks


@dataclass(frozen=True)
class TermMasks:
    """The shards of each term in all parts of space, so that a term is looked up once, not once per part.

    Cost: 8 bytes per 64 shards for each term.
    """

    terms: TermAssignment
    """The row of each term of any part; a term that no part has goes by its id."""
    masks: Masks
    """uint64 (n_terms + width + 1, n_words): of the terms, of the terms that no part has, and of all terms."""

    @classmethod
    def of(cls, words: Sequence[TermAssignment]) -> TermMasks:
        """Join the terms of all parts."""
        n_parts, width = len(words), words[0].n_shards
        terms = np.unique(np.concatenate([part.terms for part in words]))
        n = len(terms) + width + 1
        shards = np.empty((n - 1, n_parts), np.int64)
        for number, part in enumerate(words):
            own = np.concatenate([terms % width, np.arange(width)])
            own[np.searchsorted(terms, part.terms)] = part.shards
            shards[:, number] = number * width + own
        rows = np.repeat(np.arange(n - 1), n_parts)
        masks = masks_of(rows, shards.ravel(), n=n, n_shards=n_parts * width)
        masks[-1] = all_shards(1, n_parts * width)
        return cls(TermAssignment(terms, np.arange(len(terms), dtype=np.int32), width), masks)

    @property
    def everywhere(self) -> int:
        """The row of a branch without terms."""
        return len(self.masks) - 1

    @property
    def first(self) -> Masks:
        """The first shard of every part."""
        mask: Masks = self.masks[len(self.terms.terms)]  # that of a term by id 0
        return mask

    def rows_of(self, term_ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the row of each term."""
        return self.terms.found(term_ids, by_id=len(self.terms.terms))


def ranges_of(n_parts: int, width: int) -> Masks:
    """Return one set for each of adjacent ranges of shards.

    >>> as_ints(ranges_of(3, 2))
    [3, 12, 48]
    """
    shards = np.arange(n_parts * width)
    return masks_of(shards // width, shards, n=n_parts, n_shards=n_parts * width)


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
