"""Columns of Spark frames, derived from those of Arrow tables."""

from __future__ import annotations

import pyarrow as pa

from nearcast.jobs.edge_rows import EDGE_ROWS
from nearcast.jobs.message_rows import MESSAGE_ROWS
from nearcast.model.columns import TIMESTAMP, subscriptions_schema

_SPARK_TYPES = {pa.string(): "string", pa.float64(): "double", pa.int32(): "int", TIMESTAMP: "timestamp"}


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


def messages_ddl() -> str:
    """Return the columns of a frame of messages."""
    return ddl(MESSAGE_ROWS)


def edges_ddl() -> str:
    """Return the columns of a frame of edges."""
    return ddl(EDGE_ROWS)


def subscriptions_ddl() -> str:
    """Return the columns of a frame of subscription operations, for every registered kind."""
    return ddl(subscriptions_schema())
