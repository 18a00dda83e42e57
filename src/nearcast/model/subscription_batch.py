"""Batches of subscriptions of one kind: a stored table, and other forms of it on demand.

objects ──┐                       ┌── objects, scorers         for the reference index and result stores
          ├── stored table ───────┤
a table ──┘                       └── columns, footprints      for the fast ones, and for partitioners
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.model.columns import one_array
from nearcast.model.facet_columns import FacetOptions
from nearcast.model.filter_columns import FilterPrograms
from nearcast.model.footprint import Footprints
from nearcast.model.id_column import IdColumn
from nearcast.model.scoring import ScoringContext
from nearcast.model.subscription import Scorer, Subscription
from nearcast.model.subscription_columns import FacetedRows, SubscriptionColumns
from nearcast.model.subscription_rows import restore, store
from nearcast.model.timestamps import NEVER
from nearcast.model.where import parse_where


@dataclass(frozen=True)
class SubscriptionBatch:
    """Subscriptions of one kind that are added together."""

    kind: type[Subscription]
    stored: pa.Table
    """The stored rows, see `subscription_rows`."""
    scoring: ScoringContext
    facets: FacetedRows | None = None
    """The facet values under which an index lists the subscriptions; None if there are none."""

    def __len__(self) -> int:
        return len(self.stored)

    @classmethod
    def of(cls, subscriptions: Sequence[Subscription], scoring: ScoringContext) -> SubscriptionBatch:
        """Return a batch of objects of one kind, at least one."""
        kind = type(subscriptions[0])
        made = cls(kind, store(subscriptions, kind), scoring)
        made.__dict__["subscriptions"] = list(subscriptions)
        return made

    def take(self, rows: npt.NDArray[np.int64]) -> SubscriptionBatch:
        """Return the given rows, in that order."""
        return SubscriptionBatch(self.kind, self.stored.take(pa.array(rows)), self.scoring)

    @cached_property
    def ids(self) -> IdColumn:
        """The ids."""
        names, numbers = (one_array(self.stored[name]) for name in ("id", "id_int"))
        return IdColumn(names, numbers)

    @cached_property
    def keys(self) -> npt.NDArray[np.uint64]:
        """The key of each id."""
        return self.ids.keys(self.scoring.hash_key)

    @cached_property
    def expires_us(self) -> npt.NDArray[np.int64] | None:
        """When each subscription expires, in microseconds since the epoch, or NEVER; None if none does."""
        ends = self.stored["expires_at"]
        if ends.null_count == len(ends):
            return None
        times: npt.NDArray[np.int64] = pc.fill_null(ends.cast(pa.int64()), NEVER).to_numpy()
        return times

    @cached_property
    def subscriptions(self) -> list[Subscription]:
        """The objects."""
        return restore(self.stored, self.kind)

    @cached_property
    def scorers(self) -> list[Scorer]:
        """The reference score of each subscription, None for messages that its filters exclude."""
        return [subscription.scorer(self.scoring) for subscription in self.subscriptions]

    @cached_property
    def programs(self) -> FilterPrograms:
        """The filter programs of the subscriptions that have one."""
        return FilterPrograms.of(*self._filtered, self.scoring)

    @cached_property
    def _filtered(self) -> tuple[npt.NDArray[np.int64], list[Subscription]]:
        """The rows of subscriptions that may have filters, and these subscriptions."""
        rows = np.flatnonzero(self.kind.rows_with_filters(self.stored, self.scoring))
        return rows, self.take(rows).subscriptions if len(rows) else []

    def facet_options(self, most_values: int) -> FacetOptions:
        """Return the facets by which the subscriptions can be found, of at most so many values each."""
        rows, subscriptions = self._filtered
        conditions = [None if one.where is None else parse_where(one.where) for one in subscriptions]
        key = self.scoring.hash_key
        return FacetOptions.of(rows.tolist(), conditions, self.scoring.attributes, key, most_values=most_values)

    def under(self, facets: FacetedRows) -> SubscriptionBatch:
        """Return the subscriptions listed under facet values."""
        made = replace(self, facets=facets)
        made.__dict__.update({name: value for name, value in self.__dict__.items() if name not in made.__dict__})
        return made

    @cached_property
    def columns(self) -> SubscriptionColumns:
        """The columns that an index is built from."""
        return self.kind.subscription_columns(self.stored, self.scoring)

    @cached_property
    def footprints(self) -> Footprints:
        """The footprint of each subscription."""
        return self.kind.footprints(self.columns, self.keys, self.scoring)
