"""Footprints: where a message must lie and which terms it must hold to match. Partitioners see nothing else.

    xs ys           location of the subscription           keys   64-bit key of its id
    boxes           where a message must lie               ks     number of results, 0 for stateless kinds
    branches        a message must hold all terms of one branch; every message holds an empty branch
    mosts           the best score of a message that holds a branch and none before it

A footprint over-approximates: a message that changes the subscription's result always touches the footprint, but a
message that touches it may change nothing. Kinds and partitioners are therefore independent of each other.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt

from nearcast.model.facet_columns import FacetedRows
from nearcast.ragged import positions, starts
from nearcast.space import Box

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]


class Footprint(NamedTuple):
    """The condition that a message must satisfy to matter to one subscription."""

    key: int
    """A 64-bit key of the subscription's id, the same in every process."""
    point: tuple[float, float]
    """Location of the subscription, or the centre of its box."""
    box: Box | None
    """The message must lie here; None means anywhere."""
    k: int
    """Number of results; 0 for stateless kinds."""
    branches: tuple[frozenset[int], ...]
    """The message must hold all terms of one of these sets."""

    def may_match(self, x: float, y: float, terms: Collection[int]) -> bool:
        """Return whether a message may touch the subscription; over-approximates."""
        if self.box is not None and not self.box.contains(x, y):
            return False
        return any(branch.issubset(terms) for branch in self.branches)


@dataclass(frozen=True)
class Footprints(Sequence[Footprint]):
    """The footprints of many subscriptions, as columns."""

    keys: npt.NDArray[np.uint64]
    xs: Floats
    ys: Floats
    boxes: Floats
    """float64 (n, 4): xmin, ymin, xmax, ymax; infinite for anywhere."""
    ks: npt.NDArray[np.int32]
    branch_indptr: Longs
    """int64 (n + 1,): the branches of each subscription, at least one."""
    term_indptr: Longs
    """int64 (n_branches + 1,): the terms of each branch."""
    term_ids: Longs
    """int64 (n_terms,): distinct and ascending within a branch."""
    mosts: Floats | None = None
    """float64 (n_branches,): the best score of a message that holds the branch and none before; None if unknown."""

    @classmethod
    def of_any_term(
        cls,
        keys: npt.NDArray[np.uint64],
        xs: Floats,
        ys: Floats,
        ks: npt.NDArray[np.int32],
        indptr: Longs,
        term_ids: Longs,
        *,
        needs: npt.NDArray[np.bool_],
        boxes: Floats | None = None,
    ) -> Footprints:
        """Return footprints with one branch per term; where `needs` is false, every message holds the branch."""
        lengths = np.diff(indptr)
        branches = np.where(needs, lengths, 1)
        own = np.repeat(needs, lengths)
        return cls(
            keys,
            xs,
            ys,
            anywhere(len(keys)) if boxes is None else boxes,
            ks,
            starts(branches),
            starts(np.repeat(needs, branches).astype(np.int64)),
            term_ids[own],
        )

    @classmethod
    def joined(cls, parts: Sequence[Footprints]) -> Footprints:
        """Concatenate footprints."""
        if not parts:
            none = np.zeros(0)
            return cls(
                none.astype(np.uint64), none, none, anywhere(0), none.astype(np.int32), starts(none), starts(none),
                none.astype(np.int64),
            )  # fmt: skip
        return cls(
            np.concatenate([part.keys for part in parts]),
            np.concatenate([part.xs for part in parts]),
            np.concatenate([part.ys for part in parts]),
            np.concatenate([part.boxes for part in parts]),
            np.concatenate([part.ks for part in parts]),
            starts(np.concatenate([np.diff(part.branch_indptr) for part in parts])),
            starts(np.concatenate([np.diff(part.term_indptr) for part in parts])),
            np.concatenate([part.term_ids for part in parts]),
            None if all(part.mosts is None for part in parts) else np.concatenate([part._bounds for part in parts]),
        )

    def take(self, rows: npt.NDArray[np.int64]) -> Footprints:
        """Return the given rows, in that order."""
        branches, branch_indptr = positions(self.branch_indptr, rows)
        terms, term_indptr = positions(self.term_indptr, branches)
        return Footprints(
            self.keys[rows], self.xs[rows], self.ys[rows], self.boxes[rows], self.ks[rows], branch_indptr,
            term_indptr, self.term_ids[terms], None if self.mosts is None else self.mosts[branches],
        )  # fmt: skip

    def within(self, rows: Longs, boxes: Floats) -> Footprints:
        """Return footprints of which some rows have boxes cut to others; a box that misses the other one stays."""
        own = self.boxes[rows]
        cut = np.hstack([np.maximum(own[:, :2], boxes[:, :2]), np.minimum(own[:, 2:], boxes[:, 2:])])
        meets = (cut[:, :2] <= cut[:, 2:]).all(axis=1)
        narrowed = self.boxes.copy()
        narrowed[rows[meets]] = cut[meets]
        return replace(self, boxes=narrowed)

    def needing(self, values: FacetedRows) -> Footprints:
        """Return footprints of which each branch also needs one of the values of its subscription, as a term."""
        n_values, n_branches = np.diff(values.indptr), np.diff(self.branch_indptr)
        owners = np.repeat(np.arange(len(self)), n_branches)
        copies = np.maximum(n_values, 1)[owners]
        branches = np.repeat(np.arange(len(owners)), copies)
        terms, term_indptr = positions(self.term_indptr, branches)
        with_value = np.flatnonzero(n_values[owners[branches]])
        added, _ = positions(values.indptr, owners[n_values[owners] > 0])
        of_terms = np.concatenate([np.repeat(np.arange(len(branches)), np.diff(term_indptr)), with_value])
        ids = np.concatenate([self.term_ids[terms], values.values[added]])
        return replace(
            self,
            branch_indptr=starts(n_branches * np.maximum(n_values, 1)),
            term_indptr=starts(np.bincount(of_terms, minlength=len(branches))),
            term_ids=ids[np.lexsort((ids, of_terms))],
            mosts=None if self.mosts is None else self.mosts[branches],
        )

    @property
    def _bounds(self) -> Floats:
        return np.full(len(self.term_indptr) - 1, np.inf) if self.mosts is None else self.mosts

    def needed(self, thresholds: Floats) -> npt.NDArray[np.bool_]:
        """Return which branches can bring a message that reaches the threshold; the first branch always can."""
        needed: npt.NDArray[np.bool_] = self._bounds >= np.repeat(thresholds, np.diff(self.branch_indptr))
        needed[self.branch_indptr[:-1]] = True
        return needed

    def narrowed(self, needed: npt.NDArray[np.bool_]) -> tuple[Footprints, Floats]:
        """Return footprints with the needed branches only, and the best score of a message of the others."""
        if needed.all():
            return self, np.full(len(self), -np.inf)
        branches = np.flatnonzero(needed)
        terms, term_indptr = positions(self.term_indptr, branches)
        left = np.where(needed, -np.inf, self._bounds)
        rest = replace(
            self,
            branch_indptr=starts(np.add.reduceat(needed, self.branch_indptr[:-1], dtype=np.int64)),
            term_indptr=term_indptr,
            term_ids=self.term_ids[terms],
            mosts=self._bounds[branches],
        )
        return rest, np.maximum.reduceat(left, self.branch_indptr[:-1])

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, at: int) -> Footprint: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Footprint]: ...
    def __getitem__(self, at: int | slice) -> Footprint | Sequence[Footprint]:
        if isinstance(at, slice):
            return [self[row] for row in range(*at.indices(len(self)))]
        row = range(len(self))[at]
        box = self.boxes[row].tolist()
        bounds = self.term_indptr[self.branch_indptr[row] : self.branch_indptr[row + 1] + 1].tolist()
        return Footprint(
            int(self.keys[row]),
            (float(self.xs[row]), float(self.ys[row])),
            Box(*box) if np.isfinite(box).all() else None,
            int(self.ks[row]),
            tuple(frozenset(self.term_ids[a:b].tolist()) for a, b in pairwise(bounds)),
        )


def anywhere(n: int) -> Floats:
    """Return boxes that contain every message."""
    return np.tile([-np.inf, -np.inf, np.inf, np.inf], (n, 1))
