"""Terms divided as in `keyword`; a subscription lives only with terms that it may still need (DSkype, section 7.3.4).

Once a subscription has k results, a message must hold one of its heavier terms to beat the last of them, however near
it is (definition 12, the loose prefix). The engine, which knows the results, passes footprints without the other
branches, and passes longer ones when a threshold falls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from nearcast.partition.base import Sample
from nearcast.partition.keyword import fit_runs
from nearcast.partition.run_routing import RunRouting


@dataclass(frozen=True)
class PrefixRouting(RunRouting):
    """Subscriptions by the terms that they may still need, messages by all terms.

    Once runs are cut or moved it is a `RunRouting`, which places by all terms.
    """

    narrows = True


class PrefixPartitioner:
    """Cuts the terms into runs of equal cost."""

    name = "prefix"

    def fit(self, sample: Sample, *, n_shards: int) -> PrefixRouting:
        """Cut the terms of subscriptions and messages of the sample."""
        return cast(PrefixRouting, fit_runs(sample, PrefixRouting, n_shards=n_shards))
