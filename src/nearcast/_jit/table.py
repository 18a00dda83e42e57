"""A hash table of int64 keys and int64 values as flat arrays: open addressing, linear probing, power-of-two sizes.

    mixed = mix(key)        ┌ upper bits ─> first slot, then the next ones, round the end
                            └ lower 7 ────> tag
    tags     uint8   [ 0 | 0 | A3 | F0 | 0 | ...    0 is free, else 128 + the tag: any int64 is a legal key
    entries  int64   [   |   | k,v| k,v|   | ...    read only where the tag agrees: a miss rarely leaves the tags

Removal shifts later entries back, so there are no tombstones. At three quarters full `table_put` refuses a new key;
the owner (`Table`) grows the table and continues.

Cost: about two cache misses per successful lookup, one per unsuccessful one; 23 to 45 bytes per key.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearcast._jit.arena import Arena
from nearcast._jit.column import column, same_length
from nearcast._jit.kernel import kernel

__all__ = [
    "FULL",
    "INSERTED",
    "REPLACED",
    "Table",
    "TableArrays",
    "mix",
    "table_find",
    "table_first_slot",
    "table_get",
    "table_get_many",
    "table_put",
    "table_put_many",
    "table_remove",
]

FULL, REPLACED, INSERTED = -1, 0, 1
"""What `table_put` did; FULL means no change."""

_LOW_HALF = 0xFFFFFFFF
_SMALLEST = 16


class TableArrays(NamedTuple):
    """A table, as kernels take it. `n_slots` is a power of two."""

    tags: NDArray[np.uint8]
    """uint8 (n_slots,): 0 where free, else 128 + 7 bits of the mixed key."""
    entries: NDArray[np.int64]
    """int64 (n_slots, 2): key and value, one cache line for both."""
    n_taken: NDArray[np.int64]
    """int64 (1,): number of slots in use."""


@kernel
def mix(key: int) -> int:
    """Mix the bits of a key into 63 bits: neighbours, multiples and keys that share a half all differ.

    Halves of 32 bits times constants of 31 bits never exceed 2**63, so compiled code, NumPy scalars and Python
    integers agree and nothing overflows. (The usual 64-bit finalisers wrap around, which NumPy scalars report as an
    error.)

        >>> mix(1) != mix(-1), mix(0) >= 0
        (True, True)
    """
    mixed = ((key & _LOW_HALF) * 0x4F1BBCDD) ^ (((key >> 32) & _LOW_HALF) * 0x2C1B3C6D)
    mixed = ((mixed & _LOW_HALF) ^ (mixed >> 31)) * 0x7FEB352D
    return mixed ^ (mixed >> 32)


@kernel
def table_first_slot(table: TableArrays, key: int) -> int:
    """Return the slot at which the search for a key begins."""
    return (mix(key) >> 7) & (table.tags.size - 1)


@kernel
def table_find(table: TableArrays, key: int) -> int:
    """Return the slot of a key, or `~slot` of the free slot where it would go."""
    last = table.tags.size - 1
    mixed = mix(key)
    tag = 128 | (mixed & 127)
    slot = (mixed >> 7) & last
    while table.tags[slot] != 0:
        if table.tags[slot] == tag and table.entries[slot, 0] == key:
            return slot
        slot = (slot + 1) & last
    return ~slot


@kernel
def table_get(table: TableArrays, key: int, default: int) -> int:
    """Return the value of a key."""
    slot = table_find(table, key)
    return table.entries[slot, 1] if slot >= 0 else default


@kernel
def table_put(table: TableArrays, key: int, value: int) -> int:
    """Set the value of a key: INSERTED, REPLACED, or FULL without a change."""
    slot = table_find(table, key)
    if slot >= 0:
        table.entries[slot, 1] = value
        return REPLACED
    if table.n_taken[0] >= table.tags.size - table.tags.size // 4:
        return FULL
    slot = ~slot
    table.tags[slot] = 128 | (mix(key) & 127)
    table.entries[slot, 0] = key
    table.entries[slot, 1] = value
    table.n_taken[0] += 1
    return INSERTED


@kernel
def table_remove(table: TableArrays, key: int) -> bool:
    """Remove a key; return whether it was there."""
    hole = table_find(table, key)
    if hole < 0:
        return False
    last = table.tags.size - 1
    slot = (hole + 1) & last
    while table.tags[slot] != 0:
        first_slot = (mix(table.entries[slot, 0]) >> 7) & last
        # The entry may move back to the hole unless its first slot lies after the hole.
        if ((slot - first_slot) & last) >= ((slot - hole) & last):
            table.tags[hole] = table.tags[slot]
            table.entries[hole, 0] = table.entries[slot, 0]
            table.entries[hole, 1] = table.entries[slot, 1]
            hole = slot
        slot = (slot + 1) & last
    table.tags[hole] = 0
    table.n_taken[0] -= 1
    return True


@kernel
def table_get_many(table: TableArrays, keys: NDArray[np.int64], default: int, values: NDArray[np.int64]) -> None:
    """Write the values of `keys` to `values`."""
    for i in range(keys.size):
        values[i] = table_get(table, keys[i], default)


@kernel
def table_put_many(table: TableArrays, keys: NDArray[np.int64], values: NDArray[np.int64], start: int) -> int:
    """Put keys from `start` on; return where it stopped: `keys.size`, or the first key that met a full table."""
    for i in range(start, keys.size):
        if table_put(table, keys[i], values[i]) == FULL:
            return i
    return keys.size


@kernel
def _refill(old: TableArrays, new: TableArrays) -> None:
    for slot in range(old.tags.size):
        if old.tags[slot] != 0:
            table_put(new, old.entries[slot, 0], old.entries[slot, 1])


class Table:
    """A hash table in an arena that grows on demand; an arena that holds it already is continued.

    `arrays` is what kernels take. Growth replaces it, so read it for every batch.

        >>> table = Table(Arena(), "terms")
        >>> table.put_many([7, -2, 7], [70, 20, 71])
        >>> table.get_many([7, 8, -2])
        array([71, -1, 20])
        >>> table.remove(7), len(table)
        (True, 1)
    """

    def __init__(self, arena: Arena, prefix: str, *, room: int = 0) -> None:
        self._arena, self._prefix = arena, prefix
        if f"{prefix}.n_taken" not in arena:
            n_slots = _n_slots(room)
            with arena.together():
                arena.new(f"{prefix}.tags", np.uint8, n_slots)
                arena.new(f"{prefix}.entries", np.int64, n_slots, columns=2)
                arena.new(f"{prefix}.n_taken", np.int64, 1)
        self.arrays = arena.bundle(prefix, TableArrays)

    def __len__(self) -> int:
        return int(self.arrays.n_taken[0])

    def __contains__(self, key: int) -> bool:
        return int(table_find(self.arrays, key)) >= 0

    def get(self, key: int, default: int = -1) -> int:
        """Return the value of a key."""
        return int(table_get(self.arrays, key, default))

    def put(self, key: int, value: int) -> None:
        """Set the value of a key."""
        while table_put(self.arrays, key, value) == FULL:
            self.reserve(len(self) + 1)

    def remove(self, key: int) -> bool:
        """Remove a key; return whether it was there."""
        return bool(table_remove(self.arrays, key))

    def get_many(self, keys: ArrayLike, default: int = -1) -> NDArray[np.int64]:
        """Return the values of many keys."""
        keys = column(keys, np.int64)
        values = np.empty(keys.size, np.int64)
        table_get_many(self.arrays, keys, default, values)
        return values

    def put_many(self, keys: ArrayLike, values: ArrayLike) -> None:
        """Set the values of many keys; of equal keys the last one counts."""
        keys, values = column(keys, np.int64), column(values, np.int64)
        same_length(keys=keys, values=values)
        done = table_put_many(self.arrays, keys, values, 0)
        while done < keys.size:
            self.reserve(len(self) + 1)
            done = table_put_many(self.arrays, keys, values, done)

    def items(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return all keys and their values, in no particular order."""
        taken = self.arrays.entries[self.arrays.tags != 0]
        return taken[:, 0].copy(), taken[:, 1].copy()

    def reserve(self, n_keys: int) -> None:
        """Grow so that `n_keys` fit without further growth."""
        n_slots = _n_slots(n_keys)
        if n_slots <= self.arrays.tags.size:
            return
        with self._arena.together():
            self._arena.renew(f"{self._prefix}.tags", n_slots)
            self._arena.renew(f"{self._prefix}.entries", n_slots)
            self._arena.renew(f"{self._prefix}.n_taken", 1)
            larger = self._arena.bundle(self._prefix, TableArrays)
            _refill(self.arrays, larger)
        self.arrays = larger


def _n_slots(n_keys: int) -> int:
    """Return the smallest power of two of which `n_keys` are at most three quarters."""
    n_slots = _SMALLEST
    while n_keys > n_slots - n_slots // 4:
        n_slots *= 2
    return n_slots
