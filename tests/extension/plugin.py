"""A sixth kind and a partitioner, as a package outside Nearcast would define them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

import nearcast as nc
from nearcast.model import BEST_IN_WINDOW, Explanation, ResultPolicy, ScorePart
from nearcast.model.fields import CountField, NumberField
from nearcast.model.subscription import KeywordSubscription
from nearcast.partition import mask_of, shards_by_key
from nearcast.partition.base import ToAll


@dataclass(frozen=True)
class LatestSubscription(KeywordSubscription):
    """The k newest messages of the window within a radius that share a term."""

    kind: ClassVar[str] = "latest"
    result_policy: ClassVar[ResultPolicy] = BEST_IN_WINDOW
    label: ClassVar[str] = "Latest nearby"
    help: ClassVar[str] = "The newest messages within a radius that share a word."

    k: Annotated[
        int, CountField(label="Number of results", help="The result holds this many messages.", ends=("1", "20"))
    ]
    radius: Annotated[
        float,
        NumberField(
            minimum=0.0,
            maximum=10_000.0,
            step=100.0,
            start=2_000.0,
            label="Radius",
            help="The greatest distance of a message.",
            ends=("near", "far"),
        ),
    ]

    def bind(self, scoring):
        """Return the seq of a message as its score, None beyond the radius or without a shared term."""
        location, radius, distance = self.location, self.radius, scoring.space.distance
        numbers = frozenset(self.terms(scoring))

        def score(document):
            if numbers.isdisjoint(document.units) or distance(location, document.location) > radius:
                return None
            return float(document.seq)

        return score

    def explain(self, document, scoring):
        """Return the distance and the shared terms."""
        distance, shared = scoring.space.distance(self.location, document.location), self.shared(document, scoring)
        inside = distance <= self.radius
        parts = (
            ScorePart("near", float(inside), passes=inside, distance=distance),
            ScorePart("text", float(len(shared)), passes=bool(shared), shared_terms=shared),
            ScorePart("newest", float(document.seq), 1.0),
        )
        failed = [part.name for part in parts if not part.passes]
        reason = f"no match, {' and '.join(failed)} failed" if failed else ""
        return Explanation(self.kind, self.id, document.id, parts, self.bind(scoring)(document), reason=reason)


@dataclass(frozen=True)
class ReversedRouting(ToAll):
    """Subscriptions by key, in the reverse order of shards; messages to all."""

    n_shards: int

    @property
    def loads(self):
        return np.ones(self.n_shards)

    def place(self, footprints):
        return mask_of(self.n_shards - 1 - shards_by_key(footprints.keys, self.n_shards), self.n_shards)


class ReversedPartitioner:
    """Places subscriptions by key, in the reverse order of shards."""

    name = "reversed"
    routing_types = (ReversedRouting,)

    def fit(self, sample, *, n_shards):
        return ReversedRouting(n_shards)


def register() -> None:
    """Register both; an installed package would use entry points instead."""
    nc.register_kind(LatestSubscription)
    nc.register_partitioner(ReversedPartitioner())
