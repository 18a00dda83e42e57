"""Kernels of the analyzers that divide text by UAX #29: words of ASCII texts, and the terms that stand for them.

Among ASCII characters the rules come down to this: letters, digits and underscores join; an apostrophe or a dot joins
what it stands between if that is two letters or two digits, a colon two letters, a comma or a semicolon two digits.
A word holds a letter or a digit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import TableArrays, kernel, prefetch, table_find, table_first_slot
from nearcast.text._kernels.encode import _add, _finish, _read_rest, _read_word, _start

_OTHER, _LETTER, _DIGIT, _UNDERSCORE = 0, 1, 2, 3
_ASCII = 128
_ABOVE_Z = np.uint64(0x2525252525252525)  # added to a byte, sets its upper bit from "Z" + 1 on
_FROM_A = np.uint64(0x3F3F3F3F3F3F3F3F)  # the same from "A" on
_UPPER_BITS = np.uint64(0x8080808080808080)
_TWO = np.uint64(2)
_AHEAD = 4  # entries of the words of a text are prefetched so many texts ahead


@kernel
def _kind_of(c: int) -> int:
    if 97 <= c <= 122 or 65 <= c <= 90:
        return _LETTER
    if 48 <= c <= 57:
        return _DIGIT
    return _UNDERSCORE if c == 95 else _OTHER


@kernel
def _joins(c: int, kind: int) -> bool:
    """Return whether a character joins two letters, or two digits."""
    if c == 39 or c == 46:  # ' and .
        return kind in (_LETTER, _DIGIT)
    return (c == 58 and kind == _LETTER) or ((c == 44 or c == 59) and kind == _DIGIT)  # : and , ;


@kernel
def next_word(data: NDArray[np.uint8], start: int, stop: int) -> tuple[int, int]:
    """Return where the next word of an ASCII text begins and ends; both are `stop` if there is none."""
    first, at, last, holds = stop, start, _OTHER, False
    while at < stop:
        c = data[at]
        kind = _kind_of(c)
        if kind != _OTHER:
            first, holds = min(first, at), holds or kind != _UNDERSCORE
        elif first < stop and not (_joins(c, last) and at + 1 < stop and _kind_of(data[at + 1]) == last):
            if holds:
                return first, at
            first = stop
        last = kind if kind != _OTHER else last
        at += 1
    return (first, stop) if holds else (stop, stop)


@kernel
def is_ascii(data: NDArray[np.uint8], start: int, stop: int) -> bool:
    """Return whether all bytes of a text are ASCII."""
    bits = np.uint8(0)
    for at in range(start, stop):
        bits |= data[at]
    return bool(bits < _ASCII)


@kernel
def _in_small_letters(word: np.uint64) -> np.uint64:
    """Return eight ASCII bytes with capitals replaced by small letters, all at once."""
    capitals = (word + _FROM_A) & ~(word + _ABOVE_Z) & _UPPER_BITS
    return word | (capitals >> _TWO)


@kernel
def hash_in_small_letters(data: NDArray[np.uint8], start: int, stop: int, key: NDArray[np.uint64]) -> np.int64:
    """Return SipHash-2-4 of an ASCII word in small letters."""
    state, at = _start(key), start
    while at + 8 <= stop:
        state = _add(state, _in_small_letters(_read_word(data, at)))
        at += 8
    return _finish(state, _in_small_letters(_read_rest(data, at, stop - at)), stop - start)


@kernel
def hash_words(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    key: NDArray[np.uint64],
    out: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> None:
    """Hash the words of every ASCII text, row by row; `lengths` holds their numbers, -1 for texts that are not ASCII.

    Row i may write from `offsets[i] // 2 + i` on: a text of n bytes has no more than (n + 1) // 2 words.
    """
    for i in range(len(lengths)):
        start, stop = offsets[i], offsets[i + 1]
        if not is_ascii(data, start, stop):
            lengths[i] = -1
            continue
        begin = n = (start - offsets[0]) // 2 + i
        first, at = next_word(data, start, stop)
        while first < stop:
            out[n] = hash_in_small_letters(data, first, at, key)
            n += 1
            first, at = next_word(data, at, stop)
        lengths[i] = n - begin


@kernel
def replace_known(
    terms: TableArrays,
    numbers: NDArray[np.int64],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    unknown: NDArray[np.int64],
) -> int:
    """Replace the hashes of words by the ids of their terms; return how many are unknown.

    Each row of `unknown` is one of them: its place in `numbers`, its text, and its rank in the text.
    """
    n, last = 0, len(lengths) - 1
    for i in range(len(lengths)):
        ahead = min(i + _AHEAD, last)
        for at in range(starts[ahead], starts[ahead] + lengths[ahead]):
            slot = table_first_slot(terms, numbers[at])
            prefetch(terms.tags, slot)
            prefetch(terms.entries, slot)
        for rank in range(lengths[i]):
            slot = table_find(terms, numbers[starts[i] + rank])
            if slot >= 0:
                numbers[starts[i] + rank] = terms.entries[slot, 1]
                continue
            unknown[n, 0], unknown[n, 1], unknown[n, 2] = starts[i] + rank, i, rank
            n += 1
    return n


@kernel
def locate_words(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], unknown: NDArray[np.int64], bounds: NDArray[np.int64]
) -> None:
    """Write where the words of `unknown`, in their order, begin and end."""
    text, rank, first, at, stop = -1, -1, 0, 0, 0
    for i in range(len(unknown)):
        if unknown[i, 1] != text:
            text, rank = unknown[i, 1], -1
            at, stop = offsets[text], offsets[text + 1]
        while rank < unknown[i, 2]:
            first, at = next_word(data, at, stop)
            rank += 1
        bounds[i, 0], bounds[i, 1] = first, at
