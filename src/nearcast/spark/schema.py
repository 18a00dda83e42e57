"""Columns of Spark frames, derived from those of Arrow tables."""

from __future__ import annotations

import pyarrow as pa

from nearcast.jobs.edge_rows import EDGE_ROWS
from nearcast.jobs.message_rows import MESSAGE_ROWS
from nearcast.model import NO_ATTRIBUTES, Attributes
from nearcast.model.columns import TIMESTAMP, subscriptions_schema

_SPARK_TYPES = {pa.string(): "string", pa.float64(): "double", pa.int32(): "int", TIMESTAMP: "timestamp"}
_ATTRIBUTE_TYPES = {float: "double", int: "bigint", str: "string", bool: "boolean"}


def spark_type(type_: pa.DataType) -> str:
    """Return the name of the Spark type of an Arrow type.

    >>> spark_type(pa.float64())
    'double'
    """
    return _SPARK_TYPES[type_]


def ddl(schema: pa.Schema) -> str:
    """Return a schema as Spark writes it.

    >>> ddl(pa.schema({"id": pa.string(), "k": pa.int32()}))
    'id string, k int'
    """
    return ", ".join(f"{field.name} {spark_type(field.type)}" for field in schema)


def quoted(name: str) -> str:
    """Return the name of a column as Spark's expressions write it, whatever characters it has.

    >>> quoted("a.b")
    '`a.b`'
    """
    return "`" + name.replace("`", "``") + "`"


def messages_ddl(attributes: Attributes = NO_ATTRIBUTES) -> str:
    """Return the columns of a frame of messages.

    >>> messages_ddl(Attributes.of({"open now": bool})).endswith("body string, `open now` boolean")
    True
    """
    own = (f"{quoted(name)} {_ATTRIBUTE_TYPES[attributes.type_of(name)]}" for name in attributes.names)
    return ", ".join([ddl(MESSAGE_ROWS), *own])


def edges_ddl() -> str:
    """Return the columns of a frame of edges."""
    return ddl(EDGE_ROWS)


def subscriptions_ddl() -> str:
    """Return the columns of a frame of subscription operations, for every registered kind."""
    return ddl(subscriptions_schema())
