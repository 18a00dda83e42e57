"""Which routing does a name stand for? What the partitioner of that name makes of a sample; `auto` is who suits it.

A routing that was fitted before, or elsewhere, stands for itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from nearcast.errors import require
from nearcast.model import Footprints
from nearcast.partition import PARTITIONERS
from nearcast.partition.base import Partitioner, Routing, Sample
from nearcast.partition.text_hypergraph import TextHypergraphPartitioner

AUTO = "auto"
NAMES = [AUTO, *(known.name for known in PARTITIONERS)]
"""What a partitioner may be called."""
_OPTIONAL = TextHypergraphPartitioner


def check_partitioner(partitioner: str | Routing, *, n_shards: int, subject: str) -> None:
    """Raise `InvalidInput` for a name that nobody has, and for a routing among another number of shards."""
    if isinstance(partitioner, str):
        lacks = partitioner == _OPTIONAL.name and not _OPTIONAL.is_installed()
        hint = "It needs mtkahypar; try pip install 'nearcast[hypergraph]'" if lacks else ""
        rule = f"must be one of {NAMES}"
        require(partitioner in NAMES, "partitioner", rule, partitioner, subject=subject, hint=hint)
        return
    routes = hasattr(partitioner, "route") and hasattr(partitioner, "place")
    require(routes, "partitioner", "must be a name or a routing", partitioner, subject=subject)
    found = partitioner.n_shards
    rule = f"must be a routing among {n_shards} shards"
    require(found == n_shards, "partitioner", rule, f"one among {found}", subject=subject)


def serving(
    partitioners: Sequence[Partitioner], footprints: Footprints, *, in_threads: bool
) -> Sequence[Partitioner]:
    """Return the partitioners that can serve subscriptions; raise `InvalidInput` if none can.

    Processes cannot merge what replicas keep: for kinds that keep results they take those only that send all.
    """
    if in_threads or not (footprints.ks > 0).any():
        return partitioners
    can = [one for one in partitioners if one.fit(Sample.none(), n_shards=1).sends_all]
    rule = "must send every message to all processes, for kinds that keep results"
    require(len(can) > 0, "partitioner", rule, [one.name for one in partitioners])
    return can


def fit(partitioner: str | Routing, sample: Sample, *, n_shards: int, in_threads: bool = True) -> Routing:
    """Return the routing of a partitioner; shards are threads of an engine, or processes."""
    if not isinstance(partitioner, str):
        return partitioner
    if partitioner == AUTO:
        from nearcast.partition.estimate import choose

        # Parting a hypergraph takes ten times as long as the next best by words, for a few percent.
        quick = [known for known in PARTITIONERS if known.name != _OPTIONAL.name]
        candidates = serving(quick, sample.footprints, in_threads=in_threads)
        return choose(sample, n_shards=n_shards, partitioners=candidates, in_threads=in_threads)
    (named,) = (known for known in PARTITIONERS if known.name == partitioner)
    return named.fit(sample, n_shards=n_shards)
