"""Ids as columns of strings, written by kernels into buffers that grow on demand.

A column of strings holds at most two gigabytes; longer ones become several chunks.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.engine._kernels.registry import (
    RegistryArrays,
    StringOutput,
    Strings,
    gather_heads,
    repeat_names,
    write_names,
)
from nearcast.text.encode import bytes_of, is_worth_a_kernel

_BYTES_PER_NAME = 12  # initial size of the buffer
_MAX_WORDS = (1 << 28) - 8

Write = Callable[[int, int, StringOutput], int]
"""Write rows, given the first row of the column, the number written so far, and the output; return the new number."""


def names_of(arrays: RegistryArrays, slots: npt.NDArray[np.int32]) -> pa.ChunkedArray:
    """Return the ids of slots as strings."""
    return _columns(len(slots), lambda first, done, out: write_names(arrays, slots[first:], done, out))


def repeated(strings: pa.Array, rows: npt.NDArray[np.int64]) -> pa.ChunkedArray:
    """Return strings by row.

    >>> repeated(pa.array(["a", "b"]), np.array([1, 1, 0])).to_pylist()
    ['b', 'b', 'a']
    """
    if not is_worth_a_kernel(len(rows)):
        return pa.chunked_array([strings.take(pa.array(rows))])
    given = Strings(*bytes_of(strings), np.empty((len(strings), 2), np.uint64))
    gather_heads(given)
    return _columns(len(rows), lambda first, done, out: repeat_names(given, rows[first:], done, out))


def _columns(n: int, write: Write, *, most_words: int = _MAX_WORDS) -> pa.ChunkedArray:
    columns: list[pa.Array] = []
    first = 0
    while first < n or not columns:
        column, done = _column(n - first, first, write, most_words)
        columns.append(column)
        first += done
    return pa.chunked_array(columns)


def _column(n: int, first: int, write: Write, most_words: int) -> tuple[pa.Array, int]:
    """Return a column of the next rows, and the number of rows in it."""
    room = min(n * _BYTES_PER_NAME // 8 + 16, most_words)
    out = StringOutput(np.empty(room, np.uint64), np.zeros(n + 1, np.int32), np.zeros(1, np.uint64))
    done = write(first, 0, out)
    while done < n and len(out.words) < most_words:
        longer = np.empty(min(2 * len(out.words), most_words), np.uint64)
        longer[: len(out.words)] = out.words
        out = out._replace(words=longer)
        done = write(first, done, out)
    total = int(out.offsets[done])
    buffers = [None, pa.py_buffer(out.offsets), pa.py_buffer(out.words).slice(0, total)]
    return pa.StringArray.from_buffers(done, buffers[1], buffers[2]), done
