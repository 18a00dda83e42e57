"""What can touch a subscription? A box and sets of terms; all that partitioners and dispatchers see of it.

A footprint over-approximates: a message that changes the subscription's result always touches the footprint, but one
that touches it may change nothing. So a new kind and a new partitioner never have to meet.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from nearcast.space import Box


class Footprint(NamedTuple):
    """Where and about what a message must be to matter."""

    key: int
    """A 64-bit key of the subscription's id, the same in every process."""
    box: Box | None
    """The message must lie here; None means anywhere."""
    terms: tuple[frozenset[int], ...]
    """The message must hold a term from each of these sets; none means any message."""

    def may_match(self, x: float, y: float, terms: Collection[int]) -> bool:
        """Tell whether a message may touch the subscription; over-approximates."""
        if self.box is not None and not self.box.contains(x, y):
            return False
        return all(not needed.isdisjoint(terms) for needed in self.terms)
