"""Replicated subscriptions: only the first shard that holds one and sees the message reports a match.

    subscription   shards 1, 2, 5      in shard 5: slot -> mask of the shards before, 1 and 2
    message        shards    2, 5      row -> mask of all shards
                             2 reports the match, 5 does not

Masks are those of the routing, see `nearcast.partition.masks`. Cost: 8 bytes per slot and 64 shards once a
subscription has several replicas, and a few nanoseconds per match.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from nearcast.model import Matches
from nearcast.partition import Masks, are_empty

if TYPE_CHECKING:
    from nearcast._jit import Arena

_NAME = "replicas.before"


class Replicas:
    """The earlier shards that hold the subscriptions of a matcher too."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena

    @property
    def n_words(self) -> int:
        """The number of words of a stored set of shards; 0 if none is stored."""
        return int(self._arena[_NAME].shape[1]) if _NAME in self._arena else 0

    def set(self, slots: npt.NDArray[np.int32], before: Masks | None) -> None:
        """Store the earlier shards of new subscriptions; None if there are none."""
        if _NAME not in self._arena:
            if before is None or not before.any():
                return
            self._arena.new(_NAME, np.uint64, 0, columns=before.shape[1])
        self._arena.grow(_NAME, int(slots.max(initial=-1)) + 1)[slots] = 0 if before is None else before

    def report(self, found: Matches, seen_by: Masks | None) -> Matches:
        """Return the matches that this shard reports.

        `seen_by` holds the shards of each row of the batch; None if all shards see every message.
        """
        before = self.before(found.slots)
        if before is None:
            return found
        keep = are_empty(before if seen_by is None else before & seen_by[found.rows])
        return found if keep.all() else Matches(found.rows[keep], found.slots[keep], found.scores[keep])

    def are_first(self, slots: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        """Return which subscriptions have their first replica here, so that each is counted once."""
        before = self.before(slots)
        return np.ones(len(slots), np.bool_) if before is None else are_empty(before)

    def before(self, slots: npt.NDArray[np.int32]) -> Masks | None:
        """Return the earlier shards that hold each subscription too; None if none does."""
        if _NAME not in self._arena:
            return None
        stored = self._arena[_NAME]
        masks: Masks = np.zeros((len(slots), stored.shape[1]), np.uint64)
        known = slots < len(stored)
        masks[known] = stored[slots[known]]
        return masks
