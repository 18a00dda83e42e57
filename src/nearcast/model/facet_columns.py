"""Facets: values of attributes by which subscriptions with `where` are found.

    where category = 'bike' AND price BETWEEN 100 AND 120

    category   exactly             bike                    one value
    price      to 3 bits           96 to 112, 112 to 128   two values: cells of a grid over the numbers

A facet is an attribute at some precision. Every value of it has an id, a pseudo-random 64-bit number. A subscription
needs one of a few values of a facet if its condition cannot be true otherwise. An index then lists it under
`term ^ value` instead of `term`, and a message is looked up under the values that it has.

Only tests that the whole condition needs count: `=` and `IN`, and on numbers ranges with both ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.model.attributes import NULL, Attributes, encode_value
from nearcast.model.where import Condition
from nearcast.ragged import positions, starts
from nearcast.text import HashKey, TermRows, term_id

Longs = npt.NDArray[np.int64]

Floats = npt.NDArray[np.float64]

SHIFTS = (0, 44, 49, 52)
"""Bits that a precision drops of a code: none; all but 8, 3 or 0 bits of the fraction of a number."""
_MAX_CELLS = 4
_RANGES = {"<": "high", "<=": "high", ">": "low", ">=": "low"}


class FacetedRows(NamedTuple):
    """The facet values that subscriptions need, each one of a few; most rows may have none."""

    indptr: Longs
    """int64 (n + 1,): the values of each subscription."""
    values: Longs


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
        conditions: Mapping[int, Condition],
        attributes: Attributes,
        key: HashKey,
        *,
        most_values: int,
    ) -> FacetOptions:
        """Return the options of conditions by row; those with more than `most_values` are none."""
        found: list[tuple[int, int, int]] = []
        cells: list[int] = []
        for row, condition in conditions.items():
            for facet, needed in _needed(condition, attributes, key, most_values):
                found.append((row, facet, len(needed)))
                cells += needed
        columns = np.array(found, np.int64).reshape(-1, 3)
        indptr = starts(columns[:, 2])
        facets = np.repeat(columns[:, 1], columns[:, 2])
        return cls(columns[:, 0], columns[:, 1], indptr, value_ids(np.array(cells, np.int64), facets, key))

    @property
    def are_exact(self) -> npt.NDArray[np.bool_]:
        """Which options need values themselves, and not cells of a grid over numbers."""
        are: npt.NDArray[np.bool_] = self.facets % len(SHIFTS) == 0
        return are

    def best(self, ratios: Floats, least: float) -> FacetOptions:
        """Return for each row the option of the greatest ratio, if it is large enough."""
        order = np.lexsort((-ratios, self.rows))
        first = order[np.unique(self.rows[order], return_index=True)[1]]
        return self.take(first[ratios[first] >= least])

    def of_all(self, n: int) -> FacetedRows:
        """Return the values of `n` rows, of which each has at most one option."""
        lengths = np.zeros(n, np.int64)
        lengths[self.rows] = np.diff(self.indptr)
        return FacetedRows(starts(lengths), self.values)

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


def value_ids(cells: Longs, facets: Longs, key: HashKey) -> Longs:
    """Return the ids of values of facets: 64 bits that cannot be predicted without the key."""
    numbers, own = np.unique(facets, return_inverse=True)
    mixed = cells.view(np.uint64) ^ np.array([_secret(number, key) for number in numbers.tolist()], np.uint64)[own]
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):  # the finalizer of SplitMix64
        mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(factor)
    ids: Longs = (mixed ^ (mixed >> np.uint64(31))).view(np.int64)
    return ids


@lru_cache(maxsize=1024)
def _secret(facet: int, key: HashKey) -> int:
    return term_id(f"\0facet {facet}", key) & ((1 << 64) - 1)


def _needed(
    condition: Condition, attributes: Attributes, key: HashKey, most_values: int
) -> Iterator[tuple[int, list[int]]]:
    """Yield facets with those of their cells of which a message must have one."""
    for test in _tests_of(condition):
        if test.operator in ("=", "IN"):
            cells = sorted({encode_value(value, key) for value in test.values})
            if len(cells) <= most_values:
                yield attributes.positions[test.name] * len(SHIFTS), cells
    for name, ends in ends_of_ranges(condition).items():
        if len(ends) == 2:
            yield from _of_range(attributes.positions[name], ends["low"], ends["high"], min(most_values, _MAX_CELLS))


def ends_of_ranges(condition: Condition) -> dict[str, dict[str, float]]:
    """Return by attribute the ends, `low` and `high`, of the range of numbers that a condition needs.

    >>> from nearcast.model.where import parse_where
    >>> ends_of_ranges(parse_where("price > 3 AND price <= 9 AND price < 20 AND size >= 2 AND kind = 'bike'"))
    {'price': {'low': 3.0, 'high': 9.0}, 'size': {'low': 2.0}}
    """
    ranges: dict[str, dict[str, float]] = {}
    for test in _tests_of(condition):
        if test.operator in _RANGES:
            value, ends = float(test.values[0]), ranges.setdefault(test.name, {})
            end = _RANGES[test.operator]
            ends[end] = (max if end == "low" else min)(ends.get(end, value), value)
    return ranges


def _tests_of(condition: Condition) -> Sequence[Condition]:
    """Return the parts of a condition that must all be true."""
    return condition.parts if condition.operator == "AND" else (condition,)


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


def terms_with_values(terms: TermRows, codes: Longs, key: HashKey) -> TermRows:
    """Return the terms of messages and among them, as further terms, the exact values of their attributes."""
    n, n_attributes = codes.shape
    facets = np.arange(n_attributes) * len(SHIFTS)
    values = value_ids(codes.ravel(), np.tile(facets, n), key)
    is_known = codes.ravel() != NULL
    rows = np.concatenate(
        [np.repeat(np.arange(n), np.diff(terms.indptr)), np.repeat(np.arange(n), n_attributes)[is_known]]
    )
    ids = np.concatenate([terms.ids, values[is_known]])
    order = np.lexsort((ids, rows))
    counts = np.concatenate([terms.counts, np.ones(int(is_known.sum()), np.int32)])
    return TermRows(starts(np.bincount(rows, minlength=n)), ids[order], counts[order])
