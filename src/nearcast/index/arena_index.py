"""Base classes of the indexes whose arrays live in an arena.

    ArenaIndex      arrays under a common prefix, a pool of workspaces, work and size
    GroupedIndex    the same with one list of grouped postings per term

An arena that already holds the arrays of an index is continued: its subscriptions are there at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from nearcast._jit import Arena, Table
from nearcast.index._kernels.shared.grouped_postings import LANES, LONGEST, TILE, GroupedPostings
from nearcast.index._kernels.shared.term_numbers import number_terms
from nearcast.index.base import Work
from nearcast.index.scratch_pool import AnyWorkspace, ScratchPool
from nearcast.model._kernels import blocks

__all__ = ["ArenaIndex", "ArrayLayout", "GroupedIndex"]

_TERMS_AT_ONCE = 4096  # terms for which the table gets room at a time


class ArrayLayout(NamedTuple):
    """An array of an index, empty when the index is new."""

    dtype: DTypeLike
    columns: int | None = None
    fill: Any = 0


class ArenaIndex(Generic[AnyWorkspace]):
    """Arrays of an arena under one prefix, and the workspaces of the matches that read them."""

    prefix: ClassVar[str]
    """Name of the index, and first part of the names of its arrays."""

    def __init__(self, arena: Arena | None, make_workspace: Callable[[], AnyWorkspace]) -> None:
        self._arena = Arena() if arena is None else arena
        self._scratch_pool = ScratchPool(make_workspace)

    @property
    def work(self) -> Work:
        """Work done so far."""
        return self._scratch_pool.work

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays of the index and of its workspaces."""
        return sum(self._arena[name].nbytes for name in self._own_names()) + self._scratch_pool.nbytes

    def _own_names(self) -> list[str]:
        return [name for name in self._arena.names if name.startswith(f"{self.prefix}.")]

    def _is_new(self, name: str) -> bool:
        """Return whether the arena does not hold an array of the index yet."""
        return f"{self.prefix}.{name}" not in self._arena

    def _new_arrays(self, specs: Mapping[str, ArrayLayout]) -> None:
        for name, spec in specs.items():
            self._arena.new(f"{self.prefix}.{name}", spec.dtype, 0, spec.fill, columns=spec.columns)

    def _new_pool(self, name: str) -> None:
        """Add the state of a pool of blocks, all of them still to be taken."""
        self._arena.new(f"{self.prefix}.{name}", np.int64, blocks.STATE)[blocks.FIRST : LONGEST] = -1

    def _array(self, name: str) -> NDArray[Any]:
        return self._arena[f"{self.prefix}.{name}"]

    def _grow(self, length: int, *names: str) -> bool:
        """Grow arrays that belong together to at least a length; return whether they had to."""
        if self._array(names[0]).shape[0] >= length:
            return False
        self._arena.grow_all([f"{self.prefix}.{name}" for name in names], length)
        return True


class GroupedIndex(ArenaIndex[AnyWorkspace]):
    """One list of grouped postings per term, the terms by dense number.

    `arrays` are those of the index beside the postings; `lists` names the ones with a row per term. A posting has
    `n_fields` lanes, a group `n_bounds` bounds.
    """

    lists: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        arena: Arena | None,
        make_workspace: Callable[[], AnyWorkspace],
        *,
        arrays: Mapping[str, ArrayLayout],
        n_fields: int,
        n_bounds: int,
    ) -> None:
        super().__init__(arena, make_workspace)
        if self._is_new("postings.pool"):
            with self._arena.together():
                self._new_arrays(arrays)
                self._new_arrays(
                    {
                        "postings.bodies": ArrayLayout(np.float32, n_fields * LANES),
                        "postings.slots": ArrayLayout(np.int32),
                        "postings.tiles": ArrayLayout(np.float32, n_bounds * TILE),
                    }
                )
                self._new_pool("postings.pool")
        self._table = Table(self._arena, f"{self.prefix}.table")

    def _number(self, term_ids: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the dense numbers of terms; new terms get the next numbers and empty lists."""
        numbers = np.empty(term_ids.size, np.int32)
        for first in range(0, term_ids.size, _TERMS_AT_ONCE):
            part = slice(first, first + _TERMS_AT_ONCE)
            self._table.reserve(len(self._table) + term_ids[part].size)
            number_terms(self._table.arrays, term_ids[part], numbers[part])
        self._grow(len(self._table), *self.lists)
        return numbers

    def _make_room(self) -> None:
        """Grow the pool of postings by what a kernel found missing."""
        pool = self._array("postings.pool")
        needed = int(pool[blocks.USED] + pool[blocks.NEEDED])
        pool[blocks.NEEDED] = 0
        self._grow(-(-needed // LANES), "postings.bodies")
        n_groups = self._array("postings.bodies").shape[0]
        self._grow(n_groups * LANES, "postings.slots")
        self._grow(-(-n_groups // TILE), "postings.tiles")

    def _postings(self) -> GroupedPostings:
        bodies = self._array("postings.bodies")
        return GroupedPostings(
            bodies,
            bodies.view(np.int32),
            self._array("postings.slots")[: bodies.shape[0] * LANES],  # arrays grow by steps of their own
            self._array("postings.tiles"),
            self._array("postings.pool"),
        )
