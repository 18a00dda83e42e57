"""The state of an engine: its configuration and everything that a saved engine must restore."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.engine.config import EngineConfig
from nearcast.index import Work
from nearcast.model import NO_TIME, Subscription
from nearcast.partition import Masks
from nearcast.window import Results

EXPIRIES = pa.schema({"seq": pa.int64(), "expires_us": pa.int64()})
"""When messages expire by a time of their own."""


class SavedSubscriptions(NamedTuple):
    """Subscriptions of one kind with the step at which each was added and the results that must be saved."""

    kind: type[Subscription]
    stored: pa.Table
    sinces: npt.NDArray[np.int64]
    before: Masks | None
    """The earlier engines that hold each subscription too; None if none does, or the engine is not one of many."""
    results: list[Results]
    """Row numbers take the place of slots."""


@dataclass(frozen=True)
class EngineState:
    """Everything: an engine made from this continues as if it had never stopped."""

    config: EngineConfig
    """The configuration, with the social graph as it is now."""
    seq: int = 0
    now_us: int = NO_TIME
    late: int = 0
    updates: int = 0
    edge_changes: int = 0
    """Number of changes to the social graph since it was given."""
    work: dict[str, Work] = field(default_factory=dict)
    live: pa.Table | None = None
    """The messages of the window, if there is one."""
    bodies: pa.Table | None = None
    """The bodies of messages by seq, if the engine has bodies."""
    expiries: pa.Table | None = None
    """The messages that will expire by a time of their own and that the window does not end, see `EXPIRIES`."""
    subscriptions: list[SavedSubscriptions] = field(default_factory=list)
    routing: bytes | None = None
    """The routing, once it is fitted."""

    @property
    def counters(self) -> dict[str, int]:
        """The numbers that an engine continues from."""
        names = ("seq", "now_us", "late", "updates", "edge_changes")
        return {name: getattr(self, name) for name in names}

    def rescaled(self, workers: int) -> EngineState:
        """Return the state with another number of workers, whose routing is fitted again."""
        if workers == self.config.workers:
            return self
        return replace(self, config=replace(self.config, workers=workers), routing=None)
