"""Values of one of two types, stored in two columns of which each row uses one.

id, id_int          a string or an integer: 7 and '7' are two ids
keywords, terms     a string, or a list of verbatim terms
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

PAIRS = {
    name: (pa.field(name, pa.string()), pa.field(f"{name}_int", pa.int64()))
    for name in ("id", "user", "place", "message")
} | {
    "keywords": (pa.field("keywords", pa.string()), pa.field("terms", pa.list_(pa.string()))),
}
"""Name to the column of strings and the column of other values."""


def split(name: str, values: Iterable[Any]) -> dict[str, pa.Array]:
    """Return values as a pair of columns; None is null in both.

    >>> {name: column.to_pylist() for name, column in split("id", ["7", 7]).items()}
    {'id': ['7', None], 'id_int': [None, 7]}
    """
    listed = list(values)
    first, second = PAIRS[name]
    return {
        first.name: pa.array([v if isinstance(v, str) else None for v in listed], first.type),
        second.name: pa.array([None if isinstance(v, str) or v is None else v for v in listed], second.type),
    }


def join(table: pa.Table, name: str) -> list[Any]:
    """Return the values of a pair of columns."""
    first, second = (table[field.name] for field in PAIRS[name])
    strings: list[Any] = first.to_pylist()
    if second.null_count == len(second):
        return strings
    return [a if a is not None else b for a, b in zip(strings, second.to_pylist(), strict=True)]
