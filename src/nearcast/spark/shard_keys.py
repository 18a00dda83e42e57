"""Keys of shards: one task for each shard.

Spark sends a row to the task `pmod(hash(key), tasks)`. The numbers 0, 1, 2 ... themselves collide: of eight shards
some tasks would get three and others none. The key of a shard is therefore the first number whose hash leads to its
task.

    shard, task    0   1   2
    key            0   1  11
"""

from __future__ import annotations

from functools import cache

_MASK = 0xFFFFFFFF
_SEED = 42  # the seed of Spark's partitioning hash


def spark_hash(number: int) -> int:
    """Return Spark's hash of an `int` column, 0 or more: Murmur3 of four bytes, as a signed 32-bit number.

    >>> spark_hash(0), spark_hash(1)
    (933211791, -559580957)
    """
    mixed = _rotate(number * 0xCC9E2D51, 15) * 0x1B873593 & _MASK
    hashed = (_rotate(_SEED ^ mixed, 13) * 5 + 0xE6546B64 ^ 4) & _MASK
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & _MASK
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & _MASK
    hashed ^= hashed >> 16
    return hashed - (1 << 32) if hashed >> 31 else hashed


@cache
def keys_of(shards: int) -> tuple[int, ...]:
    """Return the key of each shard: the first number whose rows go to the task of that number.

    >>> keys_of(3)
    (0, 1, 11)
    """
    keys: dict[int, int] = {}
    number = 0
    while len(keys) < shards:
        keys.setdefault(spark_hash(number) % shards, number)
        number += 1
    return tuple(keys[shard] for shard in range(shards))


def _rotate(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> 32 - bits) & _MASK
