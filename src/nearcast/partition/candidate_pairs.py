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
    branches, posted = posting_terms(footprints, TermFrequencies.of(batch))
    is_open = np.ones(len(footprints.term_indptr) - 1, np.bool_)
    is_open[branches] = False
    order = np.argsort(posted, kind="stable")
    posted, listed = posted[order], np.concatenate([branches[order], np.flatnonzero(is_open)])
    batch = batch.take(chosen)
    starts, ends = _runs(posted, len(listed), batch)
    step = -(-int((ends - starts).sum()) // most)
    if step > 1:
        posted, listed = posted[::step], listed[::step]
        starts, ends = _runs(posted, len(listed), batch)
    counts = ends - starts
    before = np.concatenate([[0], np.cumsum(counts)])
    at = np.repeat(starts - before[:-1], counts) + np.arange(before[-1])
    rows = np.repeat(np.repeat(np.arange(len(batch)), np.diff(batch.term_indptr) + 1), counts)
    owners = np.repeat(np.arange(len(footprints)), np.diff(footprints.branch_indptr))[listed[at]]
    boxes, xs, ys = footprints.boxes[owners], batch.xs[rows], batch.ys[rows]
    inside = (boxes[:, 0] <= xs) & (xs <= boxes[:, 2]) & (boxes[:, 1] <= ys) & (ys <= boxes[:, 3])
    return CandidatePairs(chosen[rows[inside]], owners[inside])


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
