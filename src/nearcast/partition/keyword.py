"""Terms divided into runs, one per shard; a message goes to the shards of its terms (DSkype, section 7.3.3).

    terms by falling frequency        a b c d e f g h i j
    shards, each a run of terms       0 0 1 1 2 2 2 3 3 3

A run is cut where both sides cost the same (algorithm 4). The cost of a run is the number of subscriptions with one
of its terms times the share of messages that hold one (equation 16); a subscription counts once. The paper halves
down to a power of two; here both sides cost in proportion to the number of shards that they become, and each keeps at
least that many terms. For a branch of several terms, the rarest counts. A subscription lives with all its terms, and
a message goes to all of its own.

Cost: a subscription with a term left of a cut has its first term there, one with a term right of it has its last term
there, so sums over first and last terms evaluate all cuts of a run at once. Fitting reads each term of the sample
once per level.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.model import Footprints, MessageBatch
from nearcast.partition.base import Sample
from nearcast.partition.masks import check_shards
from nearcast.partition.run_routing import RunRouting
from nearcast.partition.term_assignment import TermAssignment, posting_terms
from nearcast.partition.term_frequencies import TermFrequencies

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


class KeywordPartitioner:
    """Cuts the terms into runs of equal cost."""

    name = "keyword"

    def fit(self, sample: Sample, *, n_shards: int) -> RunRouting:
        """Cut the terms of subscriptions and messages of the sample."""
        return fit_runs(sample, RunRouting, n_shards=n_shards)


def fit_runs(sample: Sample, made: type[RunRouting], *, n_shards: int) -> RunRouting:
    """Return the routing of a class that cuts the terms of a sample into runs."""
    check_shards(n_shards)
    frequencies = TermFrequencies.of(sample.messages)
    words, loads = cut_words(sample.footprints, sample.messages, frequencies, n_shards=n_shards)
    order = by_frequency(words.terms, frequencies)
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return made.of_runs(words, ranks, frequencies=frequencies, loads=loads)


def by_frequency(terms: Longs, frequencies: TermFrequencies) -> Longs:
    """Return the order of ascending terms by falling frequency; ties go by term id."""
    shares = np.zeros(len(terms))
    shares[np.searchsorted(terms, frequencies.terms)] = frequencies.shares
    return np.argsort(-shares, kind="stable")


def cut_words(
    footprints: Footprints, messages: MessageBatch, frequencies: TermFrequencies, *, n_shards: int
) -> tuple[TermAssignment, Floats]:
    """Return the terms of each shard and their costs (equation 16)."""
    branches, posted = posting_terms(footprints, frequencies)
    terms = np.union1d(frequencies.terms, posted)
    order = by_frequency(terms, frequencies)
    positions = np.empty(len(terms), np.int64)
    positions[order] = np.arange(len(terms))
    owners = np.repeat(np.arange(len(footprints)), np.diff(footprints.branch_indptr))[branches]
    held = _Listed.of(owners, positions[np.searchsorted(terms, posted)])
    lengths = np.diff(messages.term_indptr)
    seen = _Listed.of(
        np.repeat(np.arange(len(messages)), lengths), positions[np.searchsorted(terms, messages.term_ids)]
    )
    shards, loads = np.zeros(len(terms), np.int32), np.zeros(n_shards)
    open_ = [(0, len(terms), n_shards, held, seen)]
    n_made = 0
    while open_:  # the left half is always taken next, so shards are in the order of runs
        start, end, wanted, held, seen = open_.pop()
        if wanted == 1 or end - start < 2:
            shards[order[start:end]] = n_made
            loads[n_made] = held.n_rows() * (seen.n_rows() / max(1, len(messages)))
            n_made += 1
            continue
        low, high = wanted // 2, wanted - wanted // 2
        middle = start + _even_cut(held, seen, start, end, (low, high))
        open_.append((middle, end, high, held.within(middle, end), seen.within(middle, end)))
        open_.append((start, middle, low, held.within(start, middle), seen.within(start, middle)))
    return TermAssignment(terms, shards, n_shards), loads


class _Listed(NamedTuple):
    """Rows with the positions of their terms."""

    rows: Longs
    """int64 (n,): ascending."""
    positions: Longs
    """int64 (n,): ascending within a row."""

    @classmethod
    def of(cls, rows: Longs, positions: Longs) -> _Listed:
        """Sort the terms of each row."""
        order = np.lexsort((positions, rows))
        return cls(rows[order], positions[order])

    def within(self, start: int, end: int) -> _Listed:
        """Return the terms inside a run."""
        inside = (self.positions >= start) & (self.positions < end)
        return _Listed(self.rows[inside], self.positions[inside])

    def n_rows(self) -> int:
        """Return the number of rows that have a term."""
        return int(np.count_nonzero(np.diff(self.rows))) + 1 if len(self.rows) else 0

    def on_both_sides(self, start: int, end: int) -> tuple[Longs, Longs]:
        """Return how many rows have a term up to each position of a run, and how many have one after it."""
        is_new = np.ones(len(self.rows) + 1, np.bool_)
        is_new[1:-1] = self.rows[1:] != self.rows[:-1]
        firsts, lasts = self.positions[is_new[:-1]], self.positions[is_new[1:]]
        low = np.cumsum(np.bincount(firsts - start, minlength=end - start))
        high = len(lasts) - np.cumsum(np.bincount(lasts - start, minlength=end - start))
        return low, high


def _even_cut(held: _Listed, seen: _Listed, start: int, end: int, shares: tuple[int, int]) -> int:
    """Return how many terms of a run, at least two, go to the low side so that costs are in proportion to shares."""
    held_low, held_high = held.on_both_sides(start, end)
    seen_low, seen_high = seen.on_both_sides(start, end)
    # One extra message on each side: without messages, the number of subscriptions decides.
    low, high = held_low * (seen_low + 1.0) / shares[0], held_high * (seen_high + 1.0) / shares[1]
    fewest = min(shares[0], end - start - 1)
    most = max(fewest, end - start - shares[1])
    return fewest + int(np.argmin(np.abs(low - high)[fewest - 1 : most]))
