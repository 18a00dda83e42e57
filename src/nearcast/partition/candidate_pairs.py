"""Candidate pairs: the messages and subscriptions of a sample that an index has to compare.

A message and a branch form a pair if the message holds the rarest term of the branch, or the branch has no terms, and
the message lies in the box: the postings that an index visits. Cost: one sort of the branches, and some arrays as
long as the number of pairs; a million pairs are enough for an estimate.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from nearcast.model import Footprints, MessageBatch
from nearcast.partition.base import Sample
from nearcast.partition.term_assignment import posting_terms
from nearcast.partition.term_frequencies import TermFrequencies

Longs = npt.NDArray[np.int64]
Rows = TypeVar("Rows", Footprints, MessageBatch)

_MESSAGES, _MOST = 5_000, 1_000_000


class CandidatePairs(NamedTuple):
    """Messages and the subscriptions that they are compared with."""

    messages: Longs
    """int64 (n,): rows of messages, ascending."""
    subscriptions: Longs
    """int64 (n,): rows of subscriptions; one may occur for several of its branches."""


def find_candidate_pairs(sample: Sample, *, most: int = _MOST) -> CandidatePairs:
    """Return the pairs of messages and branches whose rarest term the message holds, in whose box it lies.

    A few thousand messages are used; if they visit more than `most` branches, a part of these is used.
    """
    footprints, batch = sample
    chosen = spread_rows(len(batch), _MESSAGES)
    postings = _Postings.of(footprints, TermFrequencies.of(batch))
    batch = batch.take(chosen)
    starts, ends = postings.runs(batch)
    step = -(-int((ends - starts).sum()) // most)
    if step > 1:
        postings = postings.every(step)
        starts, ends = postings.runs(batch)
    rows, owners = postings.pairs(batch, starts, ends, footprints)
    return CandidatePairs(chosen[rows], owners)


def count_compared(sample: Sample) -> Longs:
    """Return the number of candidate pairs of each message; it looks at each posting that an index would visit."""
    footprints, batch = sample
    postings, counts = _Postings.of(footprints, TermFrequencies.of(batch)), [np.zeros(0, np.int64)]
    for start in range(0, len(batch), _MESSAGES):
        some = batch.slice(start, min(start + _MESSAGES, len(batch)))
        rows, _ = postings.pairs(some, *postings.runs(some), footprints)
        counts.append(np.bincount(rows, minlength=len(some)))
    return np.concatenate(counts)


def count_by_subscription(sample: Sample) -> Longs:
    """Return the number of candidate pairs of each subscription; it looks at each posting that an index visits."""
    footprints, batch = sample
    postings, counts = _Postings.of(footprints, TermFrequencies.of(batch)), np.zeros(len(footprints), np.int64)
    for start in range(0, len(batch), _MESSAGES):
        some = batch.slice(start, min(start + _MESSAGES, len(batch)))
        _, owners = postings.pairs(some, *postings.runs(some), footprints)
        counts += np.bincount(owners, minlength=len(footprints))
    return counts


class _Postings(NamedTuple):
    """Branches by the terms that they are posted under, then those without terms."""

    posted: Longs
    """int64: the term of each branch that has one, ascending."""
    listed: Longs
    """int64: all branches."""

    @classmethod
    def of(cls, footprints: Footprints, frequencies: TermFrequencies) -> _Postings:
        branches, posted = posting_terms(footprints, frequencies)
        is_open = np.ones(len(footprints.term_indptr) - 1, np.bool_)
        is_open[branches] = False
        order = np.argsort(posted, kind="stable")
        return cls(posted[order], np.concatenate([branches[order], np.flatnonzero(is_open)]))

    def every(self, step: int) -> _Postings:
        """Return a part of the postings."""
        return _Postings(self.posted[::step], self.listed[::step])

    def runs(self, batch: MessageBatch) -> tuple[Longs, Longs]:
        """Return the runs of branches that each message visits."""
        return _runs(self.posted, len(self.listed), batch)

    def pairs(self, batch: MessageBatch, starts: Longs, ends: Longs, footprints: Footprints) -> tuple[Longs, Longs]:
        """Return the rows of messages, and the subscriptions whose boxes they lie in, among the branches visited."""
        counts = ends - starts
        before = np.concatenate([[0], np.cumsum(counts)])
        at = np.repeat(starts - before[:-1], counts) + np.arange(before[-1])
        rows = np.repeat(np.repeat(np.arange(len(batch)), np.diff(batch.term_indptr) + 1), counts)
        owners = np.repeat(np.arange(len(footprints)), np.diff(footprints.branch_indptr))[self.listed[at]]
        boxes, xs, ys = footprints.boxes[owners], batch.xs[rows], batch.ys[rows]
        inside = (boxes[:, 0] <= xs) & (xs <= boxes[:, 2]) & (boxes[:, 1] <= ys) & (ys <= boxes[:, 3])
        return rows[inside], owners[inside]


def _runs(posted: Longs, n_listed: int, batch: MessageBatch) -> tuple[Longs, Longs]:
    """Return the runs of sorted branches that each message visits: one per term, then branches without terms."""
    starts = np.searchsorted(posted, batch.term_ids, side="left")
    ends = np.searchsorted(posted, batch.term_ids, side="right")
    after = batch.term_indptr[1:]
    return np.insert(starts, after, len(posted)), np.insert(ends, after, n_listed)


def spread(part: Rows, n: int) -> Rows:
    """Return at most the given number of rows, evenly spread."""
    return part if len(part) <= n else part.take(spread_rows(len(part), n))


def spread_rows(n: int, most: int) -> Longs:
    """Return at most the given number out of n rows, evenly spread."""
    return np.arange(n) if n <= most else np.linspace(0, n - 1, most).astype(np.int64)
