"""The registry of partitioners: those built in, those of installed packages, and those registered by a call.

A package adds a partitioner through an entry point that names an object with `name` and `fit`:

    [project.entry-points."nearcast.partitioners"]
    by_user = "my_package:ByUserPartitioner"

Entry points are loaded when a partitioner is first looked up; a class is called without arguments.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Any

from nearcast.errors import require
from nearcast.partition.base import Partitioner
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

ENTRY_POINTS = "nearcast.partitioners"
AUTO = "auto"

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
"""The partitioners that are built in."""

_REGISTERED: dict[str, Partitioner] = {}


def register_partitioner(partitioner: Partitioner) -> None:
    """Make a partitioner available by name to engines and jobs of this process.

    `partitioner.routing_types` lists the dataclasses of its routings, so that they can be saved. Registering a name
    again replaces the partitioner; the name of a built-in one is refused.
    """
    ok = isinstance(getattr(partitioner, "name", None), str) and callable(getattr(partitioner, "fit", None))
    require(ok, "partitioner", "must have a name and a method fit", partitioner)
    taken = [AUTO, *(known.name for known in PARTITIONERS)]
    require(partitioner.name not in taken, "name", f"must not be one of {taken}", partitioner.name)
    _REGISTERED[partitioner.name] = partitioner


def registered_partitioners() -> tuple[Partitioner, ...]:
    """Return the partitioners that are not built in."""
    _load_entry_points()
    return tuple(_REGISTERED.values())


def partitioners() -> tuple[Partitioner, ...]:
    """Return every partitioner, the built-in ones first."""
    return PARTITIONERS + registered_partitioners()


def partitioner_names() -> list[str]:
    """Return the names of all partitioners, and `auto`."""
    return [AUTO, *(known.name for known in partitioners())]


def registered_routing_type(module: str, name: str) -> Any:
    """Return the class of a registered partitioner's routing, or None."""
    for partitioner in registered_partitioners():
        for type_ in getattr(partitioner, "routing_types", ()):
            if (type_.__module__, type_.__name__) == (module, name):
                return type_
    return None


@cache
def _load_entry_points() -> None:
    for entry in entry_points(group=ENTRY_POINTS):
        found = entry.load()
        register_partitioner(found() if isinstance(found, type) else found)
