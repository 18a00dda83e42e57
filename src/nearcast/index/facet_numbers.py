"""Dense numbers of facet values, by which an index keeps its lists of cells, users or open subscriptions apart.

Terms are combined with a facet value, see `nearcast.model.facets`. What is no term, such as a cell, is combined with
the number of the value: 1, 2, 3, ... in the order of first use, and 0 for subscriptions without a facet.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import Arena, Table
from nearcast.model import MessageBatch
from nearcast.model.facet_columns import FacetedRows

__all__ = ["FacetNumbers"]

Longs = NDArray[np.int64]


class FacetNumbers:
    """The facet values of one index in an arena; an arena that holds them already is continued.

    >>> numbers = FacetNumbers(Arena(), "social.facets")
    >>> numbers.add(FacetedRows(np.array([0, 1, 1, 2]), np.array([70, 50])), 3), numbers.values[:3]
    (array([2, 0, 1]), array([ 0, 50, 70]))
    """

    def __init__(self, arena: Arena, prefix: str) -> None:
        self._arena, self._name = arena, f"{prefix}.values"
        if self._name not in arena:
            with arena.together():
                arena.new(self._name, np.int64, 1)
        self._table = Table(arena, f"{prefix}.numbers")
        if not len(self._table):
            self._table.put(0, 0)

    def __len__(self) -> int:
        """Return how many numbers there are, 0 included."""
        return len(self._table)

    @property
    def values(self) -> Longs:
        """int64 (at least as many as there are numbers,): the value of each number."""
        values: Longs = self._arena[self._name]
        return values

    def add(self, facets: FacetedRows | None, n: int) -> Longs:
        """Return the numbers of `n` subscriptions with at most one value each; new values get the next numbers."""
        numbers = np.zeros(n, np.int64)
        if facets is None:
            return numbers
        values = np.unique(facets.values)
        values = values[self._table.get_many(values) < 0]
        first = len(self)
        self._arena.grow_all([self._name], first + values.size)
        self.values[first : first + values.size] = values
        self._table.put_many(values, np.arange(first, first + values.size))
        numbers[np.diff(facets.indptr) > 0] = self._table.get_many(facets.values)
        return numbers

    def of_rows(self, batch: MessageBatch, start: int, stop: int) -> Longs:
        """Return the numbers of rows `start` to `stop`, in an array of all; -1 where no subscription has a value."""
        numbers = np.zeros(len(batch), np.int64)
        if batch.facet_values is not None:
            numbers[start:stop] = self._table.get_many(batch.facet_values[start:stop])
        return numbers
