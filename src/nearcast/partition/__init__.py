"""Partitioners: how shards share subscriptions and messages. One module per partitioner."""

from nearcast.partition.base import (
    MAX_SHARDS,
    Masks,
    Partitioner,
    Region,
    Routing,
    Sample,
    all_shards,
    before_it,
    has_shard,
    place_by_key,
)
from nearcast.partition.registry import (
    PARTITIONERS,
    partitioner_names,
    partitioners,
    register_partitioner,
    registered_partitioners,
)

__all__ = [
    "MAX_SHARDS",
    "PARTITIONERS",
    "Masks",
    "Partitioner",
    "Region",
    "Routing",
    "Sample",
    "all_shards",
    "before_it",
    "has_shard",
    "partitioner_names",
    "partitioners",
    "place_by_key",
    "register_partitioner",
    "registered_partitioners",
]
