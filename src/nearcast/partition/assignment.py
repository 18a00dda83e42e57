"""Where does a subscription live that was dealt out? By key, as the fit had it; others go to who has least.

Where several place at once nobody knows who has least: those who come later then go where their key falls.

    keys, shards    those of the sample, in the order of their keys
    loads           what each shard has so far: it grows as others come

Cost: 12 bytes a subscription of the sample, and a search among their keys for each that is placed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from nearcast.partition.base import Masks, ToAll, mask_of
from nearcast.partition.load import assign_greedily

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Assignment:
    """One shard a subscription."""

    keys: npt.NDArray[np.uint64]
    shards: npt.NDArray[np.int32]
    loads: Floats
    """float64 (n_shards,): changes when a subscription is placed that was not in the sample."""
    is_fixed: bool = False

    @classmethod
    def assigned(cls, keys: npt.NDArray[np.uint64], costs: Floats, n_shards: int) -> Assignment:
        """Deal out the subscriptions of a sample, the dearest first."""
        shards = assign_greedily(costs, np.zeros(n_shards))
        return cls.of(keys, shards, np.bincount(shards, weights=costs, minlength=n_shards).astype(np.float64))

    @classmethod
    def of(cls, keys: npt.NDArray[np.uint64], shards: npt.NDArray[np.int32], loads: Floats) -> Assignment:
        """Keep the shards of a sample."""
        order = np.argsort(keys, kind="stable")
        return cls(keys[order], shards[order], loads)

    def place(self, keys: npt.NDArray[np.uint64], costs: Callable[[npt.NDArray[np.int64]], Floats]) -> Masks:
        """Return the home of each; `costs` tells what those rows cost that were not in the sample."""
        at = np.minimum(np.searchsorted(self.keys, keys), max(len(self.keys) - 1, 0))
        known = self.keys[at] == keys if len(self.keys) else np.zeros(len(keys), np.bool_)
        shards = np.zeros(len(keys), np.int32)
        shards[known] = self.shards[at[known]]
        new = np.flatnonzero(~known)
        if self.is_fixed:
            shards[new] = keys[new] % np.uint64(len(self.loads))
        elif len(new):
            wanted = costs(new)
            shards[new] = assign_greedily(wanted, self.loads)
            self.loads[:] += np.bincount(shards[new], weights=wanted, minlength=len(self.loads))
        return mask_of(shards)


class AssignedRouting(ToAll):
    """What routings have in common whose subscriptions were dealt out."""

    assignment: Assignment

    @property
    def loads(self) -> Floats:
        """What its subscriptions cost, of each shard."""
        return self.assignment.loads

    def fixed(self) -> Self:
        """Return one that places those who come later by key."""
        return replace(self, assignment=replace(self.assignment, is_fixed=True))  # type: ignore[type-var]
