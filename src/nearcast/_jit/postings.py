"""Posting lists: many lists that grow at the end, each a chain of chunks of one pool.

All chunks of a list are full except the last.

    rows     heads  tails  lengths               chunk   items (here 4 per chunk)  nexts  prevs
    0        0      3      6            ───>     0       [ a b c d ]              3      -1
    1        1      1      2                     1       [ x y . . ]              -1     -1
                                                 2       free ─> ...
                                                 3       [ e f . . ]              -1     0

Other kernels read a list without copying:

    chunk, n = postings_first(postings, row)
    while n > 0:
        for place in range(n):
            ... postings.items[chunk, place] ...
        chunk, n = postings_next(postings, row, chunk)

Removal moves the last item to the gap, so a list keeps its order only while nothing is removed. An empty chunk goes
to a free list and is reused by any list.

Cost: appending and removal by place take constant time, removal by value reads the list, reading runs along chunks;
12 bytes per list and 8 per chunk besides the items. Small chunks waste less on short lists, large ones read faster.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from nearcast._jit.arena import Arena
from nearcast._jit.column import column, same_length
from nearcast._jit.kernel import kernel
from nearcast.errors import StateError, require

__all__ = [
    "PostingArrays",
    "Postings",
    "postings_append",
    "postings_append_many",
    "postings_clear",
    "postings_copy",
    "postings_first",
    "postings_next",
    "postings_remove",
    "postings_remove_at",
]

_USED, _FREE = 0, 1  # positions in `state`
_NONE = -1


class PostingArrays(NamedTuple):
    """Posting lists, as kernels take them. `chunk_size` is a power of two."""

    heads: NDArray[np.int32]
    """int32 (n_rows,): first chunk of a list, or -1."""
    tails: NDArray[np.int32]
    """int32 (n_rows,): last chunk of a list, or -1."""
    lengths: NDArray[np.int32]
    """int32 (n_rows,): items on a list."""
    items: NDArray[np.int64]
    """int64 or int32 (n_chunks, chunk_size): the items."""
    nexts: NDArray[np.int32]
    """int32 (n_chunks,): the chunk after this one, on its list or on the free list, or -1."""
    prevs: NDArray[np.int32]
    """int32 (n_chunks,): the chunk before this one on its list, or -1."""
    state: NDArray[np.int64]
    """int64 (2,): chunks ever allocated; first chunk of the free list, or -1."""


@kernel
def _take_chunk(postings: PostingArrays) -> int:
    """Return an unused chunk, preferably a freed one, or -1 if the pool is full."""
    chunk = int(postings.state[_FREE])
    if chunk != _NONE:
        postings.state[_FREE] = postings.nexts[chunk]
    elif postings.state[_USED] < postings.nexts.size:
        chunk = int(postings.state[_USED])
        postings.state[_USED] += 1
    return chunk


@kernel
def postings_append(postings: PostingArrays, row: int, item: int) -> bool:
    """Append an item to a list; return False, without a change, if the pool is full."""
    place = postings.lengths[row] & (postings.items.shape[1] - 1)
    if place == 0:
        chunk = _take_chunk(postings)
        if chunk == _NONE:
            return False
        tail = postings.tails[row]
        postings.prevs[chunk] = tail
        postings.nexts[chunk] = _NONE
        postings.tails[row] = chunk
        if tail == _NONE:
            postings.heads[row] = chunk
        else:
            postings.nexts[tail] = chunk
    postings.items[postings.tails[row], place] = item
    postings.lengths[row] += 1
    return True


@kernel
def postings_append_many(
    postings: PostingArrays, rows: NDArray[np.int64], items: NDArray[np.int64], start: int
) -> int:
    """Append `items[i]` to list `rows[i]` from `start` on; return where it stopped because the pool was full."""
    for i in range(start, rows.size):
        if not postings_append(postings, rows[i], items[i]):
            return i
    return rows.size


@kernel
def postings_first(postings: PostingArrays, row: int) -> tuple[int, int]:
    """Return the first chunk of a list and its number of items; -1 and 0 for an empty list."""
    return int(postings.heads[row]), min(int(postings.lengths[row]), postings.items.shape[1])


@kernel
def postings_next(postings: PostingArrays, row: int, chunk: int) -> tuple[int, int]:
    """Return the chunk after `chunk` and its number of items; -1 and 0 after the last."""
    following = int(postings.nexts[chunk])
    if following == _NONE:
        return following, 0
    if following == postings.tails[row]:
        return following, ((int(postings.lengths[row]) - 1) & (postings.items.shape[1] - 1)) + 1
    return following, postings.items.shape[1]


@kernel
def postings_copy(postings: PostingArrays, row: int, out: NDArray[np.int64]) -> int:
    """Write a list to the start of `out`; return its length.

    A buffer that is too short is not written: compare the length with its size.
    """
    length = int(postings.lengths[row])
    if length <= out.size:
        done = 0
        chunk, n = postings_first(postings, row)
        while n > 0:
            for place in range(n):
                out[done + place] = postings.items[chunk, place]
            done += n
            chunk, n = postings_next(postings, row, chunk)
    return length


@kernel
def postings_remove_at(postings: PostingArrays, row: int, chunk: int, place: int) -> int:
    """Remove the item at a place; return the number of items left in the chunk.

    The last item of the list moves to the place, so a loop reads that place again; at 0 the chunk, and the list,
    ends.
    """
    tail = postings.tails[row]
    last = (int(postings.lengths[row]) - 1) & (postings.items.shape[1] - 1)
    postings.items[chunk, place] = postings.items[tail, last]
    postings.lengths[row] -= 1
    if last == 0:  # the tail is empty now
        before = postings.prevs[tail]
        postings.tails[row] = before
        if before == _NONE:
            postings.heads[row] = _NONE
        else:
            postings.nexts[before] = _NONE
        postings.nexts[tail] = postings.state[_FREE]
        postings.state[_FREE] = tail
    return last if chunk == tail else int(postings.items.shape[1])


@kernel
def postings_remove(postings: PostingArrays, row: int, item: int) -> bool:
    """Remove the first item of a list that equals `item`; return whether there was one."""
    chunk, n = postings_first(postings, row)
    while n > 0:
        for place in range(n):
            if postings.items[chunk, place] == item:
                postings_remove_at(postings, row, chunk, place)
                return True
        chunk, n = postings_next(postings, row, chunk)
    return False


@kernel
def postings_clear(postings: PostingArrays, row: int) -> None:
    """Empty a list: its whole chain moves to the free list in one step."""
    if postings.heads[row] == _NONE:
        return
    postings.nexts[postings.tails[row]] = postings.state[_FREE]
    postings.state[_FREE] = postings.heads[row]
    postings.heads[row] = postings.tails[row] = _NONE
    postings.lengths[row] = 0


@kernel
def _pack(old: PostingArrays, new: PostingArrays) -> None:
    """Copy all lists, one after the other, to new chunks; `new` has enough of them."""
    for row in range(old.heads.size):
        chunk, n = postings_first(old, row)
        while n > 0:
            for place in range(n):
                postings_append(new, row, old.items[chunk, place])
            chunk, n = postings_next(old, row, chunk)


class Postings:
    """Posting lists in an arena that grow on demand; an arena that holds them already is continued.

    `arrays` is what kernels take. An append may replace it, so read it for every batch.

        >>> postings = Postings(Arena(), "terms", chunk_size=4)
        >>> postings.append_many([5, 0, 5, 5], [10, 20, 30, 40])
        >>> postings.remove(5, 10), postings[5], postings[1]
        (True, array([40, 30]), array([], dtype=int64))
    """

    def __init__(
        self, arena: Arena, prefix: str, *, chunk_size: int = 16, dtype: DTypeLike = np.int64, rows: int = 0
    ) -> None:
        is_power = chunk_size > 0 and chunk_size & (chunk_size - 1) == 0
        require(is_power, "chunk_size", "must be a power of two", chunk_size)
        require(np.dtype(dtype) in (np.int64, np.int32), "dtype", "must be int64 or int32", dtype)
        self._arena, self._prefix = arena, prefix
        if f"{prefix}.state" not in arena:
            with arena.together():
                arena.new(f"{prefix}.heads", np.int32, rows, _NONE)
                arena.new(f"{prefix}.tails", np.int32, rows, _NONE)
                arena.new(f"{prefix}.lengths", np.int32, rows)
                arena.new(f"{prefix}.items", dtype, 0, columns=chunk_size)
                arena.new(f"{prefix}.nexts", np.int32, 0, _NONE)
                arena.new(f"{prefix}.prevs", np.int32, 0, _NONE)
                arena.new(f"{prefix}.state", np.int64, 2)[_FREE] = _NONE
        self.arrays = arena.bundle(prefix, PostingArrays)
        found = self.arrays.items.dtype, self.arrays.items.shape[1]
        if found != (np.dtype(dtype), chunk_size):
            raise StateError(
                f"postings {prefix!r} must have {found[1]} {found[0]} per chunk; got {chunk_size} {dtype}"
            )

    def __len__(self) -> int:
        return int(self.arrays.heads.size)

    def __getitem__(self, row: int) -> NDArray[np.int64]:
        """Return a copy of a list; an empty one for an unused row."""
        length = int(self.arrays.lengths[row]) if 0 <= row < len(self) else 0
        items = np.empty(length, self.arrays.items.dtype)
        if length:
            postings_copy(self.arrays, row, items)
        return items

    @property
    def n_chunks(self) -> int:
        """The chunks ever allocated, free ones included."""
        return int(self.arrays.state[_USED])

    def append(self, row: int, item: int) -> None:
        """Append an item to a list."""
        self.append_many([row], [item])

    def append_many(self, rows: ArrayLike, items: ArrayLike) -> None:
        """Append `items[i]` to list `rows[i]`, for all i."""
        rows, items = column(rows, np.int64), column(items, self.arrays.items.dtype)
        same_length(rows=rows, items=items)
        if rows.size == 0:
            return
        require(int(rows.min()) >= 0, "row", "must be at least 0", int(rows.min()))
        self.reserve_rows(int(rows.max()) + 1)
        done = postings_append_many(self.arrays, rows, items, 0)
        while done < rows.size:
            self.reserve_chunks(1)
            done = postings_append_many(self.arrays, rows, items, done)

    def remove(self, row: int, item: int) -> bool:
        """Remove the first item of a list that equals `item`; return whether there was one."""
        return 0 <= row < len(self) and bool(postings_remove(self.arrays, row, item))

    def clear(self, row: int) -> None:
        """Empty a list."""
        if 0 <= row < len(self):
            postings_clear(self.arrays, row)

    def reserve_rows(self, n_rows: int) -> None:
        """Reserve lists 0 to `n_rows` - 1."""
        if n_rows > len(self):
            self._grow(("heads", "tails", "lengths"), n_rows)

    def reserve_chunks(self, n_chunks: int) -> None:
        """Reserve the given number of chunks beyond those ever allocated."""
        self._grow(("items", "nexts", "prevs"), self.n_chunks + n_chunks)

    def compact(self) -> None:
        """Move the chunks of each list together and free the unused ones."""
        old = self.arrays
        n_chunks = int(np.sum(-(-old.lengths.astype(np.int64) // old.items.shape[1])))
        with self._arena.together():
            for field in ("heads", "tails", "lengths"):
                self._arena.renew(f"{self._prefix}.{field}", len(self))
            for field in ("items", "nexts", "prevs"):
                self._arena.renew(f"{self._prefix}.{field}", n_chunks)
            self._arena.renew(f"{self._prefix}.state", 2)[_FREE] = _NONE
            packed = self._arena.bundle(self._prefix, PostingArrays)
            _pack(old, packed)
        self.arrays = packed

    def _grow(self, fields: tuple[str, ...], length: int) -> None:
        self._arena.grow_all([f"{self._prefix}.{field}" for field in fields], length)
        self.arrays = self._arena.bundle(self._prefix, PostingArrays)
