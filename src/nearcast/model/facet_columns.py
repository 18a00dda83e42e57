"""Facets: what a message must be by its attributes, so that subscriptions with `where` are found by it.

    where category = 'bike' AND price BETWEEN 100 AND 120

    category   exactly             bike                    one value
    price      to 3 bits           96 to 112, 112 to 128   two values: cells of a grid over the numbers

A facet is an attribute at some precision. Every value of it has an id, a pseudo-random 64-bit number. A subscription
needs one of a few values of a facet if its condition cannot be true otherwise. An index then lists it under
`term ^ value` instead of `term`, and a message is looked up under the values that it has.

Only tests that the whole condition needs count: `=` and `IN`, and on numbers ranges with both ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from nearcast.model.attributes import NULL, Attributes, encode_value
from nearcast.model.where import Condition
from nearcast.ragged import positions, starts
from nearcast.text import HashKey, term_id

Longs = npt.NDArray[np.int64]

SHIFTS = (0, 44, 49, 52)
"""Bits that a precision drops of a code: none; all but 8, 3 or 0 bits of the fraction of a number."""
_MAX_CELLS = 4
_RANGES = {"<": "high", "<=": "high", ">": "low", ">=": "low"}


@dataclass(frozen=True)
class FacetOptions:
    """The facets by which the subscriptions of a batch can be found, with the values that they need."""

    rows: Longs
    """int64 (n,): the row of each option, ascending."""
    facets: Longs
    """int64 (n,): the facet of each option: attribute * len(SHIFTS) + precision."""
    indptr: Longs
    """int64 (n + 1,): where the values of each option begin."""
    values: Longs
    """The ids of the values."""

    @classmethod
    def of(
        cls,
        rows: Iterable[int],
        conditions: Iterable[Condition | None],
        attributes: Attributes,
        key: HashKey,
        *,
        most_values: int,
    ) -> FacetOptions:
        """Return the options of conditions, one for each row; those with more than `most_values` are none."""
        found: list[tuple[int, int, int]] = []
        cells: list[int] = []
        for row, condition in zip(rows, conditions, strict=True):
            if condition is not None:
                for facet, needed in _needed(condition, attributes, key, most_values):
                    found.append((row, facet, len(needed)))
                    cells += needed
        columns = np.array(found, np.int64).reshape(-1, 3)
        indptr = starts(columns[:, 2])
        facets = np.repeat(columns[:, 1], columns[:, 2])
        return cls(
            columns[:, 0], columns[:, 1], indptr, value_ids(np.array(cells, np.int64), facets, attributes, key)
        )

    def take(self, options: Longs) -> FacetOptions:
        """Return the given options, in that order."""
        at, indptr = positions(self.indptr, options)
        return FacetOptions(self.rows[options], self.facets[options], indptr, self.values[at])


def n_facets(attributes: Attributes) -> int:
    """Return the number of facets."""
    return len(attributes) * len(SHIFTS)


def cells_of(codes: Longs, facets: Sequence[int]) -> Longs:
    """Return the values of facets that messages have, one column per facet; NULL where a message has none."""
    cells = np.empty((len(codes), len(facets)), np.int64)
    for i, facet in enumerate(facets):
        attribute, precision = divmod(facet, len(SHIFTS))
        own = codes[:, attribute]
        cells[:, i] = np.where(own == NULL, NULL, own >> SHIFTS[precision])
    return cells


def value_ids(cells: Longs, facets: Longs, attributes: Attributes, key: HashKey) -> Longs:
    """Return the ids of values of facets: 64 bits that nobody without the key can foresee."""
    mixed = cells.view(np.uint64) ^ _secrets(attributes, key)[facets]
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):  # the finalizer of SplitMix64
        mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(factor)
    ids: Longs = (mixed ^ (mixed >> np.uint64(31))).view(np.int64)
    return ids


@lru_cache(maxsize=64)
def _secrets(attributes: Attributes, key: HashKey) -> npt.NDArray[np.uint64]:
    names = [f"\0{name}\0{shift}" for name in attributes.names for shift in SHIFTS]
    return np.array([term_id(name, key) for name in names], np.int64).view(np.uint64)


def _needed(
    condition: Condition, attributes: Attributes, key: HashKey, most_values: int
) -> Iterator[tuple[int, list[int]]]:
    """Yield facets with those of their cells of which a message must have one."""
    ranges: dict[str, dict[str, float]] = {}
    for test in condition.parts if condition.operator == "AND" else (condition,):
        if test.operator in ("=", "IN"):
            cells = sorted({encode_value(value, key) for value in test.values})
            if len(cells) <= most_values:
                yield attributes.positions[test.name] * len(SHIFTS), cells
        elif test.operator in _RANGES:
            value, ends = float(test.values[0]), ranges.setdefault(test.name, {})
            end = _RANGES[test.operator]
            ends[end] = (max if end == "low" else min)(ends.get(end, value), value)
    for name, ends in ranges.items():
        if len(ends) == 2:
            yield from _of_range(attributes.positions[name], ends["low"], ends["high"], min(most_values, _MAX_CELLS))


def _of_range(attribute: int, low: float, high: float, most_cells: int) -> Iterator[tuple[int, list[int]]]:
    """Yield the finest facet of numbers of which few cells cover a range."""
    if low > high or (low < 0) != (high < 0):
        return
    nearest, farthest = sorted((low, high), key=abs)  # the codes of numbers of one sign are ordered like their sizes
    first, last = (encode_value(value, b"") for value in (nearest, farthest))
    for precision, shift in enumerate(SHIFTS):
        if (last >> shift) - (first >> shift) < most_cells:
            yield attribute * len(SHIFTS) + precision, list(range(first >> shift, (last >> shift) + 1))
            return
