"""Stored subscriptions: tables with just the columns of one kind, from which the objects can be made again.

    id, id_int            one of them is set: 7 and '7' differ        user, user_int      likewise
    keywords, terms       one of them is set: a string, or a list of verbatim terms
    x, y, xmin, ..., k, alpha, ..., expires_at    one column each, as in tables of subscriptions
    filters               JSON with those of region, where and require that no other column holds; null without any;
                          polygons as WKB in hexadecimal digits, which is read several times as fast as GeoJSON

The second column of a pair holds what a table of subscriptions cannot express.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.model.columns import subscriptions_from_table
from nearcast.model.split_columns import PAIRS, join, split
from nearcast.model.subscription import FILTERS, Subscription
from nearcast.model.table_regions import SIDES, read_regions, to_stored
from nearcast.model.timestamps import to_us
from nearcast.space import Box, MultiPolygon, Polygon
from nearcast.space.region_columns import BOX
from nearcast.space.region_formats import to_wkb


def stored_schema(kind: type[Subscription]) -> pa.Schema:
    """Return the columns in which subscriptions of a kind are stored."""
    columns = list(PAIRS["id"])
    for name, type_ in kind.all_field_types().items():
        if name not in FILTERS or not type_.is_optional:
            columns += type_.stored(name)
    return pa.schema([*columns, pa.field("filters", pa.string())])


def _filters_of(subscription: Subscription) -> str | None:
    """Return the filters of a subscription as JSON, with a region that is no box; None if it has none."""
    types = subscription.all_field_types()
    filters = {
        name: types[name].to_json(value)
        for name in FILTERS
        if name in types and (value := getattr(subscription, name)) is not None
    }
    if isinstance(subscription.region, Box) and not types["region"].is_optional:
        del filters["region"]
    elif isinstance(subscription.region, (Polygon, MultiPolygon)):
        filters["region"] = to_wkb(subscription.region).hex()
    return json.dumps(filters) if filters else None


def store(subscriptions: Sequence[Subscription], kind: type[Subscription]) -> pa.Table:
    """Return subscriptions of one kind as a stored table.

    >>> from nearcast.model import NearestSubscription
    >>> store([NearestSubscription(7, location=(0, 0), keywords="a", k=1)], NearestSubscription)["id_int"].to_pylist()
    [7]
    """
    rows = [subscription.to_row() | {"filters": _filters_of(subscription)} for subscription in subscriptions]
    columns: dict[str, pa.Array] = {}
    for field in stored_schema(kind):
        if field.name in PAIRS:
            columns |= split(field.name, [row[field.name] for row in rows])
        elif pa.types.is_timestamp(field.type):
            times = [None if row[field.name] is None else to_us(row[field.name]) for row in rows]
            columns[field.name] = pa.array(times, pa.int64()).cast(field.type)
        elif field.name not in columns:
            columns[field.name] = pa.array([row.get(field.name) for row in rows], field.type)
    return pa.table(columns, schema=stored_schema(kind))


def store_table(table: pa.Table, kind: type[Subscription]) -> pa.Table:
    """Return a table of subscriptions, all of one kind and known to be valid, as a stored table.

    Columns are copied, except that rows with `require` or with regions as text become objects, one by one.
    """
    become_objects = kind.rows_alone(table, FILTERS)
    if not become_objects.any():
        return _store_columns(table, kind)
    objects = list(subscriptions_from_table(table.filter(pa.array(become_objects))))
    others = _store_columns(table.filter(pa.array(~become_objects)), kind)
    rows = np.concatenate([np.flatnonzero(~become_objects), np.flatnonzero(become_objects)])
    return pa.concat_tables([others, store(objects, kind)]).take(pa.array(np.argsort(rows)))


def _store_columns(table: pa.Table, kind: type[Subscription]) -> pa.Table:
    columns = []
    for field in stored_schema(kind):
        if field.name == "filters":
            columns.append(_store_filters(table, kind, field.type))
        elif field.name not in table.column_names:
            columns.append(pa.nulls(len(table), field.type))
        else:
            columns.append(table[field.name].cast(field.type, safe=not pa.types.is_floating(field.type)))
    return pa.Table.from_arrays(columns, schema=stored_schema(kind))


def _store_filters(table: pa.Table, kind: type[Subscription], type_: pa.DataType) -> pa.Array:
    """Return regions and conditions as the JSON of filters; boxes only if no other columns hold them."""
    taken = kind.taken_columns()["region"].intersection(table.column_names)
    regions = read_regions(table.drop_columns(list(taken)), "region")
    assert regions is not None
    if not kind.all_field_types()["region"].is_optional:
        regions = regions.take(np.where(regions.codes == BOX, -1, np.arange(len(regions))))
    given = {}
    if regions.codes.any():
        given["region"] = to_stored(regions)
    if "where" in table.column_names and table["where"].null_count < len(table):
        given["where"] = table["where"].to_pylist()
    if not given:
        return pa.nulls(len(table), type_)
    texts: list[str | None] = []
    for values in zip(*given.values(), strict=True):
        filters = {name: value for name, value in zip(given, values, strict=True) if value is not None}
        texts.append(json.dumps(filters) if filters else None)
    return pa.array(texts, type_)


def restore(table: pa.Table, kind: type[Subscription]) -> list[Subscription]:
    """Return the subscriptions of a stored table as objects."""
    pairs = {name: join(table, name) for name in PAIRS if name in table.column_names}
    made = []
    for i, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(
                i, field.name, pc.divide(table[i].cast(pa.int64()).cast(pa.float64(), safe=False), 1e6)
            )
    for i, row in enumerate(table.to_pylist()):
        row |= {name: values[i] for name, values in pairs.items()}
        if row["filters"] is not None:
            filters = json.loads(row["filters"])
            row |= filters | (dict.fromkeys(SIDES) if "region" in filters else {})
        made.append(kind.from_row(row, subject=f"subscription {row['id']!r}"))
    return made
