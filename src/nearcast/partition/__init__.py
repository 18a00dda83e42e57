"""SHARE: how the work is divided among shards. One module a partitioner."""

from nearcast.partition.hash import HashPartitioner
from nearcast.partition.partitioner import Partitioner, Routing, Sample

PARTITIONERS: tuple[Partitioner, ...] = (HashPartitioner(),)

__all__ = ["PARTITIONERS", "Partitioner", "Routing", "Sample"]
