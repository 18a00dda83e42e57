"""What can touch a subscription? A box and sets of terms; all that partitioners and dispatchers see of it.

A footprint over-approximates: a message that changes the subscription's result always touches the footprint, but one
that touches it may change nothing. So a new kind and a new partitioner never have to meet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt

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


class Footprints(Sequence[Footprint]):
    """The footprints of many subscriptions; their keys are at hand, the rest is made when someone asks."""

    def __init__(self, keys: npt.NDArray[np.uint64], make: Callable[[], Sequence[Footprint]]) -> None:
        self.keys = keys
        """uint64 (n,): the key of each."""
        self._make = make

    @classmethod
    def of(cls, footprints: Sequence[Footprint]) -> Footprints:
        """Gather footprints that are made already."""
        return cls(np.array([footprint.key for footprint in footprints], dtype=np.uint64), lambda: footprints)

    @cached_property
    def _made(self) -> Sequence[Footprint]:
        return self._make()

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, at: int) -> Footprint: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Footprint]: ...
    def __getitem__(self, at: int | slice) -> Footprint | Sequence[Footprint]:
        return self._made[at]
