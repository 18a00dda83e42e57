"""Partitioners: how shards share subscriptions and messages. One module per partitioner."""

from nearcast.partition.base import Partitioner, Routing, Sample, ShardArea
from nearcast.partition.masks import (
    MAX_SHARDS,
    Masks,
    all_shards,
    are_empty,
    as_ints,
    before_it,
    count_rows,
    count_shards,
    has_shard,
    mask_of,
    n_words,
    no_shards,
    place_by_key,
    rows_of_shards,
    shards_by_key,
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
    "Routing",
    "Sample",
    "ShardArea",
    "all_shards",
    "are_empty",
    "as_ints",
    "before_it",
    "count_rows",
    "count_shards",
    "has_shard",
    "mask_of",
    "n_words",
    "no_shards",
    "partitioner_names",
    "partitioners",
    "place_by_key",
    "register_partitioner",
    "registered_partitioners",
    "rows_of_shards",
    "shards_by_key",
]
