"""What is an engine made of? Its configuration, and everything that a saved one must bring back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.errors import require
from nearcast.index import Work, index_names
from nearcast.model import NO_TIME, Limits, Subscription
from nearcast.partition import MOST_SHARDS, Routing
from nearcast.partition.fitting import check_partitioner
from nearcast.social import SocialGraph
from nearcast.space import Space
from nearcast.text import TEXT_SIMILARITIES, Vocabulary
from nearcast.window import CountWindow, Results, TimeWindow, WindowPolicy


@dataclass(frozen=True)
class EngineConfig:
    """How an engine was set up."""

    space: Space
    window: WindowPolicy | None
    text_similarity: str
    workers: int
    partitioner: str | Routing
    index: str
    limits: Limits

    def __post_init__(self) -> None:
        require(isinstance(self.space, Space), "space", "must be a Space", self.space, subject="engine")
        known = self.window is None or isinstance(self.window, (CountWindow, TimeWindow))
        require(known, "window", "must be a CountWindow, a TimeWindow or None", self.window, subject="engine")
        require(isinstance(self.limits, Limits), "limits", "must be Limits", self.limits, subject="engine")
        ok = isinstance(self.workers, int) and not isinstance(self.workers, bool) and self.workers >= 1
        require(ok, "workers", "must be an integer of 1 or more", self.workers, subject="engine")
        fits = self.workers <= MOST_SHARDS
        require(fits, "workers", f"must be {MOST_SHARDS} at most", self.workers, subject="engine")
        check_partitioner(self.partitioner, n_shards=self.workers, subject="engine")
        for name, known_names in (
            ("text_similarity", [*TEXT_SIMILARITIES]),
            ("index", index_names()),
        ):
            value = getattr(self, name)
            require(value in known_names, name, f"must be one of {known_names}", value, subject="engine")


class SavedSubscriptions(NamedTuple):
    """Subscriptions of one kind, since when they are there, and the results that were kept."""

    kind: type[Subscription]
    stored: pa.Table
    sinces: npt.NDArray[np.int64]
    kept: list[Results]
    """Rows in place of slots."""


@dataclass(frozen=True)
class EngineState:
    """Everything: an engine made from this goes on as if nothing had happened."""

    config: EngineConfig
    vocabulary: Vocabulary
    social: SocialGraph
    seq: int = 0
    now_us: int = NO_TIME
    late: int = 0
    updates: int = 0
    edge_changes: int = 0
    """How often edges of the social graph came or went since it was given."""
    work: dict[str, Work] = field(default_factory=dict)
    live: pa.Table | None = None
    """The messages of the window, if there is one."""
    subscription_batches: list[SavedSubscriptions] = field(default_factory=list)
    routing: bytes | None = None
    """How the work is shared, once that is decided."""
