"""Fitting a routing: a name stands for a partitioner that is fitted to a sample, `auto` for the best of them.

A routing that is fitted already stands for itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from nearcast.errors import require
from nearcast.model import Footprints
from nearcast.partition.balance.cells import has_cells
from nearcast.partition.base import Partitioner, Routing, Sample
from nearcast.partition.registry import AUTO, partitioner_names, partitioners
from nearcast.partition.text_hypergraph import TextHypergraphPartitioner

_OPTIONAL = TextHypergraphPartitioner


def check_partitioner(partitioner: str | Routing, *, n_shards: int, subject: str) -> None:
    """Raise `InvalidInput` for an unknown name, and for a routing with another number of shards."""
    if isinstance(partitioner, str):
        lacks = partitioner == _OPTIONAL.name and not _OPTIONAL.is_installed()
        hint = "It needs mtkahypar; try pip install 'nearcast[hypergraph]'" if lacks else ""
        names = partitioner_names()
        rule = f"must be one of {names}"
        require(partitioner in names, "partitioner", rule, partitioner, subject=subject, hint=hint)
        return
    routes = hasattr(partitioner, "route") and hasattr(partitioner, "place")
    require(routes, "partitioner", "must be a name or a routing", partitioner, subject=subject)
    found = partitioner.n_shards
    rule = f"must be a routing among {n_shards} shards"
    require(found == n_shards, "partitioner", rule, f"one among {found}", subject=subject)


def check_adjustable(partitioner: str | Routing, *, subject: str, is_refitted: bool = False) -> None:
    """Raise `InvalidInput` for a partitioner, a name or a routing, that cannot be adjusted to its load."""
    ok = isinstance(partitioner, str) or not is_refitted
    rule = "must be a name if a fresh routing is to be tried, or balance have refit_every = 0"
    require(ok, "partitioner", rule, type(partitioner).__name__, subject=subject)
    known = [one.name for one in partitioners() if has_cells(one.fit(Sample.none(), n_shards=1))]
    ok = partitioner in known if isinstance(partitioner, str) else has_cells(partitioner)
    name = partitioner if isinstance(partitioner, str) else type(partitioner).__name__
    rule = f"must be one of {known}, whose load can be adjusted, or balance be left out"
    require(ok, "partitioner", rule, name, subject=subject)


def serving(candidates: Sequence[Partitioner], footprints: Footprints, *, in_threads: bool) -> Sequence[Partitioner]:
    """Return the partitioners that can serve subscriptions; raise `InvalidInput` if none can.

    Processes need a further stage to merge the results of replicas. Without a measured cost estimates know nothing of
    it, so for stateful kinds only partitioners that send all messages to all are chosen.
    """
    if in_threads or not (footprints.ks > 0).any():
        return candidates
    can = [one for one in candidates if one.fit(Sample.none(), n_shards=1).sends_all]
    rule = "must send every message to all processes, for stateful kinds"
    require(len(can) > 0, "partitioner", rule, [one.name for one in candidates])
    return can


def fit(partitioner: str | Routing, sample: Sample, *, n_shards: int, in_threads: bool = True) -> Routing:
    """Return the routing of a partitioner; shards are threads of one engine, or processes."""
    if not isinstance(partitioner, str):
        return partitioner
    if partitioner == AUTO:
        from nearcast.partition.estimate import choose

        # Partitioning a hypergraph takes ten times as long as the next best text partitioner, for a few percent.
        quick = [known for known in partitioners() if known.name != _OPTIONAL.name]
        candidates = serving(quick, sample.footprints, in_threads=in_threads)
        return choose(sample, n_shards=n_shards, partitioners=candidates, in_threads=in_threads)
    (named,) = (known for known in partitioners() if known.name == partitioner)
    return named.fit(sample, n_shards=n_shards)
