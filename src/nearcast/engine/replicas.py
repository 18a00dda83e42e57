"""Which shard answers, where several hold a subscription? The first of those that also see the message.

    subscription   shards 1, 2, 5      slot -> mask, 0 for one that is nowhere else
    message        shards    2, 5      row -> mask
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

_NAME = "replicas.masks"


class Replicas:
    """Where else the subscriptions of a matcher live."""

    def __init__(self, arena: Arena, shard: int) -> None:
        self._arena, self._bit = arena, np.uint64(1 << shard)

    def seat(self, slots: npt.NDArray[np.int32], masks: Masks) -> None:
        """Note where subscriptions live that are taken in."""
        several = masks & (masks - np.uint64(1)) != 0
        if _NAME not in self._arena and not several.any():
            return
        if _NAME not in self._arena:
            self._arena.new(_NAME, np.uint64, 0)
        self._arena.grow(_NAME, int(slots.max()) + 1)[slots] = np.where(several, masks, np.uint64(0))

    def own(self, found: Matches, seen_by: Masks) -> Matches:
        """Return the matches that this shard is to tell; `seen_by` says for each row of the batch who sees it."""
        if _NAME not in self._arena:
            return found
        lives = self._masks(found.slots)
        keep = (lives == 0) | (_first(lives & seen_by[found.rows]) == self._bit)
        return found if keep.all() else Matches(found.rows[keep], found.slots[keep], found.scores[keep])

    def are_first(self, slots: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        """Tell which subscriptions have their first home here, so that each is counted once."""
        if _NAME not in self._arena:
            return np.ones(len(slots), np.bool_)
        lives = self._masks(slots)
        are: npt.NDArray[np.bool_] = (lives == 0) | (_first(lives) == self._bit)
        return are

    def _masks(self, slots: npt.NDArray[np.int32]) -> Masks:
        held = self._arena[_NAME]
        masks: Masks = np.zeros(len(slots), np.uint64)
        known = slots < len(held)
        masks[known] = held[slots[known]]
        return masks


def _first(masks: Masks) -> Masks:
    """Return the lowest bit of each."""
    return masks & (~masks + np.uint64(1))
