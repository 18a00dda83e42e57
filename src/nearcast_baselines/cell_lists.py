"""Inverted lists by term and grid cell, with lazy deletion: the common part of `gi2` and `nearest`.

    term id ── table ──> number ─┐
    location ── grid ──> cell ───┴─ table ──> list of items

A deletion leaves stale items on lists. A match that reads a stale item records the list; the next change of the index
removes the stale items of the recorded lists. The match itself removes nothing, since several may run at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import Arena, PostingArrays, Postings, Table, TableArrays, column, kernel
from nearcast.index._kernels.shared.output import MatchOutput
from nearcast.index.base import Matches, Work
from nearcast.index.scratch_pool import OutputWorkspace, ScratchPool
from nearcast.model import MessageBatch
from nearcast.space import Box

CELLS = 64
"""Cells along each axis."""
LOW = 0xFFFFFFFF
"""The lower half of an item."""
ROOM = 1 << 12
"""Matches for which an output has room at first."""
_MAX_STALE = 1 << 12  # lists that one match records; a later match records the others


class CellLists(NamedTuple):
    """The inverted lists of all cells."""

    terms: TableArrays
    """Term id -> number."""
    rows: TableArrays
    """Number and cell -> list."""
    postings: PostingArrays
    """Items with a number of the index in the lower half."""


class CellColumns(NamedTuple):
    """Messages to match."""

    xs: NDArray[np.float64]
    ys: NDArray[np.float64]
    term_indptr: NDArray[np.int64]
    term_ids: NDArray[np.int64]


class StaleLists(NamedTuple):
    """Lists on which a match read stale items."""

    rows: NDArray[np.int64]
    """int64 (room,): the lists; one may be recorded twice."""
    n: NDArray[np.int64]
    """int64 (1,): how many are recorded; lists that find no room are recorded by a later match."""


@kernel
def record_stale(stale: StaleLists, row: int) -> None:
    """Record a list with stale items."""
    if stale.n[0] < stale.rows.size:
        stale.rows[stale.n[0]] = row
        stale.n[0] += 1


@kernel
def cell_along(half_value: float, half_low: float, per_half: float, cells: int) -> int:
    """Return the cell of a coordinate along one axis; halves cannot overflow."""
    return int(min(max((half_value - half_low) * per_half, 0.0), cells - 1.0))


def cells_per_half(bounds: Box, cells: int) -> NDArray[np.float64]:
    """Return the number of cells in half a unit along x and y."""
    halves = np.array([bounds.xmax / 2 - bounds.xmin / 2, bounds.ymax / 2 - bounds.ymin / 2])
    with np.errstate(divide="ignore", over="ignore"):
        return np.minimum(cells / halves, np.finfo(np.float64).max)


class CellListIndex(ABC):
    """An index of inverted lists by term and cell; subclasses define the items and when they are stale."""

    def __init__(self, *, chunk_size: int, room: int) -> None:
        self._scratch_pool = ScratchPool(
            lambda: OutputWorkspace(StaleLists(np.zeros(_MAX_STALE, np.int64), np.zeros(1, np.int64)), room)
        )
        self._arena, self._chunk_size = Arena(), chunk_size
        self._stale_rows: set[int] = set()

    @property
    def work(self) -> Work:
        """Work done so far."""
        return self._scratch_pool.work

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return self._arena.nbytes

    def match(self, batch: MessageBatch, start: int, stop: int) -> Matches:
        """Return the matches of rows `start` to `stop`."""
        lists = CellLists(self._terms.arrays, self._rows.arrays, self._postings.arrays)
        messages = CellColumns(
            column(batch.xs, np.float64),
            column(batch.ys, np.float64),
            column(batch.term_indptr, np.int64),
            column(batch.term_ids, np.int64),
        )
        with self._scratch_pool.take() as workspace:
            stale: StaleLists = workspace.scratch
            stale.n[0] = 0
            matches = workspace.collect(
                lambda row, out: self._match_rows(lists, messages, (row, stop, start), stale, out), start, stop
            )
            self._stale_rows.update(stale.rows[: stale.n[0]].tolist())  # atomic across threads
        return matches

    @abstractmethod
    def _match_rows(
        self,
        lists: CellLists,
        messages: CellColumns,
        rows: tuple[int, int, int],
        stale: StaleLists,
        out: MatchOutput,
    ) -> int:
        """Match messages from the first of three rows to the second; return the row that does not fit, or the second.

        Ends in the output are counted from the third row.
        """

    @abstractmethod
    def _sweep(self, rows: NDArray[np.int64]) -> None:
        """Remove the stale items of some lists."""

    def _make_lists(self) -> None:
        """Create empty lists."""
        self._terms, self._rows = Table(self._arena, "terms"), Table(self._arena, "rows")
        self._postings = Postings(self._arena, "postings", chunk_size=self._chunk_size)
        self._stale_rows.clear()

    def _clean(self) -> None:
        """Remove the stale items of the lists that matches recorded."""
        if self._stale_rows:
            self._sweep(column(sorted(self._stale_rows), np.int64))
            self._stale_rows.clear()
