"""Scratch memory of matches: one workspace per match that runs, so that several may run at once.

    match ── an idle workspace, or a new one ── kernels fill it ── back to the idle ones
                                                    │
    work  ── the sum over all workspaces ───────────┘

A workspace holds the scratch arrays of one match and counts the work done in it. A match has its workspace alone, so
nothing is locked and no count is lost. There are as many workspaces as matches ever ran at once. Taking and returning
one is a `pop` and an `append` of a list, each atomic across threads. A workspace in which a match failed may be in
disorder, so it is not returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import numpy as np

from nearcast.index._kernels.shared.output import MatchOutput
from nearcast.index.base import Matches, Work
from nearcast.worker_pool import apart

__all__ = ["OutputWorkspace", "ScratchPool", "Workspace"]

_SHORT = 4096  # bytes


class Workspace:
    """Counters of the work of one match at a time; indexes that need scratch arrays add them."""

    def __init__(self) -> None:
        self.done = apart(4, np.int64)

    def count(self, *, visited: int, candidates: int, verified: int, matched: int) -> None:
        """Add to the work done here."""
        self.done += visited, candidates, verified, matched

    @property
    def nbytes(self) -> int:
        """Bytes of the scratch arrays."""
        return 0


class OutputWorkspace(Workspace):
    """A workspace for kernels that fill a `MatchOutput` row by row and stop when it is full.

    `scratch` is a NamedTuple of arrays. `room` is the number of matches for which an output has room at the least.
    """

    def __init__(self, scratch: Any, room: int) -> None:
        super().__init__()
        self.scratch = scratch._make(_apart(array) for array in scratch)
        self._room = max(room, 1)
        self._matches_per_row = 0.0

    @property
    def nbytes(self) -> int:
        """Bytes of the scratch arrays."""
        return sum(array.nbytes for array in self.scratch)

    def need(self, length: int, *names: str) -> None:
        """Lengthen scratch arrays; their contents, which never outlive a message, are lost."""
        for name in names:
            array = getattr(self.scratch, name)
            if array.size < length:
                self.scratch = self.scratch._replace(**{name: np.zeros(2 * length, array.dtype)})

    def collect(self, match_rows: Callable[[int, MatchOutput], int], start: int, stop: int) -> Matches:
        """Return the matches of rows `start` to `stop`, and count the work.

        `match_rows(row, out)` matches from a row on and returns the row that does not fit into the output, or `stop`.
        """
        out, row = self._new_output(max(stop - start, 0)), start
        while row < stop:
            row = match_rows(row, out)
            if row < stop:
                out = self.enlarge(out, int(out.ends[row - start - 1]) if row > start else 0)
        n = int(out.ends[-1]) if out.ends.size else 0
        visited, candidates, verified, _ = out.work.tolist()
        self.count(visited=visited, candidates=candidates, verified=verified, matched=n)
        self._matches_per_row = n / max(out.ends.size, 1)
        counts = out.ends.copy()
        counts[1:] -= out.ends[:-1]
        rows = np.repeat(np.arange(start, start + out.ends.size), counts)
        return self._matches(rows, out, n)

    def enlarge(self, out: MatchOutput, n_filled: int) -> MatchOutput:
        """Return an output with twice the room that holds the first `n_filled` matches."""
        slots, scores = np.empty(2 * out.slots.size, np.int32), np.empty(2 * out.scores.size)
        slots[:n_filled], scores[:n_filled] = out.slots[:n_filled], out.scores[:n_filled]
        return out._replace(slots=slots, scores=scores)

    def _room_for(self, n_rows: int) -> int:
        """Return the room for as many matches per row as the last call had, and some more."""
        return self._room + int(1.25 * self._matches_per_row * n_rows)

    def _new_output(self, n_rows: int) -> MatchOutput:
        room = self._room_for(n_rows)
        return MatchOutput(np.empty(room, np.int32), np.empty(room), np.zeros(n_rows, np.int64), apart(4, np.int64))

    def _matches(self, rows: np.ndarray[Any, np.dtype[np.int64]], out: MatchOutput, n: int) -> Matches:
        """Return the first `n` matches; the output is not used again."""
        for array in (out.slots, out.scores):
            array.resize(n, refcheck=False)  # in place: saves a copy of what may be hundreds of megabytes
        return Matches(rows, out.slots, out.scores)


def _apart(array: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[Any]]:
    """Return a copy of a short array that shares no cache line with those of other workspaces."""
    if array.ndim != 1 or array.nbytes > _SHORT:
        return array
    copy = apart(array.size, array.dtype)
    copy[:] = array
    return copy


AnyWorkspace = TypeVar("AnyWorkspace", bound=Workspace)


class ScratchPool(Generic[AnyWorkspace]):
    """The workspaces of one index.

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

    def __init__(self, make: Callable[[], AnyWorkspace]) -> None:
        self._make = make
        self._all: list[AnyWorkspace] = []
        self._idle: list[AnyWorkspace] = []

    @contextmanager
    def take(self) -> Iterator[AnyWorkspace]:
        """Lend a workspace for the length of a block."""
        try:
            workspace = self._idle.pop()
        except IndexError:
            workspace = self._make()
            self._all.append(workspace)
        yield workspace
        self._idle.append(workspace)

    @property
    def work(self) -> Work:
        """Work done in all workspaces."""
        total = np.zeros(4, np.int64)
        for workspace in self._all:
            total += workspace.done
        return Work(*total.tolist())

    @property
    def nbytes(self) -> int:
        """Bytes of all workspaces."""
        return sum(workspace.nbytes for workspace in self._all)
