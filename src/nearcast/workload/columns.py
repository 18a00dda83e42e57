"""Tables of generated messages and subscriptions.

The columns are those of `nearcast.model.columns`: a kind fills the ones it has, the others are null. Generated text
is a list of terms; recorded text is a string.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.model.columns import MESSAGES as ALL_COLUMNS
from nearcast.model.columns import subscriptions_schema

__all__ = ["MESSAGES", "SUBSCRIPTIONS", "TEXT_MESSAGES", "constant", "fill", "named", "numbered"]

SUBSCRIPTIONS = subscriptions_schema()
TEXT_MESSAGES = pa.schema([ALL_COLUMNS.field(name) for name in ("id", "x", "y", "text", "at", "place")])
MESSAGES = TEXT_MESSAGES.set(TEXT_MESSAGES.get_field_index("text"), pa.field("text", pa.list_(pa.string())))


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
    """Return one id per number.

    >>> named("p", [3, 1]).to_pylist()
    ['p3', 'p1']
    """
    return pc.binary_join_element_wise(prefix, pa.array(numbers).cast(pa.string()), "")


def constant(value: str, n: int) -> pa.StringArray:
    """Return a column with one value in every row."""
    return pa.repeat(pa.scalar(value, pa.string()), n)
