"""Which shard answers, where several hold a subscription? The first of those that also see the message.

    subscription   shards 1, 2, 5      in shard 5: slot -> mask of those before, 1 and 2
    message        shards    2, 5      row -> mask of all
                             2 answers, 5 is silent

Masks are those of the routing, see `nearcast.partition.base`. Cost: 8 bytes a slot once some subscription has several
homes, and a few nanoseconds a match.
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
    """Where else the subscriptions of a matcher live."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena

    def allocate(self, slots: npt.NDArray[np.int32], before: Masks) -> None:
        """Note which shards before this one hold subscriptions that are taken in."""
        if _NAME not in self._arena:
            if not before.any():
                return
            self._arena.new(_NAME, np.uint64, 0)
        self._arena.grow(_NAME, int(slots.max(initial=-1)) + 1)[slots] = before

    def own(self, found: Matches, seen_by: Masks) -> Matches:
        """Return the matches that this shard is to tell; `seen_by` says for each row of the batch who sees it."""
        if _NAME not in self._arena:
            return found
        keep = self._before(found.slots) & seen_by[found.rows] == 0
        return found if keep.all() else Matches(found.rows[keep], found.slots[keep], found.scores[keep])

    def are_first(self, slots: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        """Tell which subscriptions have their first home here, so that each is counted once."""
        if _NAME not in self._arena:
            return np.ones(len(slots), np.bool_)
        are: npt.NDArray[np.bool_] = self._before(slots) == 0
        return are

    def _before(self, slots: npt.NDArray[np.int32]) -> Masks:
        held = self._arena[_NAME]
        masks: Masks = np.zeros(len(slots), np.uint64)
        known = slots < len(held)
        masks[known] = held[slots[known]]
        return masks
