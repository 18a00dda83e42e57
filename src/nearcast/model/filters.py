"""Filters of subscriptions by slot: programs in an arena, and the pairs of message and subscription that pass them.

    forms     slot -> whether it has a region and a program, one byte
    heads     slot -> its program             words     programs, in blocks that are reused
    regions   slot -> its region

A slot without a program passes every message, and costs nothing as long as no slot has one. Indexes know no filters:
what they find is filtered afterwards, and searches of the window evaluate the same programs.

Cost: a few nanoseconds per test that is evaluated; 25 bytes and more per subscription with filters.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast._jit import Arena, blocks, column
from nearcast.model._kernels import filters as kernels
from nearcast.model._kernels.filters import FilterArrays
from nearcast.model.batch import MessageBatch
from nearcast.model.filter_columns import FilterPrograms
from nearcast.model.matches import Matches
from nearcast.model.slot_words import SlotWords
from nearcast.space import Box, Space
from nearcast.space.region_columns import NO_REGION
from nearcast.space.region_store import RegionStore

_PREFIX, _REGIONS = "filters", "filters.regions"
_N_FILTERS, _N_PHRASES = 0, 1  # positions in the counts


class Filters:
    """The filters of one kind; an arena that holds some already is continued, and one without any stays as it is."""

    def __init__(self, arena: Arena, space: Space) -> None:
        self._arena, self._space = arena, space
        self._programs = SlotWords(arena, _PREFIX)

    def __len__(self) -> int:
        return int(self._array("counts")[_N_FILTERS]) if f"{_PREFIX}.counts" in self._arena else 0

    @property
    def have_phrases(self) -> bool:
        """True once a filter tested the order of terms."""
        return len(self) > 0 and bool(self._array("counts")[_N_PHRASES] > 0)

    @property
    def arrays(self) -> FilterArrays:
        """The current arrays; growth replaces them."""
        if not self._programs:
            return _no_filters()
        heads, words, state = self._programs.arrays
        has_regions = f"{_REGIONS}.lines" in self._arena
        regions = self._regions.arrays if has_regions else _no_filters().regions
        return FilterArrays(self._array("forms"), heads, words, words.view(np.float64), state, regions)

    @cached_property
    def _regions(self) -> RegionStore:
        return RegionStore(self._arena, self._space, prefix=_REGIONS)

    def insert(self, slots: npt.NDArray[np.int32], programs: FilterPrograms) -> None:
        """Insert the programs of subscriptions in free slots."""
        if not len(programs):
            return
        if f"{_PREFIX}.counts" not in self._arena:
            self._arena.new(f"{_PREFIX}.counts", np.int64, 8)
            self._arena.new(f"{_PREFIX}.forms", np.uint8, 0)
        own = column(slots[programs.rows], np.int32)
        if programs.regions.codes.any():
            self._regions.insert(own, programs.regions)
        self._programs.insert(own, programs.indptr, programs.words)
        self._arena.grow(f"{_PREFIX}.forms", int(own.max()) + 1)
        has_region, has_program = programs.regions.codes != NO_REGION, np.diff(programs.indptr) > 0
        self._array("forms")[own] = has_region * kernels.HAS_REGION + has_program * kernels.HAS_PROGRAM
        self._array("counts")[[_N_FILTERS, _N_PHRASES]] += (len(own), programs.n_with_phrases)

    def delete(self, slots: npt.NDArray[np.int32]) -> None:
        """Delete the programs of slots, of which some may have none."""
        if len(self) and len(slots):
            slots = column(slots, np.int32)
            heads = self._programs.arrays.heads
            own = slots[slots < len(heads)]
            own = own[heads[own, 0] >= 0]
            if f"{_REGIONS}.lines" in self._arena:
                self._regions.delete(own)
            self._array("counts")[_N_FILTERS] -= self._programs.delete(own)
            self._array("forms")[own] = 0

    def passing(self, found: Matches, batch: MessageBatch) -> Matches:
        """Return the matches of a batch that pass the filters, in the given arrays where these allow it."""
        if not len(self) or not len(found.slots):
            return found
        messages = batch.ordered_rows_for_filters if self.have_phrases else batch.rows_for_filters
        rows, slots = column(found.rows, np.int64), column(found.slots, np.int32)
        scores = column(found.scores, np.float64)
        n = kernels.keep_passing(self.arrays, messages, rows, slots, scores)
        return Matches(rows[:n], slots[:n], scores[:n])

    def _array(self, name: str) -> npt.NDArray[Any]:
        return self._arena[f"{_PREFIX}.{name}"]


@cache
def _no_filters() -> FilterArrays:
    """Return the arrays where no subscription has a filter."""
    return FilterArrays(
        np.zeros(0, np.uint8), np.zeros((0, 2), np.int64), np.zeros(0, np.int64), np.zeros(0),
        np.zeros(blocks.STATE, np.int64),
        RegionStore(Arena(), Space(Box(0, 0, 1, 1))).arrays,
    )  # fmt: skip
