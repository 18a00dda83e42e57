"""SHARE: how the work is divided among shards. One module a partitioner."""

from nearcast.partition.base import (
    MOST_SHARDS,
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
from nearcast.partition.dkm import DkmPartitioner
from nearcast.partition.hash import HashPartitioner
from nearcast.partition.hybrid import HybridPartitioner
from nearcast.partition.keyword import KeywordPartitioner
from nearcast.partition.keyword_first import KeywordFirstPartitioner
from nearcast.partition.knn_keyword import KnnKeywordPartitioner
from nearcast.partition.knn_space import KnnSpacePartitioner
from nearcast.partition.location import LocationPartitioner
from nearcast.partition.prefix import PrefixPartitioner
from nearcast.partition.space_grid import SpaceGridPartitioner
from nearcast.partition.space_kd import SpaceKdPartitioner
from nearcast.partition.space_rtree import SpaceRtreePartitioner
from nearcast.partition.spatial_first import SpatialFirstPartitioner
from nearcast.partition.text_frequency import TextFrequencyPartitioner
from nearcast.partition.text_hypergraph import TextHypergraphPartitioner
from nearcast.partition.text_metric import TextMetricPartitioner

PARTITIONERS: tuple[Partitioner, ...] = (
    HashPartitioner(),
    LocationPartitioner(),
    KeywordPartitioner(),
    PrefixPartitioner(),
    SpatialFirstPartitioner(),
    KeywordFirstPartitioner(),
    SpaceGridPartitioner(),
    SpaceKdPartitioner(),
    SpaceRtreePartitioner(),
    TextFrequencyPartitioner(),
    TextMetricPartitioner(),
    *([TextHypergraphPartitioner()] if TextHypergraphPartitioner.is_installed() else []),
    HybridPartitioner(),
    KnnKeywordPartitioner(),
    KnnSpacePartitioner(),
    DkmPartitioner(),
)

__all__ = [
    "MOST_SHARDS",
    "PARTITIONERS",
    "Masks",
    "Partitioner",
    "Region",
    "Routing",
    "Sample",
    "all_shards",
    "before_it",
    "has_shard",
    "place_by_key",
]
