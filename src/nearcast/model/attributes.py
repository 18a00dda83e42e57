"""Attributes: the columns that an engine declares beside the text, and how their values are stored.

    float, int   the bits of a float64           str   its hash under the key of the engine
    bool         0.0 or 1.0, likewise            null  NULL

Every value is one int64, its code: a message has a row of codes, and kernels compare numbers. Equal values have equal
codes. Texts are compared for equality only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import WHOLE, InvalidInput, is_finite, is_whole, require
from nearcast.model.limits import Limits, check_bytes
from nearcast.text import HashKey, hash_column, term_id

Codes = npt.NDArray[np.int64]

NULL = int(np.iinfo(np.int64).min)
"""The code of a missing value; no float has it, since -0.0 is stored as 0.0."""
TYPES: dict[str, type] = {"float": float, "int": int, "str": str, "bool": bool}
"""The types of attributes by name."""
LARGEST_INT = 1 << 53
"""Integers up to this are exact as float64."""

_RULES = {
    float: "must be a finite number",
    int: "must be an integer between -2**53 and 2**53",
    str: "must be a string",
    bool: "must be True or False",
}


@dataclass(frozen=True)
class Attributes:
    """The attributes of an engine, by name and in order.

    >>> attributes = Attributes.of({"price": float, "category": str})
    >>> attributes.names, attributes.type_of("price")
    (('price', 'category'), <class 'float'>)
    """

    types: tuple[tuple[str, str], ...] = ()
    """Pairs of name and name of the type."""

    @classmethod
    def of(cls, given: Any) -> Attributes:
        """Return attributes given as a mapping from names to types; a type may be given by name."""
        if isinstance(given, Attributes):
            return given
        rule = "must map names to float, int, str or bool"
        if given is None:
            return cls()
        require(isinstance(given, Mapping), "attributes", rule, given)
        types = []
        for name, type_ in given.items():
            type_name = type_ if isinstance(type_, str) else getattr(type_, "__name__", "")
            require(isinstance(name, str) and is_whole(name), "attributes", "must have strings as names", name)
            require(0 < len(name.encode()) <= 64, "attributes", "must have names of 1 to 64 bytes", name)
            require(name not in RESERVED, "attributes", f"must not be named {sorted(RESERVED)}", name)
            require(TYPES.get(type_name) is not None, "attributes", rule, {name: type_})
            types.append((name, type_name))
        return cls(tuple(types))

    def __len__(self) -> int:
        return len(self.types)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names, in order."""
        return tuple(name for name, _ in self.types)

    @cached_property
    def positions(self) -> dict[str, int]:
        """Name to position."""
        return {name: i for i, name in enumerate(self.names)}

    def type_of(self, name: str) -> type:
        """Return the type of an attribute."""
        return TYPES[self.types[self.positions[name]][1]]

    def to_json(self) -> dict[str, str]:
        """Return names and names of types."""
        return dict(self.types)

    # -- values ---------------------------------------------------------------------------------------------------

    def check(self, values: Mapping[str, Any], limits: Limits, *, subject: str) -> None:
        """Raise `InvalidInput` for a value of an unknown attribute, or of another type."""
        for name, value in values.items():
            known = name in self.positions
            require(known, "attributes", f"must be declared by the engine: {list(self.names)}", name, subject=subject)
            if value is not None:
                type_ = self.type_of(name)
                require(_fits(value, type_), name, _RULES[type_], value, subject=subject)
            if isinstance(value, str):
                require(is_whole(value), name, WHOLE, value, subject=subject)
                check_bytes(value, limits.id_bytes, name, subject=subject)

    def encode(self, values: Mapping[str, Any] | None, key: HashKey) -> tuple[int, ...]:
        """Return the codes of one message."""
        given = values or {}
        return tuple(encode_value(given.get(name), key) for name in self.names)

    def encode_table(self, table: pa.Table, key: HashKey, limits: Limits, subject_of: Any) -> Codes:
        """Return the codes of the messages of a table, one row each; a column that is missing is null.

        `subject_of` returns the name of a row for errors.
        """
        codes = np.full((len(table), len(self)), NULL, np.int64)
        for i, name in enumerate(self.names):
            if name in table.column_names and not pa.types.is_null(table[name].type):
                codes[:, i] = _encode_column(table[name], name, self.type_of(name), key, limits, subject_of)
        return codes


NO_ATTRIBUTES = Attributes()

RESERVED = frozenset(
    {"op", "id", "x", "y", "text", "at", "place", "expires_at", "body", "payload", "kind", "seq", "location"}
)
"""Names of other columns of messages."""


def encode_value(value: Any, key: HashKey) -> int:
    """Return the code of a value.

    >>> encode_value(0.0, bytes(16)) == encode_value(-0.0, bytes(16)) == encode_value(False, bytes(16))
    True
    """
    if value is None:
        return NULL
    if isinstance(value, str):
        return max(term_id(value, key), NULL + 1)
    return int(np.float64(float(value) + 0.0).view(np.int64))


def decode_number(code: int) -> float:
    """Return the number that a code stands for."""
    return float(np.int64(code).view(np.float64))


def _fits(value: Any, type_: type) -> bool:
    if type_ is bool:
        return isinstance(value, (bool, np.bool_))
    if type_ is str:
        return isinstance(value, str)
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        return False
    return is_finite(value) and (type_ is float or (value == int(value) and abs(value) <= LARGEST_INT))


def _encode_column(
    column: pa.ChunkedArray, name: str, type_: type, key: HashKey, limits: Limits, subject_of: Any
) -> Codes:
    values = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if not _is_column_of(values.type, type_):
        raise InvalidInput(name, f"must be a column of {type_.__name__}", str(values.type), subject="messages")
    if type_ is str:
        return _encode_strings(values, name, key, limits, subject_of)
    is_null = values.is_null().to_numpy(zero_copy_only=False)
    as_floats = pc.fill_null(values.cast(pa.float64(), safe=False), 0.0).to_numpy(zero_copy_only=False)
    numbers = np.asarray(as_floats, np.float64) + 0.0
    bad = ~np.isfinite(numbers)
    if type_ is int:
        bad |= (np.abs(numbers) > LARGEST_INT) | (numbers != np.trunc(numbers))
        if pa.types.is_integer(values.type):  # as a float, 2**53 + 1 is 2**53
            whole = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
            bad |= (whole > LARGEST_INT) | (whole < -LARGEST_INT)
    if bad.any():
        row = int(np.argmax(bad))
        raise InvalidInput(name, _RULES[type_], values[row].as_py(), subject=subject_of(row))
    codes: Codes = np.ascontiguousarray(numbers).view(np.int64)
    return np.where(is_null, NULL, codes)


def _encode_strings(values: pa.Array, name: str, key: HashKey, limits: Limits, subject_of: Any) -> Codes:
    sizes = pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False)
    if len(sizes) and int(sizes.max()) > limits.id_bytes:
        row = int(np.argmax(sizes > limits.id_bytes))
        rule = f"must be at most {limits.id_bytes} bytes"
        raise InvalidInput(name, rule, int(sizes[row]), subject=subject_of(row))
    encoded = values.dictionary_encode()  # each distinct value is hashed once
    hashes = np.maximum(hash_column(encoded.dictionary, key), NULL + 1)
    if not len(hashes):
        return np.full(len(values), NULL, np.int64)
    at = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)
    return np.where(values.is_null().to_numpy(zero_copy_only=False), NULL, hashes[at])


def _is_column_of(kind: pa.DataType, type_: type) -> bool:
    if type_ is str:
        return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
    if type_ is bool:
        return bool(pa.types.is_boolean(kind))
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
