"""Masks: sets of shards, one bit per shard.

    masks    uint64 (n, n_words): a row is a set, bit i % 64 of word i // 64 stands for shard i

A message and a subscription meet where both have a bit. A set takes 8 bytes for each 64 shards, whatever it holds, so
rows can be selected, stored by slot and combined as numbers; up to 64 shards it is one number. Cost: functions that
name all members of sets, `rows_of_shards` and `count_rows`, take some nanoseconds per word and per member.

Keys are mapped to shards by jump consistent hashing (J. Lamping and E. Veach, "A Fast, Minimal Memory, Consistent
Hash Algorithm", 2014): from n to m shards only those keys move that must, the share |m - n| / max(m, n).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.errors import require

Masks = npt.NDArray[np.uint64]
Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

MAX_SHARDS = 4_096
"""The most shards: a set then takes 512 bytes, several times what a message takes."""

_BITS = 64
_FACTOR, _RANGE = np.uint64(2862933555777941757), float(1 << 31)  # of the generator of jumps


def check_shards(n_shards: int) -> None:
    """Raise `InvalidInput` if there cannot be that many shards."""
    require(1 <= n_shards <= MAX_SHARDS, "n_shards", f"must be between 1 and {MAX_SHARDS}", n_shards)


def n_words(n_shards: int) -> int:
    """Return the number of words of a mask.

    >>> n_words(1), n_words(64), n_words(65)
    (1, 1, 2)
    """
    return -(-n_shards // _BITS)


def no_shards(n: int, n_shards: int) -> Masks:
    """Return n empty sets."""
    return np.zeros((n, n_words(n_shards)), np.uint64)


def all_shards(n: int, n_shards: int) -> Masks:
    """Return n sets of all shards; they share the memory of one and cannot be written.

    >>> as_ints(all_shards(2, 3)), as_ints(all_shards(1, 65)) == [2**65 - 1]
    ([7, 7], True)
    """
    check_shards(n_shards)
    mask = np.full(n_words(n_shards), ~np.uint64(0))
    mask[-1] >>= np.uint64(-n_shards % _BITS)
    return np.broadcast_to(mask, (n, len(mask)))


def mask_of(shards: npt.NDArray[np.integer], n_shards: int) -> Masks:
    """Return sets of one shard each.

    >>> as_ints(mask_of(np.array([0, 3]), 4)), mask_of(np.array([64]), 65).tolist()
    ([1, 8], [[0, 1]])
    """
    return masks_of(np.arange(len(shards)), shards, n=len(shards), n_shards=n_shards)


def masks_of(rows: Longs, shards: npt.NDArray[np.integer], *, n: int, n_shards: int) -> Masks:
    """Return n sets, given pairs of rows and shards; a negative shard is none.

    >>> as_ints(masks_of(np.array([0, 2, 0]), np.array([0, 1, 2]), n=3, n_shards=3))
    [5, 0, 2]
    """
    from nearcast.partition._kernels.masks import add_shards

    masks = no_shards(n, n_shards)
    add_shards(masks, rows, shards.astype(np.int64, copy=False))
    return masks


def united(indptr: Longs, items: npt.NDArray[np.integer], of_items: Masks) -> Masks:
    """Return the union of the sets of the items of each row; none if a row has no items.

    >>> as_ints(united(np.array([0, 2, 2, 3]), np.array([0, 2, 1]), mask_of(np.array([0, 1, 2]), 3)))
    [5, 0, 2]
    """
    from nearcast.partition._kernels.masks import unite

    masks: Masks = np.zeros((len(indptr) - 1, of_items.shape[1]), np.uint64)
    unite(indptr, items.astype(np.int64, copy=False), of_items, masks)
    return masks


def shards_by_key(keys: npt.NDArray[np.uint64], n_shards: int) -> npt.NDArray[np.int32]:
    """Return the shard of each key, by jump consistent hashing. Cost: about ln(n_shards) + 1 steps per key.

    >>> keys = np.arange(6, dtype=np.uint64)
    >>> shards_by_key(keys, 1).tolist(), shards_by_key(keys, 4).tolist()
    ([0, 0, 0, 0, 0, 0], [0, 0, 3, 3, 1, 1])
    """
    shards, open_ = np.zeros(len(keys), np.int32), np.arange(len(keys))
    states, nexts = keys, np.zeros(len(keys), np.int64)  # the shard to which each key jumps next
    while len(open_):
        shards[open_] = nexts
        states = states * _FACTOR + np.uint64(1)
        shares = (states >> np.uint64(33)).astype(np.float64) + 1.0
        nexts = ((nexts + 1) * (_RANGE / shares)).astype(np.int64)
        stays = nexts < n_shards
        open_, states, nexts = open_[stays], states[stays], nexts[stays]
    return shards


def place_by_key(keys: npt.NDArray[np.uint64], n_shards: int) -> Masks:
    """Return the set of the shard of each key."""
    return mask_of(shards_by_key(keys, n_shards), n_shards)


def before_it(masks: Masks, shard: int) -> Masks:
    """Return the shards of each set before the given one.

    >>> as_ints(before_it(mask_of(np.array([1, 2, 64]), 65) | mask_of(np.array([0, 0, 0]), 65), 2))
    [3, 1, 1]
    """
    at = shard // _BITS
    before = masks.copy()
    before[:, at] &= np.uint64((1 << shard % _BITS) - 1)
    before[:, at + 1 :] = 0
    return before


def has_shard(masks: Masks, shard: int) -> Flags:
    """Return which sets hold a shard.

    >>> has_shard(np.array([[1], [3], [2]], np.uint64), 1).tolist()
    [False, True, True]
    """
    held: Flags = masks[:, shard // _BITS] & np.uint64(1 << shard % _BITS) != 0
    return held


def add_shard(masks: Masks, rows: npt.NDArray[np.integer], shard: int) -> None:
    """Add a shard to the sets of distinct rows."""
    masks[rows, shard // _BITS] |= np.uint64(1 << shard % _BITS)


def are_empty(masks: Masks) -> Flags:
    """Return which sets are empty.

    >>> are_empty(np.array([[0, 0], [0, 4]], np.uint64)).tolist()
    [True, False]
    """
    empty: Flags = masks[:, 0] == 0  # word by word: a reduction over a short axis takes several times as long
    for word in range(1, masks.shape[1]):
        empty &= masks[:, word] == 0
    return empty


def count_shards(masks: Masks) -> Longs:
    """Return the number of shards of each set."""
    counts: Longs = np.bitwise_count(masks).sum(axis=1, dtype=np.int64)
    return counts


def count_rows(masks: Masks, n_shards: int) -> Longs:
    """Return the number of sets that hold each shard.

    >>> count_rows(np.array([[1], [3], [2], [2]], np.uint64), 3).tolist()
    [2, 3, 0]
    """
    from nearcast.partition._kernels import masks as kernels

    counts: Longs = np.zeros(n_shards, np.int64)
    kernels.count_rows(masks, counts)
    return counts


def rows_of_shards(masks: Masks, n_shards: int) -> list[Longs]:
    """Return, for each shard, the rows of the sets that hold it, ascending.

    >>> [rows.tolist() for rows in rows_of_shards(np.array([[1], [3], [2]], np.uint64), 3)]
    [[0, 1], [1, 2], []]
    """
    from nearcast.partition._kernels.masks import list_rows

    ends = np.cumsum(count_rows(masks, n_shards))
    starts = np.concatenate([[0], ends[:-1]])
    rows: Longs = np.empty(ends[-1], np.int64)
    list_rows(masks, starts, rows)  # each start moves to its end
    return np.split(rows, ends[:-1])


def as_ints(masks: Masks) -> list[int]:
    """Return sets as integers of Python, bit i for shard i.

    >>> as_ints(np.array([[3, 0], [0, 1]], np.uint64))
    [3, 18446744073709551616]
    """
    return [sum(word << _BITS * i for i, word in enumerate(mask)) for mask in masks.tolist()]


def to_arrow(masks: Masks) -> pa.Array:
    """Return sets as a column, 8 bytes per word."""
    width, little = 8 * masks.shape[1], np.ascontiguousarray(masks, "<u8")
    return pa.Array.from_buffers(pa.binary(width), len(masks), [None, pa.py_buffer(little)])


def from_arrow(column: pa.ChunkedArray) -> Masks:
    """Return the sets of a column.

    >>> from_arrow(pa.chunked_array([to_arrow(np.array([[3, 0], [0, 1]], np.uint64)).slice(1)])).tolist()
    [[0, 1]]
    """
    width = column.type.byte_width
    parts = [
        np.frombuffer(part.buffers()[1], "<u8", count=len(part) * width // 8, offset=part.offset * width)
        for part in column.chunks
        if len(part)
    ]
    masks: Masks = np.concatenate([np.zeros(0, np.uint64), *parts]).reshape(-1, width // 8)
    return masks
