"""Packing of ids and text fields as bytes: each value is a string with a code for its type.

keywords   'coffee AND sale'  WORDS          user   'ann'  WORDS                 filters   null   MISSING
           ["new york"]       LISTED, JSON          7      NUMBERED, decimal
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.engine._kernels.registry import TextColumn
from nearcast.model import IdColumn, Subscription
from nearcast.model.split_columns import PAIRS, join, split
from nearcast.model.subscription_rows import stored_schema
from nearcast.text.encode import bytes_of

WORDS, LISTED, NUMBERED, MISSING = 0, 1, 2, 3
_ALONE = "filters"
"""A text field that is stored in a single column, null where there is none."""


def text_fields(kind: type[Subscription]) -> list[str]:
    """Return the text fields of a kind, the id apart."""
    names = stored_schema(kind).names
    return [*(name for name in PAIRS if name != "id" and name in names), _ALONE]


def text_columns(kind: type[Subscription]) -> set[str]:
    """Return the stored columns that hold the id and the text fields."""
    return {_ALONE, *(column.name for name in ("id", *text_fields(kind)) for column in PAIRS.get(name, ()))}


def pack_ids(ids: IdColumn) -> TextColumn:
    """Return ids as bytes."""
    return TextColumn(*bytes_of(ids.strings), ids.are_numbers.view(np.uint8))


def pack_texts(stored: pa.Table, kind: type[Subscription]) -> TextColumn:
    """Return the text fields of subscriptions as bytes, row by row."""
    columns = [_pack(stored, name) for name in text_fields(kind)]
    if len(columns) == 1:
        strings, kinds = columns[0]
    else:
        n, width = len(stored), len(columns)
        in_turn = np.arange(n * width).reshape(width, n).T.reshape(-1)
        strings = pa.concat_arrays([strings for strings, _ in columns]).take(pa.array(in_turn))
        kinds = np.concatenate([kinds for _, kinds in columns])[in_turn]
    return TextColumn(*bytes_of(strings), kinds)


def _pack(stored: pa.Table, name: str) -> tuple[pa.Array, Any]:
    if name == _ALONE:
        column = stored[name].combine_chunks()
        return column.fill_null(""), np.where(
            column.is_valid().to_numpy(zero_copy_only=False), WORDS, MISSING
        ).astype(np.uint8)
    first, second = (stored[field.name].combine_chunks() for field in PAIRS[name])
    if second.null_count == len(second):
        return first, np.full(len(first), WORDS, dtype=np.uint8)
    values = join(stored, name)
    packed = [_KINDS[type(value)] for value in values]
    strings = [write(value) for value, (_, write) in zip(values, packed, strict=True)]
    return pa.array(strings, pa.string()), np.array([kind for kind, _ in packed], dtype=np.uint8)


_KINDS: dict[type, tuple[int, Any]] = {str: (WORDS, str), list: (LISTED, json.dumps), int: (NUMBERED, str)}
_READ: dict[int, Any] = {WORDS: str, LISTED: json.loads, NUMBERED: int}


def unpack_ids(ids: TextColumn) -> IdColumn:
    """Return packed ids as a column."""
    strings = strings_of(ids.data, ids.offsets)
    if not ids.kinds.any():
        return IdColumn(strings)
    are_numbers = ids.kinds.astype(bool)
    listed = zip(strings.to_pylist(), are_numbers.tolist(), strict=True)
    return IdColumn.of([int(text) if is_number else text for text, is_number in listed])


def unpack_texts(texts: TextColumn, kind: type[Subscription]) -> dict[str, pa.Array]:
    """Return packed text fields as stored columns."""
    strings = strings_of(texts.data, texts.offsets)
    fields = text_fields(kind)
    columns: dict[str, pa.Array] = {}
    for i, name in enumerate(fields):
        own, kinds = strings, texts.kinds[i :: len(fields)]
        if len(fields) > 1:
            own = strings.take(pa.array(np.arange(i, len(strings), len(fields))))
        if name == _ALONE:
            columns[name] = own if not kinds.any() else pc.if_else(pa.array(kinds == WORDS), own, None)
        elif not kinds.any():
            first, second = PAIRS[name]
            columns |= {first.name: own, second.name: pa.nulls(len(own), second.type)}
        else:
            read = zip(own.to_pylist(), kinds.tolist(), strict=True)
            columns |= split(name, [_READ[kind_](text) for text, kind_ in read])
    return columns


def strings_of(data: Any, offsets: Any) -> pa.Array:
    """Return bytes as an array of strings, which may hold more than two gigabytes."""
    large = pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))
    return large.cast(pa.string())
