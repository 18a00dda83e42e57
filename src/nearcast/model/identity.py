"""Ids: strings, or integers that fit 64 bits."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from nearcast.errors import WHOLE, is_whole, require
from nearcast.text import DEFAULT_HASH_KEY, HashKey, hash_bytes

Id = str | int

_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_ALL_BITS = (1 << 64) - 1


def plain_id(value: Any) -> Any:
    """Return integers and strings of NumPy as those of Python, and other values as they are.

    >>> import numpy as np
    >>> plain_id(np.int64(7)), plain_id(np.str_("a")), plain_id(None)
    (7, 'a', None)
    """
    if isinstance(value, Integral) and not isinstance(value, (int, bool)):
        return int(value)
    return str(value) if isinstance(value, str) and type(value) is not str else value


def is_id(value: Any) -> bool:
    """Return whether a value is a valid id."""
    if isinstance(value, int):
        return not isinstance(value, bool) and _LOWEST <= value <= _HIGHEST
    return isinstance(value, str) and is_whole(value)


def check_id(value: Any, field: str, *, subject: str = "") -> None:
    """Raise `InvalidInput` unless the value is a valid id."""
    require(not isinstance(value, str) or is_whole(value), field, WHOLE, value, subject=subject)
    require(is_id(value), field, "must be a string or a 64-bit integer", value, subject=subject)


def id_key(value: Id, hash_key: HashKey = DEFAULT_HASH_KEY) -> int:
    """Return a 64-bit key of an id, the same in every process that has the hash key; 7 and '7' differ.

    >>> id_key("7") != id_key(7) == id_key(7)
    True
    """
    data = b"s" + value.encode() if isinstance(value, str) else b"i" + value.to_bytes(8, "little", signed=True)
    return hash_bytes(data, hash_key) & _ALL_BITS
