"""Rows of messages: each publishes, retracts or replaces a message, as its `op` says.

    op         columns
    null       those of a message; the same as "publish"
    publish    those of a message
    retract    `id`, and optionally `at`; all others are ignored
    replace    those of a message

A retraction is no message: it takes no `seq`. So that blocks can be read, routed and packed as a whole, its row gets
the columns of an empty message, which no shard publishes.

Attributes have columns of the names that users chose. Within a job the columns are numbered, `attribute_0` and so on,
so that no name meets one of the job's own columns, or means something to Spark.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import require
from nearcast.model import Attributes
from nearcast.model.columns import MESSAGES
from nearcast.space import Box

PUBLISH, RETRACT, REPLACE = "publish", "retract", "replace"
OPS = (PUBLISH, RETRACT, REPLACE)

_OF_RETRACTIONS = ("id", "op", "at")
_LATER = ("expires_at", "body")
_FIRST = [field for field in MESSAGES if field.name not in _LATER]
MESSAGE_ROWS = pa.schema([*_FIRST, pa.field("op", pa.string()), *(MESSAGES.field(name) for name in _LATER)])
"""The columns of a frame of messages."""


def attribute_columns(attributes: Attributes) -> dict[str, str]:
    """Return the names of attributes by the columns that they have within a job.

    >>> attribute_columns(Attributes.of({"price": float, "open now": bool}))
    {'attribute_0': 'price', 'attribute_1': 'open now'}
    """
    return {f"attribute_{i}": name for i, name in enumerate(attributes.names)}


def check_op(op: str | None, subject: str) -> None:
    """Raise `InvalidInput` for an unknown operation.

    >>> check_op("delete", "message 'm1'")
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: op must be 'publish', 'retract' or 'replace'; got 'delete' (message 'm1')
    """
    require(op is None or op in OPS, "op", "must be 'publish', 'retract' or 'replace'", op, subject=subject)


def has_ops(table: pa.Table) -> bool:
    """Return whether some row of a table may do something else than publish."""
    return "op" in table.column_names and table["op"].null_count < len(table)


def are(op: str, table: pa.Table) -> npt.NDArray[np.bool_]:
    """Return which rows have an operation."""
    if not has_ops(table):
        return np.zeros(len(table), np.bool_)
    return np.asarray(pc.fill_null(pc.equal(table["op"], op), False))


def readable(table: pa.Table, bounds: Box) -> pa.Table:
    """Return rows as messages: retractions get the columns of an empty message within the bounds."""
    are_retracted = are(RETRACT, table)
    if not are_retracted.any():
        return table
    choice = pa.array(are_retracted)
    blank: dict[str, Any] = {"x": bounds.xmin, "y": bounds.ymin}
    for i, name in enumerate(table.column_names):
        if name not in _OF_RETRACTIONS:
            type_ = table[name].type
            if name == "text":
                blank[name] = "" if pa.types.is_string(type_) or pa.types.is_large_string(type_) else []
            value = pa.scalar(blank.get(name), type_)
            table = table.set_column(i, name, pc.if_else(choice, value, table[name]))
    return table
