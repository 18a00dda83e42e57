"""Which messages and subscriptions of a sample may meet? Those that an index would have to look at together.

A message *touches* a branch if it holds the rarest term of it, or the branch has none, and lies in the box: what is
found under a term and then looked at more closely. Cost: a sort of the branches, and some arrays as long as the
touches; a million of them are enough to weigh by.
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

_ASKED, _MOST = 5_000, 1_000_000


class CandidatePairs(NamedTuple):
    """Messages and branches of subscriptions that they may concern."""

    messages: Longs
    """int64 (n,): rows of messages, ascending."""
    subscriptions: Longs
    """int64 (n,): rows of subscriptions; one may be touched by several of its branches."""


def find_candidate_pairs(sample: Sample, *, most: int = _MOST) -> CandidatePairs:
    """Return which messages hold the rarest term of a branch, or need none, and lie in its box.

    A few thousand messages are asked; if they would look at more than `most` branches, it is at some of these only.
    """
    footprints, batch = sample
    asked = spread_rows(len(batch), _ASKED)
    branches, posted = posting_terms(footprints, TermFrequencies.of(batch))
    is_open = np.ones(len(footprints.term_indptr) - 1, np.bool_)
    is_open[branches] = False
    order = np.argsort(posted, kind="stable")
    posted, listed = posted[order], np.concatenate([branches[order], np.flatnonzero(is_open)])
    batch = batch.take(asked)
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
    return CandidatePairs(asked[rows[inside]], owners[inside])


def _runs(posted: Longs, n_listed: int, batch: MessageBatch) -> tuple[Longs, Longs]:
    """Return which runs of a list each message looks at: one for each term, then that of who has none, at the end."""
    starts = np.searchsorted(posted, batch.term_ids, side="left")
    ends = np.searchsorted(posted, batch.term_ids, side="right")
    after = batch.term_indptr[1:]
    return np.insert(starts, after, len(posted)), np.insert(ends, after, n_listed)


def spread(part: Rows, n: int) -> Rows:
    """Return so many rows at most, from all over."""
    return part if len(part) <= n else part.take(spread_rows(len(part), n))


def spread_rows(n: int, most: int) -> Longs:
    """Return so many of n rows at most, from all over."""
    return np.arange(n) if n <= most else np.linspace(0, n - 1, most).astype(np.int64)
