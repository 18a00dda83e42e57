"""SHARE: how the work is divided among shards. One module a partitioner."""

from nearcast.partition.base import (
    MOST_SHARDS,
    Masks,
    Partitioner,
    Routing,
    Sample,
    everyone,
    has_shard,
    place_by_key,
)
from nearcast.partition.hash import HashPartitioner
from nearcast.partition.location import LocationPartitioner

PARTITIONERS: tuple[Partitioner, ...] = (HashPartitioner(), LocationPartitioner())

__all__ = [
    "MOST_SHARDS",
    "PARTITIONERS",
    "Masks",
    "Partitioner",
    "Routing",
    "Sample",
    "everyone",
    "has_shard",
    "place_by_key",
]
