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
from typing import Any, Generic, TypeVar

import numpy as np

from nearcast.index.base import Matches, Work

__all__ = ["OutputWorkspace", "ScratchPool", "Workspace", "doubled"]


class Workspace:
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


class OutputWorkspace(Workspace):
    """A desk with arrays to work in, and an output for kernels that write matches row by row and stop if it is full.

    `scratch` is a NamedTuple of arrays; an `output` is one of slots, scores, where the matches of each row end, and
    the work that was done.
    """

    def __init__(self, scratch: Any, output: Callable[..., Any], room: int) -> None:
        super().__init__()
        self.scratch = scratch
        self._output = output
        self._room = max(room, 1)
        self._a_row = 0.0

    @property
    def nbytes(self) -> int:
        """Bytes of the room to work."""
        return sum(array.nbytes for array in self.scratch)

    def need(self, length: int, *names: str) -> None:
        """Make arrays long enough; between messages they hold nothing that has to stay."""
        for name in names:
            array = getattr(self.scratch, name)
            if array.size < length:
                self.scratch = self.scratch._replace(**{name: np.zeros(2 * length, array.dtype)})

    def output(self, n_rows: int) -> Any:
        """Return room for as many matches a row as there were the last time, and some more."""
        room = self._room + int(1.25 * self._a_row * n_rows)
        return self._output(
            np.empty(room, np.int32), np.empty(room), np.zeros(n_rows, np.int64), np.zeros(4, np.int64)
        )

    def tally(self, out: Any) -> int:
        """Count what was done, and return how many matches there are."""
        n = int(out.ends[-1]) if out.ends.size else 0
        visited, candidates, verified, _ = out.work.tolist()
        self.count(visited=visited, candidates=candidates, verified=verified, matched=n)
        self._a_row = n / max(out.ends.size, 1)
        return n

    def finish(self, out: Any, start: int) -> Matches:
        """Count what was done, and return what was found; rows are numbered from `start` on."""
        n = self.tally(out)
        rows = np.repeat(np.arange(start, start + out.ends.size), np.diff(out.ends, prepend=0))
        return Matches(rows, out.slots[:n].copy(), out.scores[:n].copy())


def doubled(out: Any, filled: int) -> Any:
    """Return an output with twice the room, that holds what there is."""
    slots, scores = np.empty(2 * out.slots.size, np.int32), np.empty(2 * out.slots.size)
    slots[:filled], scores[:filled] = out.slots[:filled], out.scores[:filled]
    return out._replace(slots=slots, scores=scores)


Kind = TypeVar("Kind", bound=Workspace)


class ScratchPool(Generic[Kind]):
    """The desks of one index.

    >>> scratch_pool = ScratchPool(Workspace)
    >>> with scratch_pool.take() as one, scratch_pool.take() as other:
    ...     one.count(visited=5, candidates=3, verified=2, matched=1)
    ...     other.count(visited=1, candidates=0, verified=0, matched=0)
    >>> scratch_pool.work
    Work(visited=6, candidates=3, verified=2, matched=1)
    >>> with scratch_pool.take() as again:
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
            workspace = self._idle.pop()
        except IndexError:
            workspace = self._make()
            self._all.append(workspace)
        yield workspace
        self._idle.append(workspace)

    @property
    def work(self) -> Work:
        """What was done at all of them."""
        total = np.zeros(4, np.int64)
        for workspace in self._all:
            total += workspace.done
        return Work(*total.tolist())

    @property
    def nbytes(self) -> int:
        """Bytes of all of them."""
        return sum(workspace.nbytes for workspace in self._all)
