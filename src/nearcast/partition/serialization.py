"""Routings as bytes: their arrays, and a description of the objects that hold them.

A routing is a frozen dataclass whose fields are numbers, strings, arrays, or dataclasses and tuples of these. Reading
makes objects by class name, from modules of this package and from registered partitioners only.
"""

from __future__ import annotations

import importlib
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any, cast

import numpy as np

from nearcast.errors import FormatError
from nearcast.partition.base import Routing
from nearcast.partition.registry import registered_routing_type
from nearcast.text import HashKey

_PACKAGE = "nearcast.partition"
_TREE = "tree"
_HASH_KEY = "hash_key"


def pack(routing: Routing, *, hash_key: HashKey = b"") -> bytes:
    """Return a routing as bytes, with the key under which its terms and ids were hashed if it is to be shared.

    >>> from nearcast.partition.hash import HashRouting
    >>> unpack(pack(HashRouting(3)))
    HashRouting(n_shards=3)
    """
    arrays: dict[str, Any] = {}
    described = json.dumps(_describe(routing, arrays))
    sink = io.BytesIO()
    arrays[_TREE] = np.array(described)
    arrays[_HASH_KEY] = np.frombuffer(hash_key, np.uint8)
    np.savez(sink, **arrays)
    return sink.getvalue()


def unpack(data: bytes) -> Routing:
    """Return the routing that was packed."""
    with _reading(data) as arrays:
        made = _make(json.loads(str(arrays[_TREE])), arrays)
    if not (is_dataclass(made) and hasattr(made, "route")):
        raise FormatError(f"bytes must be those of a routing; they hold a {type(made).__name__}")
    return cast(Routing, made)


def hash_key_of(data: bytes) -> HashKey | None:
    """Return the key that a routing was packed with, if any."""
    with _reading(data) as arrays:
        return arrays[_HASH_KEY].tobytes() or None


@contextmanager
def _reading(data: bytes) -> Iterator[Any]:
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            yield arrays
    except Exception as error:  # an archive of arrays can be broken in every way that its readers know
        raise FormatError(f"bytes must be those of a routing: {error}") from error


def _describe(value: Any, arrays: dict[str, Any]) -> Any:
    if isinstance(value, np.ndarray):
        name = f"a{len(arrays)}"
        arrays[name] = value
        return {"array": name}
    if isinstance(value, tuple):
        return {"tuple": [_describe(item, arrays) for item in value]}
    if is_dataclass(value) and not isinstance(value, type):
        own = {field.name: _describe(getattr(value, field.name), arrays) for field in fields(value)}
        return {"module": type(value).__module__, "class": type(value).__name__, "fields": own}
    return value.item() if isinstance(value, np.generic) else value


def _make(described: Any, arrays: Any) -> Any:
    if not isinstance(described, dict):
        return described
    if "array" in described:
        return arrays[described["array"]]
    if "tuple" in described:
        return tuple(_make(item, arrays) for item in described["tuple"])
    module = described["module"]
    type_ = registered_routing_type(module, described["class"])
    if type_ is None:
        if not module.startswith(f"{_PACKAGE}."):
            raise ValueError(f"{described['class']} of {module} belongs to no registered partitioner")
        type_ = getattr(importlib.import_module(module), described["class"])
    return type_(**{name: _make(value, arrays) for name, value in described["fields"].items()})
