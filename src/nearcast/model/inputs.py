"""What callers may pass instead of a table or a list of objects.

Arrow record batches and readers, pandas and Polars frames,
anything else with the Arrow PyCapsule interface             ── a table
one message, one subscription, one id, dicts                 ── a list of objects
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from nearcast.errors import InvalidInput, require
from nearcast.model.fields import FieldType
from nearcast.model.identity import Id, plain_id
from nearcast.model.kind_registry import find_kind
from nearcast.model.message import Message
from nearcast.model.plain_table import plain_table
from nearcast.model.subscription import Subscription

_MESSAGE_FIELDS = ("id", "location", "x", "y", "text", "at", "place", "expires_at", "body", "attributes")


def as_table(value: Any, columns: Callable[[], Sequence[str]]) -> pa.Table | None:
    """Return a value that holds columns as a plain table of the named ones, and None for any other value.

    >>> as_table(pa.RecordBatch.from_pydict({"id": ["a"], "colour": ["red"]}), lambda: ["id"]).column_names
    ['id']
    >>> as_table([1, 2], lambda: ["id"]) is None
    True
    """
    try:
        table = _table_of(value)
    except pa.ArrowException as error:
        raise InvalidInput("table", "must have columns of one type each", str(error)) from error
    return None if table is None else plain_table(table, columns())


def _table_of(value: Any) -> pa.Table | None:
    if isinstance(value, pa.Table):
        return value
    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    if type(value).__module__.partition(".")[0] == "pandas" and hasattr(value, "columns"):
        return pa.Table.from_pandas(value, preserve_index=False)
    return pa.table(value) if hasattr(value, "__arrow_c_stream__") else None


def messages_of(value: Any) -> list[Message]:
    """Return one message or many, each an object or a dict, as a list.

    >>> messages_of({"id": "m1", "x": 0, "y": 1, "text": "jazz"})
    [Message(id='m1', location=(0.0, 1.0), text='jazz', at=None, place=None)]
    """
    return [_message(one, f"item {i}") for i, one in enumerate(_listed(value, Message, "messages"))]


def _message(value: Any, subject: str) -> Message:
    if isinstance(value, Message):
        return value
    require(isinstance(value, Mapping), "messages", "must hold messages or dicts", value, subject=subject)
    subject = f"message {value['id']!r}" if "id" in value else subject
    unknown = [name for name in value if name not in _MESSAGE_FIELDS]
    require(not unknown, "message", f"must have no fields but {list(_MESSAGE_FIELDS)}", unknown, subject=subject)
    fields = dict(value)
    if "location" not in fields:
        fields["location"] = (fields.pop("x", None), fields.pop("y", None))
    missing = [name for name in ("id", "text") if name not in fields]
    require(not missing, "message", f"must have {missing}", sorted(value), subject=subject)
    rule = "must not be given together with x and y"
    require("x" not in fields and "y" not in fields, "location", rule, fields["location"], subject=subject)
    return Message(**fields)


def subscriptions_of(value: Any) -> Iterator[Any]:
    """Yield one subscription or many; dicts become subscriptions of their kind, and others are left as they are.

    >>> next(subscriptions_of({"id": "n1", "kind": "nearest", "location": (0, 1), "keywords": "jazz", "k": 5})).k
    5
    """
    for i, one in enumerate(_listed(value, Subscription, "subscriptions")):
        yield _subscription(one, f"item {i}") if isinstance(one, Mapping) else one


def _subscription(value: Mapping[str, Any], subject: str) -> Subscription:
    subject = f"subscription {value['id']!r}" if "id" in value else subject
    require("id" in value, "id", "must be given", None, subject=subject)
    kind = find_kind(value.get("kind"), subject=subject)
    types = kind.all_field_types()
    columns = {column.name for name, type_ in types.items() for column in type_.columns(name)}
    unknown = [name for name in value if name not in {"id", "kind", *types, *columns}]
    require(not unknown, "subscription", f"must have no fields but those of {kind.kind}", unknown, subject=subject)
    row, fields = dict(value), {}
    for name, type_ in types.items():
        if row.get(name) is not None and not _has_others(row, name, type_):
            fields[name] = type_.from_json(row[name], name, subject)
            continue
        if type_.is_optional and not type_.is_given(row, name):
            continue
        for column in type_.required_columns(name, row):
            require(
                row.get(column) is not None, column, f"must be given for kind {kind.kind!r}", None, subject=subject
            )
        fields[name] = type_.from_row(row, name, subject)
    return kind(id=value["id"], **fields)


def _has_others(row: Mapping[str, Any], name: str, type_: FieldType) -> bool:
    """Return whether a row holds other columns of a field than the one of its name."""
    return any(row.get(column.name) is not None for column in type_.columns(name) if column.name != name)


def ids_of(value: Any) -> list[Id]:
    """Return one id or many as a list."""
    return [plain_id(one) for one in _listed(value, (str, int), "ids")]


def edges_of(value: Any) -> list[Any]:
    """Return one edge or many, each a pair (user, place), as a list.

    >>> edges_of(("ann", "cafe")), edges_of([("ann", "cafe")])
    ([('ann', 'cafe')], [('ann', 'cafe')])
    """
    is_one = isinstance(value, tuple) and len(value) == 2 and not any(isinstance(end, (tuple, list)) for end in value)
    pairs = [value] if is_one else _listed(value, (), "edges")
    return [tuple(map(plain_id, edge)) if isinstance(edge, (tuple, list)) else edge for edge in pairs]


def _listed(value: Any, kind: type | tuple[type, ...], what: str) -> Iterable[Any]:
    """Return one object or dict as a list of one, and any other iterable as it is."""
    if isinstance(value, (kind, Mapping)):
        return [value]
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidInput(what, "must be a list or a table", value)
    return value
