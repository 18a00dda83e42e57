"""Batches of subscriptions of one kind: a stored table, and other forms of it on demand.

objects ──┐                       ┌── objects, scorers         for the reference index and result stores
          ├── stored table ───────┤
a table ──┘                       └── columns, footprints      for the fast ones, and for partitioners
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.model.columns import one_array
from nearcast.model.expression import Expression
from nearcast.model.facet_columns import FacetedRows, FacetOptions
from nearcast.model.filter_columns import FilterPrograms
from nearcast.model.filter_keys import FilterKeys
from nearcast.model.filter_program import IN_ITS_REGION, Predicate, test_of_where
from nearcast.model.footprint import Footprints
from nearcast.model.id_column import IdColumn
from nearcast.model.scoring import ScoringContext
from nearcast.model.subscription import Scorer, Subscription
from nearcast.model.subscription_columns import SubscriptionColumns
from nearcast.model.subscription_rows import restore, store
from nearcast.model.table_regions import SIDES, stored_regions
from nearcast.model.timestamps import NEVER
from nearcast.model.where import Condition, parse_where
from nearcast.space.region_columns import RegionColumns

_MOST_COPIES = 64
"""The most branches with values that a subscription may have for partitioners."""


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
        attributes, key = self.scoring.attributes, self.scoring.hash_key
        need_objects = self.kind.rows_with_tests(self.stored, self.scoring)
        need_objects[[row for row, filters in self._filters.items() if "require" in filters]] = True
        tests: dict[int, Mapping[str, Predicate]] = {
            row: {"where": test_of_where(condition, attributes, key)}
            for row, condition in self._conditions.items()
            if not need_objects[row]
        }
        for row in np.flatnonzero(self.kind.rows_testing_region(self.regions) & ~need_objects).tolist():
            tests[row] = {**tests.get(row, {}), "region": IN_ITS_REGION}
        rows = np.flatnonzero(need_objects)
        for row, one in zip(rows.tolist(), self._objects(rows), strict=True):
            tests[row] = one.filter_tests(self.scoring)
        return FilterPrograms.of(dict(sorted(tests.items())), self.regions)

    @cached_property
    def regions(self) -> RegionColumns:
        """The region of each subscription."""
        filters = {row: filters["region"] for row, filters in self._filters.items() if "region" in filters}
        if all(side in self.stored.column_names for side in SIDES):
            sides = np.column_stack([self.stored[side].to_numpy() for side in SIDES])
        else:
            sides = np.full((len(self), len(SIDES)), np.nan)
        return stored_regions(filters, sides)

    def _objects(self, rows: npt.NDArray[np.int64]) -> list[Subscription]:
        if "subscriptions" in self.__dict__:
            return [self.subscriptions[row] for row in rows.tolist()]
        return self.take(rows).subscriptions if len(rows) else []

    @cached_property
    def _filters(self) -> dict[int, dict[str, Any]]:
        """The filters of the subscriptions that have some, by row and by field."""
        filters = self.stored["filters"]
        rows = np.flatnonzero(filters.is_valid().to_numpy())
        return dict(zip(rows.tolist(), map(json.loads, filters.drop_null().to_pylist()), strict=True))

    @cached_property
    def _conditions(self) -> dict[int, Condition]:
        """The conditions of the subscriptions that have one, by row."""
        return {row: parse_where(filters["where"]) for row, filters in self._filters.items() if "where" in filters}

    def facet_options(self, most_values: int) -> FacetOptions:
        """Return the facets by which the subscriptions can be found, of at most so many values each."""
        scoring = self.scoring
        return FacetOptions.of(self._conditions, scoring.attributes, scoring.hash_key, most_values=most_values)

    @cached_property
    def filter_keys(self) -> FilterKeys:
        """The numbers of which a message needs some to pass the filters."""
        return FilterKeys.of(
            self.scoring, conditions=self._conditions, boxes=self._boxes_of_regions, required=self._required
        )

    @cached_property
    def _required(self) -> dict[int, Expression]:
        """The expressions that messages must fulfil, by row."""
        rows = [row for row, filters in self._filters.items() if "require" in filters]
        found = zip(rows, self._objects(np.array(rows, np.int64)), strict=True)
        expressions = {row: one.required(self.scoring) for row, one in found}
        return {row: expression for row, expression in expressions.items() if expression is not None}

    @cached_property
    def _boxes_of_regions(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """The rows with a region, and a box around each."""
        rows = np.array([row for row, filters in self._filters.items() if "region" in filters], np.int64)
        boxes = self.regions.take(rows).bounding_boxes(self.scoring.space) if len(rows) else np.empty((0, 4))
        return rows, boxes

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
        footprints = self.kind.footprints(self.columns, self.keys, self.scoring)
        rows, boxes = self._boxes_of_regions
        return footprints.within(rows, boxes) if len(rows) else footprints

    @cached_property
    def routing_footprints(self) -> Footprints:
        """The footprints as partitioners see them: with a value that each message must have, where there is one."""
        footprints = self.footprints
        options = self.facet_options(_MOST_COPIES) if self._conditions else None
        if options is None or not options.are_exact.any():
            return footprints
        exact = options.take(np.flatnonzero(options.are_exact))
        n_copies = np.diff(exact.indptr) * np.diff(footprints.branch_indptr)[exact.rows]
        chosen = exact.best(_MOST_COPIES / n_copies, 1.0)
        return footprints.needing(chosen.of_all(len(self)))
