"""Terms divided so that few messages are split; a message goes to the shards of its terms (PS2Stream, section VI-B).

The terms of a sample are the nodes of a hypergraph, weighted by what a shard with one term alone would do, and each
message is an edge around its terms. Hypergraph partitioners divide nodes into blocks of about equal weight such that
edges reach into few blocks; this one is Mt-KaHyPar, with one thread and a fixed seed, so that results can be
repeated. It is an optional dependency: `pip install 'nearcast[hypergraph]'`.

Cost: fitting took 20 s for 100,000 messages of nine terms, ten times as long as `text_metric`, for loads that were 1
to 3 % less; placing and routing look up each term.
"""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import numpy.typing as npt

from nearcast.errors import StateError
from nearcast.partition.base import Sample
from nearcast.partition.masks import check_shards
from nearcast.partition.term_assignment import TermRouting
from nearcast.partition.text_postings import TermPostings

UNEVEN = 0.03
"""How much a block may exceed the average weight."""


class TextHypergraphPartitioner:
    """Divides the hypergraph of terms."""

    name = "text_hypergraph"

    @staticmethod
    def is_installed() -> bool:
        """Return whether Mt-KaHyPar is installed."""
        return find_spec("mtkahypar") is not None

    def fit(self, sample: Sample, *, n_shards: int) -> TermRouting:
        """Divide the terms of the sample."""
        check_shards(n_shards)
        postings = TermPostings.of(sample)
        n_terms = len(postings.terms)
        shards = np.arange(n_terms, dtype=np.int32) if n_terms <= n_shards else _blocks(postings, sample, n_shards)
        return postings.routing(shards, sample, n_shards)


def _blocks(postings: TermPostings, sample: Sample, n_shards: int) -> npt.NDArray[np.int32]:
    try:
        import mtkahypar
    except ImportError:
        rule = "mtkahypar must be installed for this; it is not. Try pip install 'nearcast[hypergraph]'"
        raise StateError(rule) from None
    if n_shards == 1:
        return np.zeros(len(postings.terms), np.int32)
    nodes = np.searchsorted(postings.terms, sample.messages.term_ids)
    edges = [edge.tolist() for edge in np.split(nodes, sample.messages.term_indptr[1:-1]) if len(edge) > 1]
    weights = np.maximum(1, np.rint(postings.costs())).astype(np.int64).tolist()
    library = mtkahypar.initialize(1, False)
    mtkahypar.set_seed(0)
    context = library.context_from_preset(mtkahypar.PresetType.DEFAULT)
    context.set_partitioning_parameters(n_shards, UNEVEN, mtkahypar.Objective.KM1)
    context.logging = False
    graph = library.create_hypergraph(context, len(weights), len(edges), edges, weights, [1] * len(edges))
    return np.array(graph.partition(context).get_partition(), np.int32)
