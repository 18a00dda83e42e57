"""Replicated subscriptions: only the first shard that holds one and sees the message reports a match.

    subscription   shards 1, 2, 5      in shard 5: slot -> mask of the shards before, 1 and 2
    message        shards    2, 5      row -> mask of all shards
                             2 reports the match, 5 does not

Masks are those of the routing, see `nearcast.partition.base`. Cost: 8 bytes per slot once a subscription has
several replicas, and a few nanoseconds per match.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from nearcast.model import Matches
from nearcast.partition import Masks

if TYPE_CHECKING:
    from nearcast._jit import Arena

_NAME = "replicas.before"


class Replicas:
    """The earlier shards that hold the subscriptions of a matcher too."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena

    def set(self, slots: npt.NDArray[np.int32], before: Masks) -> None:
        """Store the earlier shards of new subscriptions."""
        if _NAME not in self._arena:
            if not before.any():
                return
            self._arena.new(_NAME, np.uint64, 0)
        self._arena.grow(_NAME, int(slots.max(initial=-1)) + 1)[slots] = before

    def report(self, found: Matches, seen_by: Masks) -> Matches:
        """Return the matches that this shard reports; `seen_by` holds the shards of each row of the batch."""
        if _NAME not in self._arena:
            return found
        keep = self.before(found.slots) & seen_by[found.rows] == 0
        return found if keep.all() else Matches(found.rows[keep], found.slots[keep], found.scores[keep])

    def are_first(self, slots: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        """Return which subscriptions have their first replica here, so that each is counted once."""
        are: npt.NDArray[np.bool_] = self.before(slots) == 0
        return are

    def before(self, slots: npt.NDArray[np.int32]) -> Masks:
        """Return the earlier shards that hold each subscription too."""
        masks: Masks = np.zeros(len(slots), np.uint64)
        if _NAME not in self._arena:
            return masks
        stored = self._arena[_NAME]
        known = slots < len(stored)
        masks[known] = stored[slots[known]]
        return masks
