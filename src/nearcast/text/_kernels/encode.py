"""Kernels of `nearcast.text.encode`: tokenise, hash and sort the bytes of an Arrow column.

XXH64 follows its specification, with seed 0. 64-bit arithmetic wraps around in compiled code but not in plain Python,
so without the JIT the xxhash library computes the hashes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)


@kernel
def _rotate(value: np.uint64, bits: int) -> np.uint64:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@kernel
def _read(data: NDArray[np.uint8], at: int, n: int) -> np.uint64:
    """Read n bytes as a little-endian number."""
    value = np.uint64(0)
    for i in range(n):
        value |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return value


@kernel
def _round(lane: np.uint64, value: np.uint64) -> np.uint64:
    return _rotate(lane + value * _P2, 31) * _P1


@kernel
def _stripes(data: NDArray[np.uint8], start: int, stop: int) -> np.uint64:
    """Hash the whole 32-byte stripes of a long input."""
    a, b, c, d = _P1 + _P2, _P2, np.uint64(0), np.uint64(0) - _P1
    at = start
    while at + 32 <= stop:
        a = _round(a, _read(data, at, 8))
        b = _round(b, _read(data, at + 8, 8))
        c = _round(c, _read(data, at + 16, 8))
        d = _round(d, _read(data, at + 24, 8))
        at += 32
    folded = _rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)
    for lane in (a, b, c, d):
        folded = (folded ^ _round(np.uint64(0), lane)) * _P1 + _P4
    return folded


@kernel
def xxh64(data: NDArray[np.uint8], start: int, stop: int) -> np.int64:
    """Return XXH64 of some bytes as a signed number."""
    n = stop - start
    at = start
    if n >= 32:
        folded = _stripes(data, start, stop)
        at += n - n % 32
    else:
        folded = _P5
    folded += np.uint64(n)
    while at + 8 <= stop:
        folded = _rotate(folded ^ _round(np.uint64(0), _read(data, at, 8)), 27) * _P1 + _P4
        at += 8
    if at + 4 <= stop:
        folded = _rotate(folded ^ (_read(data, at, 4) * _P1), 23) * _P2 + _P3
        at += 4
    while at < stop:
        folded = _rotate(folded ^ (np.uint64(data[at]) * _P5), 11) * _P1
        at += 1
    folded = (folded ^ (folded >> np.uint64(33))) * _P2
    folded = (folded ^ (folded >> np.uint64(29))) * _P3
    return np.int64(folded ^ (folded >> np.uint64(32)))


@kernel
def hash_strings(data: NDArray[np.uint8], offsets: NDArray[np.int64], out: NDArray[np.int64]) -> None:
    """Hash every string of a column."""
    for i in range(len(out)):
        out[i] = xxh64(data, offsets[i], offsets[i + 1])


@kernel
def hash_words(
    data: NDArray[np.uint8], start: int, stop: int, word: NDArray[np.uint8], out: NDArray[np.int64]
) -> int:
    """Hash the words of an ASCII text into `out`; return their number, or -1 if the text is not ASCII.

    `word` is room for the longest word; `out` for as many words as there can be.
    """
    n_words, n = 0, 0
    for at in range(start, stop):
        c = data[at]
        if c >= 128:
            return -1
        if 65 <= c <= 90:
            c += np.uint8(32)
        if 97 <= c <= 122 or 48 <= c <= 57:
            word[n] = c
            n += 1
        elif n > 0:
            out[n_words] = xxh64(word, 0, n)
            n_words, n = n_words + 1, 0
    if n > 0:
        out[n_words] = xxh64(word, 0, n)
        n_words += 1
    return n_words


@kernel
def hash_texts(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    word: NDArray[np.uint8],
    out: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> None:
    """Hash the words of every ASCII text, row by row; `lengths` holds their numbers, -1 for texts that are not ASCII.

    Row i may write from `offsets[i] // 2 + i` on: a text of n bytes has no more than (n + 1) // 2 words.
    """
    for i in range(len(lengths)):
        first = (offsets[i] - offsets[0]) // 2 + i
        lengths[i] = hash_words(data, offsets[i], offsets[i + 1], word, out[first:])


@kernel
def count_rows(
    numbers: NDArray[np.int64],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    indptr: NDArray[np.int64],
    ids: NDArray[np.int64],
    counts: NDArray[np.int32],
) -> None:
    """Sort the term ids of each row and count duplicates, into `ids` (distinct, ascending) and `counts`."""
    n = 0
    for row in range(len(lengths)):
        first = n
        for i in range(starts[row], starts[row] + lengths[row]):
            number = numbers[i]
            at = n
            while at > first and ids[at - 1] > number:
                at -= 1
            if at > first and ids[at - 1] == number:
                counts[at - 1] += 1
                continue
            for j in range(n, at, -1):
                ids[j], counts[j] = ids[j - 1], counts[j - 1]
            ids[at], counts[at] = number, 1
            n += 1
        indptr[row + 1] = n
