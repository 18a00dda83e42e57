"""How do subscriptions travel inside? As columns, one slate a kind: what an index or a keeper is built from.

    BooleanSlate                                        KeywordSlate (all other kinds)
    xmins ymins xmaxs ymaxs   the boxes                 xs ys          the points
    branch_indptr             branches of a row         term_indptr    terms of a row
    term_indptr               terms of a branch         term_ids       int64, distinct and ascending within a row
    term_ids                  ascending in a branch     term_counts, idfs, units
                                                        ks, alphas, deltas, taus, users   what the kind has

Values are those of the subscriptions; numbers of terms and weights are those of the engine's vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from nearcast.model.identity import Id
from nearcast.text import Vocabulary, term_id

if TYPE_CHECKING:
    from nearcast.model.boolean import BooleanSubscription
    from nearcast.model.subscription import KeywordSubscription

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class BooleanSlate:
    """Boxes and canonical ORs of ANDs."""

    xmins: Floats
    ymins: Floats
    xmaxs: Floats
    ymaxs: Floats
    branch_indptr: Longs
    """int64 (n + 1,): the branches of each subscription."""
    term_indptr: Longs
    """int64 (n_branches + 1,): the terms of each branch."""
    term_ids: Longs
    """int64 (n_terms,): term numbers, distinct and ascending within a branch."""

    def __len__(self) -> int:
        return len(self.xmins)

    @classmethod
    def of(cls, subscriptions: Sequence[BooleanSubscription]) -> BooleanSlate:
        """Put subscription objects into columns."""
        boxes = np.array([s.region.as_tuple() for s in subscriptions], dtype=np.float64).reshape(-1, 4)
        branches = [s.branches(limit=1 << 62) for s in subscriptions]
        flat = [sorted(map(term_id, branch)) for row in branches for branch in row]
        return cls(
            np.ascontiguousarray(boxes[:, 0]),
            np.ascontiguousarray(boxes[:, 1]),
            np.ascontiguousarray(boxes[:, 2]),
            np.ascontiguousarray(boxes[:, 3]),
            _indptr(map(len, branches), len(branches)),
            _indptr(map(len, flat), len(flat)),
            np.array([number for branch in flat for number in branch], dtype=np.int64),
        )


@dataclass(frozen=True)
class KeywordSlate:
    """Points and weighted terms, and the parameters that the kind has; the others are NaN, 0 or None."""

    xs: Floats
    ys: Floats
    term_indptr: Longs
    """int64 (n + 1,): the terms of each subscription."""
    term_ids: Longs
    """int64 (n_terms,): term numbers, distinct and ascending within a row."""
    term_counts: Ints
    """int32 (n_terms,): how often each is given."""
    idfs: Floats
    """float64 (n_terms,): idf of each."""
    units: Floats
    """float64 (n_terms,): tf-idf of each, in a vector of length 1."""
    ks: Ints
    alphas: Floats
    deltas: Floats
    taus: Floats
    users: list[Id | None]

    def __len__(self) -> int:
        return len(self.xs)

    @classmethod
    def of(cls, subscriptions: Sequence[KeywordSubscription], vocabulary: Vocabulary) -> KeywordSlate:
        """Put subscription objects into columns."""
        points = np.array([s.location for s in subscriptions], dtype=np.float64).reshape(-1, 2)
        indptr = _indptr((len(s.counts) for s in subscriptions), len(subscriptions))
        ids = np.array([number for s in subscriptions for number in s.terms], dtype=np.int64)
        counts = np.array([n for s in subscriptions for n in s.counts.values()], dtype=np.int32)
        idfs, units = vocabulary.weigh(ids, counts, indptr)

        def floats(name: str) -> Floats:
            return np.array([getattr(s, name, np.nan) for s in subscriptions], dtype=np.float64)

        return cls(
            np.ascontiguousarray(points[:, 0]),
            np.ascontiguousarray(points[:, 1]),
            indptr,
            ids,
            counts,
            idfs,
            units,
            np.array([getattr(s, "k", 0) for s in subscriptions], dtype=np.int32),
            floats("alpha"),
            floats("delta"),
            floats("tau"),
            [getattr(s, "user", None) for s in subscriptions],
        )


Slate = BooleanSlate | KeywordSlate


def _indptr(lengths: object, n: int) -> Longs:
    indptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.fromiter(lengths, dtype=np.int64, count=n), out=indptr[1:])  # type: ignore[call-overload]
    return indptr
