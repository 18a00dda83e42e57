"""Where does a match work? At a desk of its own, so that several may run at once.

    match ── an idle desk, or a new one ── kernels fill it ── back to the idle ones
                                              │
    work  ── the sum over all desks ──────────┘

A desk has room to work and counts what was done there. Whoever takes one has it alone, so nothing is locked and no
count is lost. There are as many as matches ever ran at once. Taking and giving back are a `pop` and an `append` of a
list, each one step for all threads; a desk that an error left in disorder is not given back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import numpy as np

from nearcast.index.matches import Work

__all__ = ["Desk", "Desks"]


class Desk:
    """Room for one match at a time; indexes that need more than counters add to it."""

    def __init__(self) -> None:
        self.done = np.zeros(4, np.int64)

    def count(self, *, visited: int, candidates: int, verified: int, matched: int) -> None:
        """Add to the work done here."""
        self.done += visited, candidates, verified, matched

    @property
    def nbytes(self) -> int:
        """Bytes of the room to work."""
        return 0


Kind = TypeVar("Kind", bound=Desk)


class Desks(Generic[Kind]):
    """The desks of one index.

    >>> desks = Desks(Desk)
    >>> with desks.take() as one, desks.take() as other:
    ...     one.count(visited=5, candidates=3, verified=2, matched=1)
    ...     other.count(visited=1, candidates=0, verified=0, matched=0)
    >>> desks.work
    Work(visited=6, candidates=3, verified=2, matched=1)
    >>> with desks.take() as again:
    ...     again in (one, other)
    True
    """

    def __init__(self, make: Callable[[], Kind]) -> None:
        self._make = make
        self._all: list[Kind] = []
        self._idle: list[Kind] = []

    @contextmanager
    def take(self) -> Iterator[Kind]:
        """Have a desk for the length of a block."""
        try:
            desk = self._idle.pop()
        except IndexError:
            desk = self._make()
            self._all.append(desk)
        yield desk
        self._idle.append(desk)

    @property
    def work(self) -> Work:
        """What was done at all of them."""
        total = np.zeros(4, np.int64)
        for desk in self._all:
            total += desk.done
        return Work(*total.tolist())

    @property
    def nbytes(self) -> int:
        """Bytes of all of them."""
        return sum(desk.nbytes for desk in self._all)
