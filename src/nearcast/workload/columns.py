"""Which columns does a table of messages or subscriptions have?

The columns of DESIGN.md part 3, in one fixed order and with one fixed type each, whatever made the table:

    messages        id x y text at place             text: a list of terms; a string where the data is real
    subscriptions   op id kind x y xmin ymin xmax ymax keywords k alpha delta tau user at
                    `-- a kind fills the columns it has, the others are null

"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_TIME = pa.timestamp("us", tz="UTC")

MESSAGES = pa.schema(
    [
        ("id", pa.string()),
        ("x", pa.float64()),
        ("y", pa.float64()),
        ("text", pa.list_(pa.string())),
        ("at", _TIME),
        ("place", pa.string()),
    ]
)

TEXT_MESSAGES = MESSAGES.set(MESSAGES.get_field_index("text"), pa.field("text", pa.string()))

SUBSCRIPTIONS = pa.schema(
    [
        ("op", pa.string()),
        ("id", pa.string()),
        ("kind", pa.string()),
        ("x", pa.float64()),
        ("y", pa.float64()),
        ("xmin", pa.float64()),
        ("ymin", pa.float64()),
        ("xmax", pa.float64()),
        ("ymax", pa.float64()),
        ("keywords", pa.string()),
        ("k", pa.int32()),
        ("alpha", pa.float64()),
        ("delta", pa.float64()),
        ("tau", pa.float64()),
        ("user", pa.string()),
        ("at", _TIME),
    ]
)


def fill(schema: pa.Schema, n: int, columns: Mapping[str, Any]) -> pa.Table:
    """Return a table of `n` rows with the given columns, and nulls in the others.

    >>> fill(MESSAGES, 2, {"id": numbered("m", 7, 2)}).to_pylist()[1]["id"]
    'm8'
    """
    arrays = []
    for field in schema:
        values = columns.get(field.name)
        arrays.append(pa.nulls(n, field.type) if values is None else pa.array(values, field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def numbered(prefix: str, first: int, n: int) -> pa.StringArray:
    """Return the ids `prefix` + first, first + 1, ...

    >>> numbered("u", 9, 2).to_pylist()
    ['u9', 'u10']
    """
    return named(prefix, np.arange(first, first + n))


def named(prefix: str, numbers: Any) -> pa.StringArray:
    """Return one id a number.

    >>> named("p", [3, 1]).to_pylist()
    ['p3', 'p1']
    """
    return pc.binary_join_element_wise(prefix, pa.array(numbers).cast(pa.string()), "")


def constant(value: str, n: int) -> pa.StringArray:
    """Return a column that says the same in every row."""
    return pa.repeat(pa.scalar(value, pa.string()), n)
