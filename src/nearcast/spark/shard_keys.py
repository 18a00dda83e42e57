"""Keys of shards: shards are dealt out to tasks, shard i to task i modulo the number of tasks.

Spark sends a row to the task `pmod(hash(key), tasks)`. The numbers 0, 1, 2 ... themselves collide: of eight shards
some tasks would get three and others none. The key of a shard is therefore a number whose hash leads to its task. The
number of tasks is fixed for the life of a checkpoint, that of shards is not: each further shard gets the next number
of its task, so no key ever changes.

    shard    0   1   2   3   4
    task     0   1   2   0   1
    key      0   1  11   2   6
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
def keys_of(shards: int, tasks: int) -> tuple[int, ...]:
    """Return the key of each shard.

    >>> keys_of(3, 3), keys_of(5, 3)
    ((0, 1, 11), (0, 1, 11, 2, 6))
    """
    keys: list[list[int]] = [[] for _ in range(tasks)]
    wanted, number = -(-shards // tasks), 0
    while any(len(own) < wanted for own in keys):
        keys[spark_hash(number) % tasks].append(number)
        number += 1
    return tuple(keys[shard % tasks][shard // tasks] for shard in range(shards))


def shard_of(key: int, tasks: int) -> int:
    """Return the shard of a key.

    >>> [shard_of(key, 3) for key in keys_of(5, 3)]
    [0, 1, 2, 3, 4]
    """
    task = spark_hash(key) % tasks
    return task + tasks * sum(spark_hash(number) % tasks == task for number in range(key))


def _rotate(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> 32 - bits) & _MASK
