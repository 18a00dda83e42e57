"""Kernels of `nearcast.text.encode`: tokenise, hash and sort the bytes of an Arrow column.

SipHash-2-4 follows its specification. 64-bit arithmetic wraps around in compiled code but not in plain Python, so
without the JIT the siphash24 library computes the hashes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel

_V0 = np.uint64(0x736F6D6570736575)
_V1 = np.uint64(0x646F72616E646F6D)
_V2 = np.uint64(0x6C7967656E657261)
_V3 = np.uint64(0x7465646279746573)
_LAST = np.uint64(0xFF)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)

State = tuple[np.uint64, np.uint64, np.uint64, np.uint64]


@kernel
def _rotate(value: np.uint64, bits: int) -> np.uint64:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@kernel
def _read_word(data: NDArray[np.uint8], at: int) -> np.uint64:
    """Read eight bytes as a little-endian number; as positions are unsigned, that is one instruction."""
    first, value = np.uint64(at), _ZERO
    for i in range(8):
        value |= np.uint64(data[first + np.uint64(i)]) << np.uint64(8 * i)
    return value


@kernel
def _read_rest(data: NDArray[np.uint8], at: int, n: int) -> np.uint64:
    """Read fewer than eight bytes as a little-endian number."""
    if at + 8 <= data.size:
        return _read_word(data, at) & ((_ONE << np.uint64(8 * n)) - _ONE)
    value = _ZERO
    for i in range(n):
        value |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return value


@kernel
def _round(v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64) -> State:
    v0, v2 = v0 + v1, v2 + v3
    v1, v3 = _rotate(v1, 13) ^ v0, _rotate(v3, 16) ^ v2
    v0, v2 = _rotate(v0, 32) + v3, v2 + v1
    v3, v1 = _rotate(v3, 21) ^ v0, _rotate(v1, 17) ^ v2
    return v0, v1, _rotate(v2, 32), v3


@kernel
def _start(key: NDArray[np.uint64]) -> State:
    return _V0 ^ key[0], _V1 ^ key[1], _V2 ^ key[0], _V3 ^ key[1]


@kernel
def _add(state: State, word: np.uint64) -> State:
    """Add eight bytes."""
    v0, v1, v2, v3 = state
    v0, v1, v2, v3 = _round(*_round(v0, v1, v2, v3 ^ word))
    return v0 ^ word, v1, v2, v3


@kernel
def _finish(state: State, word: np.uint64, n: int) -> np.int64:
    """Add the last bytes, fewer than eight, of n in all; return the hash."""
    v0, v1, v2, v3 = _add(state, word | (np.uint64(n) << np.uint64(56)))
    v2 ^= _LAST
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return np.int64(v0 ^ v1 ^ v2 ^ v3)


@kernel
def siphash(data: NDArray[np.uint8], start: int, stop: int, key: NDArray[np.uint64]) -> np.int64:
    """Return SipHash-2-4 of some bytes as a signed number."""
    state, at = _start(key), start
    while at + 8 <= stop:
        state = _add(state, _read_word(data, at))
        at += 8
    return _finish(state, _read_rest(data, at, stop - at), stop - start)


@kernel
def hash_strings(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], key: NDArray[np.uint64], out: NDArray[np.int64]
) -> None:
    """Hash every string of a column."""
    for i in range(len(out)):
        out[i] = siphash(data, offsets[i], offsets[i + 1], key)


@kernel
def hash_after(
    prefix: int, data: NDArray[np.uint8], offsets: NDArray[np.int64], key: NDArray[np.uint64], out: NDArray[np.int64]
) -> None:
    """Hash every string of a column after a byte, as if it were the first of the string."""
    fresh, byte, seven = _start(key), np.uint64(8), np.uint64(56)
    for i in range(len(out)):
        state, carried, at, stop = fresh, np.uint64(prefix), offsets[i], offsets[i + 1]
        while at + 8 <= stop:
            word = _read_word(data, at)
            state = _add(state, carried | (word << byte))
            carried = word >> seven
            at += 8
        rest = carried | (_read_rest(data, at, stop - at) << byte)
        if stop - at == 7:
            state, rest = _add(state, rest), _ZERO
        out[i] = _finish(state, rest, stop - offsets[i] + 1)


@kernel
def hash_words(
    data: NDArray[np.uint8], start: int, stop: int, key: NDArray[np.uint64], out: NDArray[np.int64]
) -> int:
    """Hash the words of an ASCII text into `out`; return their number, or -1 if the text is not ASCII.

    `out` has room for as many words as there can be. A word is hashed as its letters are read, eight at a time.
    """
    n_words, n, letters = 0, 0, _ZERO
    fresh = _start(key)
    state = fresh
    for at in range(start, stop):
        c = data[at]
        if c >= 128:
            return -1
        if 65 <= c <= 90:
            c += np.uint8(32)
        if 97 <= c <= 122 or 48 <= c <= 57:
            letters |= np.uint64(c) << np.uint64(8 * (n & 7))
            n += 1
            if n & 7 == 0:
                state, letters = _add(state, letters), _ZERO
        elif n > 0:
            out[n_words] = _finish(state, letters, n)
            n_words, n, letters, state = n_words + 1, 0, _ZERO, fresh
    if n > 0:
        out[n_words] = _finish(state, letters, n)
        n_words += 1
    return n_words


@kernel
def hash_texts(
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
        first = (offsets[i] - offsets[0]) // 2 + i
        lengths[i] = hash_words(data, offsets[i], offsets[i + 1], key, out[first:])


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


@kernel
def rank_terms(
    numbers: NDArray[np.int64],
    starts: NDArray[np.int64],
    order_indptr: NDArray[np.int64],
    indptr: NDArray[np.int64],
    ids: NDArray[np.int64],
    ranks: NDArray[np.uint16],
) -> None:
    """Write the position of each term of each text among the distinct, ascending terms of its row."""
    for row in range(len(starts)):
        first, last = indptr[row], indptr[row + 1]
        for i in range(order_indptr[row + 1] - order_indptr[row]):
            number, low, high = numbers[starts[row] + i], first, last - 1
            while low < high:
                middle = (low + high) // 2
                if ids[middle] < number:
                    low = middle + 1
                else:
                    high = middle
            ranks[order_indptr[row] + i] = min(low - first, 65535)
