"""Columns of subscriptions: what indexes and result stores are built from.

    BooleanColumns                                      KeywordColumns (all other kinds)
    xmins ymins xmaxs ymaxs   the boxes                 xs ys          the points
    branch_indptr             branches of a row         term_indptr    terms of a row
    term_indptr               terms of a branch         term_ids       int64, distinct and ascending within a row
    term_ids                  ascending in a branch     term_counts, idfs, units
                                                        ks, alphas, deltas, taus, users   if the kind has them

Term weights are those of the engine's vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.model.expression import Branch, all_of, parse
from nearcast.model.facet_columns import FacetedRows
from nearcast.model.identity import Id
from nearcast.model.split_columns import join
from nearcast.model.table_regions import SIDES, stored_regions
from nearcast.ragged import positions, starts
from nearcast.space import Space
from nearcast.text import Analyzer, TermRows, Vocabulary
from nearcast.text.encode import bytes_of, is_worth_a_kernel

if TYPE_CHECKING:
    from nearcast.model.scoring import ScoringContext

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]

_WORD = "[a-z0-9]+"
_ALL = f"^{_WORD}(?:(?: AND)? {_WORD})*$"
_ANY = f"^{_WORD}(?: OR {_WORD})+$"
_NO_LIMIT = 1 << 62  # the expression was checked against the limits before


@dataclass(frozen=True)
class BooleanColumns:
    """Boxes and canonical ORs of ANDs."""

    xmins: Floats
    ymins: Floats
    xmaxs: Floats
    ymaxs: Floats
    branch_indptr: Longs
    """int64 (n + 1,): the branches of each subscription."""
    term_indptr: Longs
    """int64 (n_branches + 1,): the terms of each branch."""
    term_ids: Longs
    """int64 (n_terms,): term ids, distinct and ascending within a branch."""

    def __len__(self) -> int:
        return len(self.xmins)

    def under(self, facets: FacetedRows | None) -> BooleanColumns:
        """Return branches of terms combined with facet values: each branch once for each value."""
        if facets is None:
            return self
        n_values = np.diff(facets.indptr)
        copies, n_branches = np.maximum(n_values, 1), np.diff(self.branch_indptr)
        # One row per subscription and value, which has the branches of the subscription.
        owners = np.repeat(np.arange(len(self)), copies)
        values = np.zeros(len(owners), np.int64)
        values[np.repeat(n_values > 0, copies)] = facets.values
        branches, _ = positions(self.branch_indptr, owners)
        terms, term_indptr = positions(self.term_indptr, branches)
        of_branches = np.repeat(values, n_branches[owners])
        return replace(
            self,
            branch_indptr=starts(n_branches * copies),
            term_indptr=term_indptr,
            term_ids=self.term_ids[terms] ^ np.repeat(of_branches, np.diff(term_indptr)),
        )

    @classmethod
    def of_stored(cls, table: pa.Table, scoring: ScoringContext) -> BooleanColumns:
        """Return stored subscriptions as columns; expressions of one operator are read column by column.

        Boxes enclose regions of another form. What expressions exclude is left out, and phrases are their terms.
        """
        vocabulary = scoring.vocabulary
        keywords = table["keywords"].combine_chunks()
        is_all, is_any = _operators(keywords)
        groups = [
            _plain(keywords, is_all, " AND ", vocabulary),
            _apart(_plain(keywords, is_any, " OR ", vocabulary)),
        ]
        others = np.flatnonzero(~is_all & ~is_any)
        groups.append(_parsed(table, others, vocabulary))
        owners, lengths, terms = (np.concatenate(parts) for parts in zip(*groups, strict=True))
        order = np.argsort(owners, kind="stable")
        at, indptr = positions(starts(lengths), order)
        branches = np.bincount(owners, minlength=len(table))
        return cls(
            *_boxes(table, scoring.space),
            starts(branches),
            indptr,
            terms[at],
        )


@dataclass(frozen=True)
class KeywordColumns:
    """Locations, weighted terms, and the parameters of the kind; parameters it does not have are NaN, 0 or None."""

    xs: Floats
    ys: Floats
    term_indptr: Longs
    """int64 (n + 1,): the terms of each subscription."""
    term_ids: Longs
    """int64 (n_terms,): term ids, distinct and ascending within a row."""
    term_counts: Ints
    """int32 (n_terms,): occurrences of each."""
    idfs: Floats
    """float64 (n_terms,): idf of each."""
    units: Floats
    """float64 (n_terms,): tf-idf of each, in a vector of length 1."""
    ks: Ints
    alphas: Floats
    deltas: Floats
    taus: Floats
    users: list[Id | None]

    def __len__(self) -> int:
        return len(self.xs)

    def terms_under(self, facets: FacetedRows | None) -> Longs:
        """Return the terms combined with the facet value of each subscription, of which each has at most one."""
        if facets is None:
            return self.term_ids
        values = np.zeros(len(self), np.int64)
        values[np.diff(facets.indptr) > 0] = facets.values
        return self.term_ids ^ np.repeat(values, np.diff(self.term_indptr))

    @classmethod
    def of_stored(cls, table: pa.Table, vocabulary: Vocabulary) -> KeywordColumns:
        """Return stored subscriptions as columns."""
        rows = _encode_keywords(table, vocabulary)
        idfs, units = vocabulary.weigh(rows.ids, rows.counts, rows.indptr)
        has = set(table.column_names)
        return cls(
            _floats(table, "x"),
            _floats(table, "y"),
            rows.indptr,
            rows.ids,
            rows.counts,
            idfs,
            units,
            table["k"].to_numpy().astype(np.int32) if "k" in has else np.zeros(len(table), dtype=np.int32),
            _floats(table, "alpha"),
            _floats(table, "delta"),
            _floats(table, "tau"),
            join(table, "user") if "user" in has else [None] * len(table),
        )


def _boxes(table: pa.Table, space: Space) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the sides of a box around each region."""
    sides = np.column_stack([_floats(table, name) for name in SIDES])
    others = np.flatnonzero(~(sides[:, 0] <= sides[:, 2]))
    if len(others):
        filters = [json.loads(one or "{}") for one in table["filters"].take(others).to_pylist()]
        regions = {row: one["region"] for row, one in enumerate(filters) if "region" in one}
        sides[others] = stored_regions(regions, sides[others]).bounding_boxes(space)
    xmins, ymins, xmaxs, ymaxs = sides.T
    return xmins, ymins, xmaxs, ymaxs


SubscriptionColumns = BooleanColumns | KeywordColumns


def _encode_keywords(table: pa.Table, vocabulary: Vocabulary) -> TermRows:
    """Return the terms of stored keywords."""
    keywords = table["keywords"]
    return vocabulary.encode(join(table, "keywords") if keywords.null_count else keywords.combine_chunks())


def are_plain(keywords: pa.Array) -> npt.NDArray[np.bool_]:
    """Return which expressions use one operator only."""
    return np.logical_or(*_operators(keywords))


def _operators(keywords: pa.Array) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return which expressions need all of their words, and which any of them."""
    if keywords.null_count or not is_worth_a_kernel(len(keywords)):
        return _which(keywords, _ALL), _which(keywords, _ANY)
    from nearcast.model._kernels.expressions import ALL, ANY, classify_expressions

    kinds = np.empty(len(keywords), np.int8)
    classify_expressions(*bytes_of(keywords), kinds)
    return kinds == ALL, kinds == ANY


Branches = tuple[Longs, Longs, Longs]
"""Row and length of each branch, and the terms of all branches."""


def _which(keywords: pa.Array, pattern: str) -> npt.NDArray[np.bool_]:
    matched = pc.fill_null(pc.match_substring_regex(keywords, pattern), False)
    return np.asarray(matched.to_numpy(zero_copy_only=False), dtype=bool)


def _plain(keywords: pa.Array, chosen: npt.NDArray[np.bool_], operator: str, vocabulary: Vocabulary) -> Branches:
    """Read expressions of one operator as one branch each."""
    rows = np.flatnonzero(chosen)
    words = pc.replace_substring(keywords.take(pa.array(rows)), operator, " ")
    terms = vocabulary.encode(words)
    return rows, np.diff(terms.indptr), terms.ids


def _apart(branches: Branches) -> Branches:
    """Return every term as a branch."""
    owners, lengths, terms = branches
    return np.repeat(owners, lengths), np.ones(len(terms), dtype=np.int64), terms


def _parsed(table: pa.Table, rows: Longs, vocabulary: Vocabulary) -> Branches:
    """Parse expressions one by one."""
    owners: list[int] = []
    flat: list[list[int]] = []
    given = join(table.take(pa.array(rows)), "keywords")
    for row, keywords in zip(rows.tolist(), given, strict=True):
        for branch in _branches(keywords, vocabulary.analyzer):
            owners.append(row)
            flat.append(sorted(map(vocabulary.term_id, branch)))
    lengths = np.array([len(branch) for branch in flat], dtype=np.int64)
    return np.array(owners, dtype=np.int64), lengths, np.array([t for b in flat for t in b], dtype=np.int64)


def _branches(keywords: str | Sequence[str], analyzer: Analyzer) -> Iterable[Branch]:
    expression = parse(keywords, analyzer=analyzer) if isinstance(keywords, str) else all_of(keywords)
    return expression.branches(limit=_NO_LIMIT)


def _floats(table: pa.Table, name: str) -> Floats:
    if name not in table.column_names:
        return np.full(len(table), np.nan)
    return np.ascontiguousarray(table[name].to_numpy(), dtype=np.float64)
