"""Random messages, from which subscriptions are made: a location and a set of term ranks.

    xs, ys     float64[n]                    locations
    indptr     int64[n + 1]  -> ranks        terms, each once, by rank (0 = the most frequent)
    ranks      int64[indptr[n]]

Generated and recorded messages both have this form, so the same generators of subscriptions serve both.
`SampleSource` is their common interface.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.space import Box

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_RANDOM_BITS = 44  # below the row number, which leaves room for 2^19 rows


class TermRanks(NamedTuple):
    """Rows of terms, by rank."""

    indptr: Ints
    ranks: Ints

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def sizes(self) -> Ints:
        """Return the number of terms of each row."""
        return np.diff(self.indptr)

    def owners(self) -> Ints:
        """Return the row of each term."""
        return np.repeat(np.arange(len(self)), self.sizes())

    def spelt(self, terms: pa.StringArray) -> pa.ListArray:
        """Return the rows as lists of words."""
        return pa.ListArray.from_arrays(self.indptr.astype(np.int32), terms.take(pa.array(self.ranks)))

    def take(self, rows: Ints) -> TermRanks:
        """Return some rows, in the order given.

        >>> TermRanks(np.array([0, 2, 3]), np.array([5, 6, 7])).take(np.array([1, 0])).ranks.tolist()
        [7, 5, 6]
        """
        sizes = self.sizes()[rows]
        indptr = start_of(sizes)
        shifts = np.repeat(self.indptr[rows] - indptr[:-1], sizes)
        return TermRanks(indptr, self.ranks[shifts + np.arange(indptr[-1])])

    def put(self, rows: Ints, other: TermRanks) -> TermRanks:
        """Return the same rows, except that `rows` are those of `other`."""
        both = TermRanks(
            np.append(self.indptr, self.indptr[-1] + other.indptr[1:]), np.append(self.ranks, other.ranks)
        )
        order = np.arange(len(self))
        order[rows] = len(self) + np.arange(len(other))
        return both.take(order)

    def followed_by(self, other: TermRanks) -> TermRanks:
        """Return the rows, each with the terms of the same row of another, and each term once.

        >>> rows, others = TermRanks(np.array([0, 1]), np.array([5])), TermRanks(np.array([0, 2]), np.array([6, 5]))
        >>> rows.followed_by(others).ranks.tolist()
        [5, 6]
        """
        owners = np.append(self.owners(), other.owners())
        order = np.argsort(owners, kind="stable")
        ranks = np.append(self.ranks, other.ranks)[order]
        return TermRanks(start_of(self.sizes() + other.sizes()), ranks).distinct()

    def any(self, flags: Flags) -> Flags:
        """Return for each row whether one of its terms is flagged."""
        return np.bincount(self.owners()[flags], minlength=len(self)) > 0

    def distinct(self) -> TermRanks:
        """Return the rows without repeated terms.

        Repetitions are rare, so a plain sort (fast) finds them, and only those found are processed further.

            >>> TermRanks(np.array([0, 3, 5]), np.array([5, 6, 5, 5, 4])).distinct().ranks.tolist()
            [5, 6, 5, 4]
        """
        owners = self.owners()
        keys = (owners << 32) | self.ranks
        ordered = np.sort(keys)
        repeated = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
        if not len(repeated):
            return self
        at = np.minimum(np.searchsorted(repeated, keys), len(repeated) - 1)
        suspects = np.flatnonzero(repeated[at] == keys)
        _, firsts = np.unique(keys[suspects], return_index=True)
        keep = np.ones(len(keys), dtype=np.bool_)
        keep[np.delete(suspects, firsts)] = False
        return TermRanks(start_of(np.bincount(owners[keep], minlength=len(self))), self.ranks[keep])

    def pick(self, rng: np.random.Generator, counts: Ints, *, one_of: Flags | None = None) -> TermRanks:
        """Return `counts` random terms of each row, or all where it has fewer.

        Rows with a term flagged in `one_of` keep at least one such term.
        """
        owners, starts = self.owners(), self.indptr[:-1]
        draws = (rng.random(len(owners)) * (1 << _RANDOM_BITS)).astype(np.int64)
        order = np.argsort((owners << _RANDOM_BITS) | draws)
        places = np.arange(len(order))
        if one_of is not None and len(order):
            found = places[one_of[order]]  # ascending, so the first of a row comes first
            rows, firsts = np.unique(owners[order[found]], return_index=True)
            late = found[firsts] - starts[rows] >= counts[rows]  # would not be picked: swap it to the front
            froms, tos = found[firsts][late], starts[rows][late]
            order[froms], order[tos] = order[tos], order[froms]
        picked = order[places - starts[owners] < counts[owners]]
        return TermRanks(start_of(np.minimum(counts, self.sizes())), self.ranks[picked])


class MessageSample(NamedTuple):
    """Random messages."""

    xs: Floats
    ys: Floats
    texts: TermRanks


class SampleSource(Protocol):
    """A source of random messages."""

    @property
    def name(self) -> str:
        """The name; streams of different sources are independent."""

    @property
    def seed(self) -> int:
        """The seed of everything random."""

    @property
    def bounds(self) -> Box:
        """The bounds of the messages."""

    def terms(self) -> pa.StringArray:
        """Return the term of each rank."""

    def sample(self, rng: np.random.Generator, n: int) -> MessageSample:
        """Draw messages."""


def start_of(sizes: Ints) -> Ints:
    """Return where each row starts, and the total at the end.

    >>> start_of(np.array([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    indptr = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=indptr[1:])
    return indptr
