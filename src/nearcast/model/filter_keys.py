"""Filter keys: numbers that a message must have if it is to pass the filters of a subscription.

    where category = 'bike'       attribute    the value bike, exactly
    where price <= 12             attribute    the values up to 12, as cells of a grid over the numbers
    region circle                 cells        the cells of a grid over the space around the circle
    require "(road OR race) bike" terms        road or race, the rarest word of each branch

A window lists its messages by key, so that a search for a subscription with a selective filter reads these lists and
not those of its words. A *family* is an attribute at some precision, see `facet_columns`, or a level of the grid over
the space: each message has at most one key of a family. A subscription may have several options, each with all keys
of one family of which a message needs one, and a search takes the one with the shortest lists. A range without an
end, or one that covers many cells, names its coarsest cells by their order; those that messages have are known when
a search begins.

Keys never decide: the program of the filter does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nearcast.model.attributes import NULL, Attributes, encode_value
from nearcast.model.expression import Expression
from nearcast.model.facet_columns import SHIFTS, FacetOptions, cells_of, ends_of_ranges, n_facets, value_ids
from nearcast.model.scoring import ScoringContext
from nearcast.model.where import Condition
from nearcast.ragged import starts
from nearcast.space import Space

Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

N_RANKS = 4096
"""The number of the coarsest cells over all numbers: one per sign and exponent."""
LEVELS = (3, 5, 7, 9, 11, 13)
"""Levels of the grid over the space: 2 ** level cells along each axis."""
TERMS = -1
"""The family of keys that are terms."""
_MOST_KEYS = 16
_LEAST_SIDE = 1e-300
_NO_LIMIT = 1 << 62  # expressions were checked against the limits before


@dataclass(frozen=True)
class FilterKeys:
    """The options of those subscriptions of a batch that have some."""

    rows: Longs
    """int64 (n,): the rows, ascending."""
    indptr: Longs
    """int64 (n + 1,): where the words of each begin."""
    words: Longs
    """The number of options, and for each its family, the number of its keys, and the keys."""
    families: Longs
    """The families whose messages have to be listed, ascending."""

    @classmethod
    def of(
        cls,
        scoring: ScoringContext,
        *,
        conditions: Mapping[int, Condition],
        boxes: tuple[Longs, Floats],
        required: Mapping[int, Expression],
    ) -> FilterKeys:
        """Return the keys of conditions, of boxes around regions, and of required expressions, each by row."""
        attributes, key = scoring.attributes, scoring.hash_key
        options = [
            FacetOptions.of(conditions, attributes, key, most_values=_MOST_KEYS),
            _options_of_ranges(conditions, attributes),
            _options_of_boxes(*boxes, scoring),
            _options_of_terms(required, scoring),
        ]
        return cls._of(options, attributes)

    @classmethod
    def _of(cls, options: Sequence[FacetOptions], attributes: Attributes) -> FilterKeys:
        owners = np.concatenate([some.rows for some in options])
        families = np.concatenate([some.facets for some in options])
        lengths = np.concatenate([np.diff(some.indptr) for some in options])
        values = np.concatenate([some.values for some in options])
        order = np.argsort(owners, kind="stable")
        rows, n_options = np.unique(owners, return_counts=True)
        n_words = np.zeros(len(rows), np.int64)
        np.add.at(n_words, np.searchsorted(rows, owners), 2 + lengths)
        indptr = starts(n_words + 1)
        words = np.empty(indptr[-1], np.int64)
        words[indptr[:-1]] = n_options
        # Where each option begins: after the options before it, and after the first word of its row.
        before = starts(2 + lengths[order])[:-1] + np.searchsorted(rows, owners[order]) + 1
        at = np.empty(len(owners), np.int64)
        at[order] = before
        words[at], words[at + 1] = families, lengths
        ends = starts(lengths)
        words[np.repeat(at + 2 - ends[:-1], lengths) + np.arange(ends[-1])] = values
        attribute = families - n_families(attributes)
        listed = np.where(attribute >= 0, coarsest_of(attribute), families)[families != TERMS]
        return cls(rows, indptr, words, np.unique(listed))


def n_families(attributes: Attributes) -> int:
    """Return the number of families; beyond them, each attribute has one more for ranges of its coarsest cells."""
    return n_facets(attributes) + len(LEVELS)


def coarsest_of(attributes: Longs) -> Longs:
    """Return the family of the coarsest cells of attributes."""
    return attributes * len(SHIFTS) + len(SHIFTS) - 1


def ranks_of(codes: Longs) -> Longs:
    """Return the ranks of the coarsest cells of numbers, given their codes; they ascend with the numbers.

    >>> from nearcast.model.attributes import encode_value
    >>> ranks_of(np.array([encode_value(x, b"") for x in (-8.0, -1.5, -1.0, 0.0, 1.0, 1.5, 8.0)])).tolist()
    [1021, 1024, 1024, 2048, 3071, 3071, 3074]
    """
    exponents = (codes >> SHIFTS[-1]) & (N_RANKS // 2 - 1)
    ranks: Longs = np.where(codes < 0, N_RANKS // 2 - 1 - exponents, N_RANKS // 2 + exponents)
    return ranks


def keys_of_messages(families: Longs, codes: Longs | None, xs: Floats, ys: Floats, scoring: ScoringContext) -> Longs:
    """Return the keys of messages, one column per family; 0 where a message has none."""
    n_values = n_facets(scoring.attributes)
    keys = np.zeros((len(xs), len(families)), np.int64)
    are_values = families < n_values
    if are_values.any() and codes is not None:
        own = np.flatnonzero(are_values)
        cells = cells_of(codes, families[own].tolist())
        is_known = codes[:, families[own] // (n_values // codes.shape[1])] != NULL
        ids = value_ids(cells.ravel(), np.tile(families[own], len(xs)), scoring.hash_key).reshape(cells.shape)
        keys[:, own] = np.where(is_known, ids, 0)
    for i in np.flatnonzero(~are_values).tolist():
        level = LEVELS[int(families[i]) - n_values]
        columns, rows = cells_at(xs, ys, level, scoring.space)
        cells = columns << 32 | rows
        keys[:, i] = value_ids(cells, np.full(len(xs), families[i]), scoring.hash_key)
    return keys


def cells_at(xs: Floats, ys: Floats, level: int, space: Space) -> tuple[Longs, Longs]:
    """Return the columns and rows of the cells of points at a level; points outside the bounds take the nearest."""
    bounds, n = space.bounds, 1 << level
    columns = np.floor((xs - bounds.xmin) / max(bounds.xmax - bounds.xmin, _LEAST_SIDE) * n)
    rows = np.floor((ys - bounds.ymin) / max(bounds.ymax - bounds.ymin, _LEAST_SIDE) * n)
    return np.clip(columns, 0, n - 1).astype(np.int64), np.clip(rows, 0, n - 1).astype(np.int64)


def _options_of_ranges(conditions: Mapping[int, Condition], attributes: Attributes) -> FacetOptions:
    """Return the ranges of numbers that conditions need, as the first and the last rank."""
    rows, families, ranks = [], [], []
    for row, condition in conditions.items():
        for name, ends in ends_of_ranges(condition).items():
            low, high = ends.get("low", -np.inf), ends.get("high", np.inf)
            rows.append(row)
            families.append(n_families(attributes) + attributes.positions[name])
            ranks += ranks_of(np.array([encode_value(low, b""), encode_value(high, b"")])).tolist()
    n = len(rows)
    return FacetOptions(_longs(rows), _longs(families), np.arange(n + 1) * 2, _longs(ranks))


def _options_of_boxes(rows: Longs, boxes: Floats, scoring: ScoringContext) -> FacetOptions:
    """Return the cells that boxes touch, of the finest level at which they are few."""
    space, first_family = scoring.space, n_facets(scoring.attributes)
    left = np.arange(len(rows))
    owners, families, lengths, cells = [], [], [], []
    for i in reversed(range(len(LEVELS))):
        first_column, first_row = cells_at(boxes[left, 0], boxes[left, 1], LEVELS[i], space)
        last_column, last_row = cells_at(boxes[left, 2], boxes[left, 3], LEVELS[i], space)
        n_columns, n_rows = last_column - first_column + 1, last_row - first_row + 1
        n = n_columns * n_rows
        fits = np.flatnonzero(n <= _MOST_KEYS)
        n, width = n[fits], n_columns[fits]
        at = np.arange(n.sum()) - np.repeat(starts(n)[:-1], n)
        own_columns = np.repeat(first_column[fits], n) + at % np.repeat(width, n)
        own_rows = np.repeat(first_row[fits], n) + at // np.repeat(width, n)
        owners.append(rows[left[fits]])
        families.append(np.full(len(fits), first_family + i))
        lengths.append(n)
        cells.append(own_columns << 32 | own_rows)
        left = left[n_columns * n_rows > _MOST_KEYS]
    family_of, n = np.concatenate(families), np.concatenate(lengths)
    keys = value_ids(np.concatenate(cells), np.repeat(family_of, n), scoring.hash_key)
    return FacetOptions(np.concatenate(owners), family_of, starts(n), keys)


def _options_of_terms(required: Mapping[int, Expression], scoring: ScoringContext) -> FacetOptions:
    """Return the rarest term of each branch of expressions of which each branch holds one that is not excluded."""
    rows, lengths, ids = [], [], []
    for row, expression in required.items():
        terms = set(_rarest_terms(expression, scoring))
        if None not in terms and len(terms) <= _MOST_KEYS:
            rows.append(row)
            lengths.append(len(terms))
            ids += [scoring.vocabulary.term_id(term) for term in terms if term is not None]
    return FacetOptions(_longs(rows), np.full(len(rows), TERMS), starts(lengths), _longs(ids))


def _rarest_terms(expression: Expression, scoring: ScoringContext) -> Iterator[str | None]:
    """Yield a term of each branch; None for a branch that only excludes."""
    for branch in expression.literal_branches(limit=_NO_LIMIT):
        terms = {term for literal in branch if not literal.is_negated for term in literal.terms}
        yield max(terms, key=lambda term: (scoring.vocabulary.idf(term), term), default=None)


def _longs(values: Sequence[int]) -> Longs:
    return np.array(values, np.int64)
