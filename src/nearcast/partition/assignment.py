"""Assignment of subscriptions to shards, by key: as fitted for those of the sample, by least load for later ones.

Where several processes place subscriptions, none knows the current loads: later subscriptions then go to the shard of
their key.

    keys, shards    subscriptions of the sample, in the order of their keys
    loads           the load of each shard; it grows with later subscriptions

Cost: 12 bytes per subscription of the sample, and one binary search per placement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from nearcast.partition.base import ToAll
from nearcast.partition.load import assign_greedily
from nearcast.partition.masks import Masks, mask_of, shards_by_key

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Assignment:
    """One shard per subscription."""

    keys: npt.NDArray[np.uint64]
    shards: npt.NDArray[np.int32]
    loads: Floats
    """float64 (n_shards,): grows with each subscription that was not in the sample."""
    is_fixed: bool = False

    @classmethod
    def assigned(cls, keys: npt.NDArray[np.uint64], costs: Floats, n_shards: int) -> Assignment:
        """Assign the subscriptions of a sample, the most expensive first."""
        shards = assign_greedily(costs, np.zeros(n_shards))
        return cls.of(keys, shards, np.bincount(shards, weights=costs, minlength=n_shards).astype(np.float64))

    @classmethod
    def of(cls, keys: npt.NDArray[np.uint64], shards: npt.NDArray[np.int32], loads: Floats) -> Assignment:
        """Return an assignment with given shards."""
        order = np.argsort(keys, kind="stable")
        return cls(keys[order], shards[order], loads)

    def place(self, keys: npt.NDArray[np.uint64], costs: Callable[[npt.NDArray[np.int64]], Floats]) -> Masks:
        """Return the shard of each subscription; `costs` returns the costs of rows that were not in the sample."""
        at = np.minimum(np.searchsorted(self.keys, keys), max(len(self.keys) - 1, 0))
        known = self.keys[at] == keys if len(self.keys) else np.zeros(len(keys), np.bool_)
        shards = np.zeros(len(keys), np.int32)
        shards[known] = self.shards[at[known]]
        new = np.flatnonzero(~known)
        if self.is_fixed:
            shards[new] = shards_by_key(keys[new], len(self.loads))
        elif len(new):
            wanted = costs(new)
            shards[new] = assign_greedily(wanted, self.loads)
            self.loads[:] += np.bincount(shards[new], weights=wanted, minlength=len(self.loads))
        return mask_of(shards, len(self.loads))


class AssignedRouting(ToAll):
    """Base class of routings with an assignment of subscriptions."""

    assignment: Assignment

    @property
    def loads(self) -> Floats:
        """The cost of the subscriptions of each shard."""
        return self.assignment.loads

    def fixed(self) -> Self:
        """Return a routing that places later subscriptions by key."""
        return replace(self, assignment=replace(self.assignment, is_fixed=True))  # type: ignore[type-var]
