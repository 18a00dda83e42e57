"""Encoding of texts as rows of term ids and counts, by kernels or in plain Python.

    texts ── analyze ── hash ── sort and count within a row
             kernels over the bytes of an Arrow column; texts that are not ASCII, and small batches, in plain Python

    indptr   0      3    5          ids distinct and ascending within a row
    ids      t t t  t t
    counts   1 2 1  1 1
    order    1 0 1 2 | 0 1    where wanted: the terms in the order of the text, as positions in the row

Both ways give the same rows. A small batch does not load Numba. Cost of the kernels: about 20 ns per term.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast import ragged
from nearcast.text.analyzer import SIMPLE, Analyzer
from nearcast.text.hashing import DEFAULT_HASH_KEY, HashKey, key_words, term_ids
from nearcast.text.stem_ids import replace_by_stems
from nearcast.text.tokenizer import Text

WORTH_A_KERNEL = 64
_QUADRATIC = 4096  # above this many terms per row, insertion sort is too slow
MAX_RANK = (1 << 16) - 1
"""The greatest rank that is stored; `Limits.text_bytes` keeps the distinct terms of a text below it."""


class TermOrder(NamedTuple):
    """The terms of rows in the order of their texts, repetitions included; phrases need it."""

    indptr: npt.NDArray[np.int64]
    """int64 (n + 1,): where each row begins."""
    ranks: npt.NDArray[np.uint16]
    """uint16: the position of each term among the distinct terms of its row; at most MAX_RANK."""

    def take(self, rows: npt.NDArray[np.int64]) -> TermOrder:
        """Return the given rows, in that order."""
        at, indptr = ragged.positions(self.indptr, rows)
        return TermOrder(indptr, self.ranks[at])

    def slice(self, start: int, stop: int) -> TermOrder:
        """Return a range of rows without a copy of their terms."""
        first, last = self.indptr[start], self.indptr[stop]
        return TermOrder(self.indptr[start : stop + 1] - first, self.ranks[first:last])


class TermRows(NamedTuple):
    """Rows of term ids and counts."""

    indptr: npt.NDArray[np.int64]
    """int64 (n + 1,): where each row's terms begin."""
    ids: npt.NDArray[np.int64]
    """int64: term ids, distinct and ascending within a row."""
    counts: npt.NDArray[np.int32]
    """int32: occurrences of each term."""
    order: TermOrder | None = None
    """The terms in the order of the text; None unless it was asked for."""

    def take(self, rows: npt.NDArray[np.int64]) -> TermRows:
        """Return the given rows, in that order."""
        at, indptr = ragged.positions(self.indptr, rows)
        return TermRows(indptr, self.ids[at], self.counts[at], None if self.order is None else self.order.take(rows))

    def slice(self, start: int, stop: int) -> TermRows:
        """Return a range of rows without a copy of their terms."""
        first, last = self.indptr[start], self.indptr[stop]
        order = None if self.order is None else self.order.slice(start, stop)
        return TermRows(self.indptr[start : stop + 1] - first, self.ids[first:last], self.counts[first:last], order)

    @classmethod
    def joined(cls, parts: Sequence[TermRows]) -> TermRows:
        """Concatenate rows; they have an order if all parts have one.

        >>> first, second = encode_texts(["a b"], ordered=True), encode_texts(["c", "b a"], ordered=True)
        >>> TermRows.joined([first, second]).order.indptr.tolist()
        [0, 2, 3, 5]
        """
        ids, counts = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
        orders = [part.order for part in parts if part.order is not None]
        order = None
        if len(orders) == len(parts):
            ranks = np.concatenate([each.ranks for each in orders])
            order = TermOrder(ragged.starts(np.concatenate([np.diff(each.indptr) for each in orders])), ranks)
        return cls(ragged.starts(np.concatenate([np.diff(part.indptr) for part in parts])), ids, counts, order)


def encode_texts(
    texts: Sequence[Text], hash_key: HashKey = DEFAULT_HASH_KEY, *, analyzer: Analyzer = SIMPLE, ordered: bool = False
) -> TermRows:
    """Encode texts given as Python objects; `ordered` adds the order of the terms.

    >>> encode_texts(["to be or not to be", ""]).counts.tolist(), encode_texts(["a b", ""]).indptr.tolist()
    ([2, 1, 1, 2], [0, 2, 2])
    >>> rows = encode_texts(["to be or not to be"], ordered=True)
    >>> rows.ids[rows.order.ranks].tolist() == term_ids("to be or not to be".split()).tolist()
    True
    """
    words: list[str] = []
    lengths = np.zeros(len(texts), dtype=np.int64)
    for row, text in enumerate(texts):
        found = analyzer.terms(text)
        lengths[row] = len(found)
        words += found
    if not words:
        none = np.zeros(len(texts) + 1, np.int64)
        order = TermOrder(none, np.zeros(0, np.uint16)) if ordered else None
        return TermRows(none, np.zeros(0, np.int64), np.zeros(0, np.int32), order)
    encoded = pa.array(words, pa.string()).dictionary_encode()  # each distinct word is hashed once
    numbers = term_ids(encoded.dictionary.to_pylist(), hash_key)[encoded.indices.to_numpy()]
    return _count(numbers, lengths, ordered=ordered)


def encode_column(
    column: pa.Array, hash_key: HashKey = DEFAULT_HASH_KEY, *, analyzer: Analyzer = SIMPLE, ordered: bool = False
) -> TermRows:
    """Encode an Arrow array of strings, or of lists of strings taken as terms, without nulls.

    >>> encode_column(pa.array(["to be or not to be"])).counts.tolist()
    [2, 1, 1, 2]
    """
    if not is_worth_a_kernel(len(column)):
        return encode_texts(column.to_pylist(), hash_key, analyzer=analyzer, ordered=ordered)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return _encode_strings(column, hash_key, analyzer, ordered=ordered)
    bounds = column.offsets.to_numpy().astype(np.int64)
    terms = column.values[int(bounds[0]) : int(bounds[-1])]
    return _count_compiled(hash_column(terms, hash_key), bounds[:-1] - bounds[0], np.diff(bounds), ordered=ordered)


def hash_column(
    strings: pa.Array, hash_key: HashKey = DEFAULT_HASH_KEY, *, prefix: str = ""
) -> npt.NDArray[np.int64]:
    """Return the hash of every string of an Arrow array without nulls, the term id, or of a letter and the string.

    >>> from nearcast.text import term_id
    >>> hash_column(pa.array(["coffee"])).tolist() == [term_id("coffee")]
    True
    """
    if not is_worth_a_kernel(len(strings)):
        return term_ids([prefix + string for string in strings.to_pylist()], hash_key)
    from nearcast.text._kernels.encode import hash_after, hash_strings

    data, offsets = bytes_of(strings)
    out = np.empty(len(strings), dtype=np.int64)
    if prefix:
        hash_after(ord(prefix), data, offsets, key_words(hash_key), out)
    else:
        hash_strings(data, offsets, key_words(hash_key), out)
    return out


def _encode_strings(column: pa.Array, hash_key: HashKey, analyzer: Analyzer, *, ordered: bool) -> TermRows:
    if analyzer == SIMPLE:
        from nearcast.text._kernels.encode import hash_texts
    else:
        from nearcast.text._kernels.words import hash_words as hash_texts
    data, offsets = bytes_of(column)
    starts = (offsets[:-1] - offsets[0]) // 2 + np.arange(len(column))
    numbers = np.empty(int(offsets[-1] - offsets[0]) // 2 + len(column) + 1, dtype=np.int64)
    lengths = np.empty(len(column), dtype=np.int64)
    hash_texts(data, offsets, key_words(hash_key), numbers, lengths)
    if analyzer.language is not None:
        ascii_lengths = np.maximum(lengths, 0)
        replace_by_stems(
            (data, offsets), numbers, starts, ascii_lengths, language=analyzer.language, hash_key=hash_key,
            hash_all=lambda terms: hash_column(pa.array(terms, pa.string()), hash_key),
        )  # fmt: skip
    other = np.flatnonzero(lengths < 0)
    if len(other):
        # A text that is not ASCII may have more words than half its bytes, so it is appended at the end.
        found = [term_ids(analyzer.terms(column[int(row)].as_py()), hash_key) for row in other]
        lengths[other] = [len(ids) for ids in found]
        starts[other] = len(numbers) + np.concatenate([[0], np.cumsum(lengths[other])[:-1]])
        numbers = np.concatenate([numbers, *found])
    return _count_compiled(numbers, starts, lengths, ordered=ordered)


def _count_compiled(
    numbers: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], *, ordered: bool
) -> TermRows:
    if lengths.max(initial=0) > _QUADRATIC:
        at = np.repeat(starts - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths) + np.arange(lengths.sum())
        return _count(numbers[at], lengths, ordered=ordered)
    from nearcast.text._kernels.encode import count_rows, rank_terms

    room = int(lengths.sum())
    indptr = np.zeros(len(lengths) + 1, dtype=np.int64)
    ids, counts = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int32)
    count_rows(numbers, starts, lengths, indptr, ids, counts)
    used, order = int(indptr[-1]), None
    if ordered:
        order = TermOrder(ragged.starts(lengths), np.empty(room, np.uint16))
        rank_terms(numbers, starts, order.indptr, indptr, ids, order.ranks)
    return TermRows(indptr, ids[:used].copy(), counts[:used].copy(), order)


def _count(numbers: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], *, ordered: bool) -> TermRows:
    rows = np.repeat(np.arange(len(lengths)), lengths)
    by_term = np.lexsort((numbers, rows))
    rows, numbers = rows[by_term], numbers[by_term]
    first = np.ones(len(rows), dtype=bool)
    first[1:] = (rows[1:] != rows[:-1]) | (numbers[1:] != numbers[:-1])
    starts = np.flatnonzero(first)
    counts = np.diff(np.append(starts, len(rows))).astype(np.int32)
    indptr = np.searchsorted(rows[starts], np.arange(len(lengths) + 1)).astype(np.int64)
    order = None
    if ordered:
        ranks = np.empty(len(rows), np.uint16)
        ranks[by_term] = np.minimum(np.cumsum(first) - 1 - indptr[rows], MAX_RANK)
        order = TermOrder(ragged.starts(lengths), ranks)
    return TermRows(indptr, numbers[starts], counts, order)


def bytes_of(strings: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the bytes of an array of strings and where each begins, the end included."""
    width = np.int64 if pa.types.is_large_string(strings.type) else np.int32
    _, offsets, data = strings.buffers()
    whole = np.frombuffer(offsets, dtype=width, count=offsets.size // np.dtype(width).itemsize)
    bounds = whole[strings.offset : strings.offset + len(strings) + 1]
    # Read-only arrays are a separate specialisation, so kernels never see Arrow's read-only buffers.
    held = np.frombuffer(data if data is not None else b"", dtype=np.uint8)
    held.flags.writeable = False
    return held, np.ascontiguousarray(bounds, dtype=np.int64)


def is_worth_a_kernel(n: int) -> bool:
    """Return whether a kernel pays off for some rows: it is compiled, and Numba is loaded or worth it.

    Otherwise plain Python encodes the rows: it needs no Numba, and is faster than kernels that are not compiled.
    """
    return ("numba" in sys.modules or n >= WORTH_A_KERNEL) and os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
