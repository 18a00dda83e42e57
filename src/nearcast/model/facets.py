"""The facets of one kind: by which attribute each subscription is found, and messages as an index sees them.

    subscription  bike, road    category = 'bike'       is listed under  bike ^ c1, road ^ c1
    message       red bike      category = 'bike'       is looked up as  red, bike      and as  red ^ c1, bike ^ c1

An index gets one row per message and facet in use beside the row of the message itself, and its matches are mapped
back. One that finds subscriptions by terms alone needs to know no more; one that also has lists by place or by user
keeps these apart by value (`nearcast.index.facet_numbers`). A subscription is listed under one facet or none, so that
no message finds it twice.

A facet must divide the messages: it is used where at least 4 times as many values are known as a subscription needs.
Of several the one with the most is used. Which one is used changes the work, never the answer: the filters of
subscriptions are evaluated afterwards in any case.

Cost: a lookup per term and facet for messages whose value some subscription needs; 23 to 45 bytes per value that was
ever needed.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from nearcast._jit import Arena, Table
from nearcast.model.batch import MessageBatch
from nearcast.model.facet_columns import FacetOptions, cells_of, n_facets, value_ids
from nearcast.model.matches import Matches
from nearcast.model.scoring import ScoringContext
from nearcast.model.subscription_batch import SubscriptionBatch
from nearcast.ragged import starts
from nearcast.text import TermRows

_PREFIX = "facets"
LEAST_RATIO = 4
"""The least number of values that are known of a facet, for each value that a subscription needs."""
_KNOWN, _USED = 0, 1  # columns of the counts

Longs = npt.NDArray[np.int64]


class Facets:
    """The facets that the subscriptions of one kind are listed under."""

    def __init__(self, arena: Arena, scoring: ScoringContext, *, most_values: int) -> None:
        self._arena, self._scoring, self._most_values = arena, scoring, most_values

    def choose(self, subscriptions: SubscriptionBatch) -> SubscriptionBatch:
        """Return subscriptions with the facet values under which an index lists them."""
        if self._most_values == 0 or not len(subscriptions.programs):
            return subscriptions
        options = subscriptions.facet_options(self._most_values)
        if not len(options.rows):
            return subscriptions
        self._count_values(options)
        ratios = self._counts[options.facets, _KNOWN] / np.diff(options.indptr)
        chosen = options.best(ratios, LEAST_RATIO)
        if not len(chosen.rows):
            return subscriptions
        np.add.at(self._counts[:, _USED], chosen.facets, 1)
        return subscriptions.under(chosen.of_all(len(subscriptions)))

    def rows_of(self, batch: MessageBatch) -> MessageBatch:
        """Return the rows under which the messages of a batch are looked up, `n_rows` for each."""
        facets = self._in_use
        if not len(facets) or batch.codes is None:
            return batch
        made = batch.faceted.get(self)
        version = int(self._counts.sum())
        if made is None or made[0] != version:
            made = batch.faceted[self] = version, self._expanded(batch, facets)
        return made[1]

    @property
    def n_rows(self) -> int:
        """The number of rows for each message."""
        return 1 + len(self._in_use)

    def of_messages(self, found: Matches) -> Matches:
        """Return the matches of rows as those of messages."""
        return found if self.n_rows == 1 else Matches(found.rows // self.n_rows, found.slots, found.scores)

    def _expanded(self, batch: MessageBatch, facets: Longs) -> MessageBatch:
        scoring, codes, terms = self._scoring, batch.codes, batch.terms
        assert codes is not None
        each = np.tile(facets, len(batch))
        values = value_ids(cells_of(codes, facets.tolist()).ravel(), each, scoring.hash_key)
        is_known = self._values.get_many(values) >= 0
        own = np.insert(values.reshape(len(batch), len(facets)), 0, 0, axis=1).ravel()
        is_looked_up = np.insert(is_known.reshape(len(batch), len(facets)), 0, True, axis=1)
        lengths = np.where(is_looked_up, np.diff(terms.indptr)[:, None], 0).ravel()
        indptr = starts(lengths)
        rows = np.repeat(np.arange(len(batch)), 1 + len(facets))
        at = np.repeat(terms.indptr[rows] - indptr[:-1], lengths) + np.arange(indptr[-1])
        combined = TermRows(indptr, terms.ids[at] ^ np.repeat(own, lengths), terms.counts[at])
        return batch.with_terms(combined, rows, weights=(batch.idfs[at], batch.units[at]), facet_values=own)

    @cached_property
    def _values(self) -> Table:
        return Table(self._arena, f"{_PREFIX}.values")

    @property
    def _counts(self) -> Longs:
        """int64 (n_facets, 2): the values that are known, and the subscriptions that were listed under the facet."""
        name = f"{_PREFIX}.counts"
        if name not in self._arena:
            self._arena.new(name, np.int64, n_facets(self._scoring.attributes), columns=2)
        counts: Longs = self._arena[name]
        return counts

    @property
    def _in_use(self) -> Longs:
        if f"{_PREFIX}.counts" not in self._arena:
            return np.zeros(0, np.int64)
        return np.flatnonzero(self._counts[:, _USED])

    def _count_values(self, options: FacetOptions) -> None:
        """Add the values that were unknown so far."""
        values, first = np.unique(options.values, return_index=True)
        owners = np.repeat(options.facets, np.diff(options.indptr))[first]
        is_new = self._values.get_many(values) < 0
        self._values.put_many(values[is_new], owners[is_new])
        np.add.at(self._counts[:, _KNOWN], owners[is_new], 1)
