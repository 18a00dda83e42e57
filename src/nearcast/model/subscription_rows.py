"""How is a subscription written down? As a row of just the columns its kind has, from which it can be made again.

    id, id_int            one of them: 7 and '7' are two ids          user, user_int      likewise
    keywords, terms       one of them: a string, or terms verbatim    x y | xmin..ymax    k alpha delta tau

The columns are those of tables of subscriptions; the second of each pair is what such a table cannot say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import pyarrow as pa

from nearcast.model.columns import SPREAD, SUBSCRIPTIONS, subscription_from_row, subscription_to_row
from nearcast.model.split_columns import PAIRS, join, split
from nearcast.model.subscription import Subscription


def stored_schema(kind: type[Subscription]) -> pa.Schema:
    """Return the columns that subscriptions of a kind are written down in."""
    written: list[pa.Field] = []
    for field in fields(kind):
        if field.name in PAIRS:
            written += PAIRS[field.name]
        elif field.init:
            written += [SUBSCRIPTIONS.field(column) for column in SPREAD.get(field.name, (field.name,))]
    return pa.schema(written)


def store(subscriptions: Sequence[Subscription], kind: type[Subscription]) -> pa.Table:
    """Write down subscriptions of one kind.

    >>> from nearcast.model import NearestSubscription
    >>> store([NearestSubscription(7, location=(0, 0), keywords="a", k=1)], NearestSubscription)["id_int"].to_pylist()
    [7]
    """
    rows = [subscription_to_row(subscription) for subscription in subscriptions]
    columns: dict[str, pa.Array] = {}
    for field in stored_schema(kind):
        if field.name in PAIRS:
            columns |= split(field.name, [row[field.name] for row in rows])
        elif field.name not in columns:
            columns[field.name] = pa.array([row[field.name] for row in rows], field.type)
    return pa.table(columns, schema=stored_schema(kind))


def store_table(table: pa.Table, kind: type[Subscription]) -> pa.Table:
    """Write down the rows of a table of subscriptions, all of one kind and known to be legal."""
    columns = []
    for field in stored_schema(kind):
        if field.name not in table.column_names:
            columns.append(pa.nulls(len(table), field.type))
        else:
            columns.append(table[field.name].cast(field.type))
    return pa.Table.from_arrays(columns, schema=stored_schema(kind))


def restore(table: pa.Table, kind: type[Subscription]) -> list[Subscription]:
    """Make subscriptions again from rows written down."""
    pairs = {name: join(table, name) for name in PAIRS if name in table.column_names}
    made = []
    for i, row in enumerate(table.to_pylist()):
        row |= {name: values[i] for name, values in pairs.items()}
        made.append(subscription_from_row(row, kind, subject=f"subscription {row['id']!r}"))
    return made
