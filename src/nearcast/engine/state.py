"""The state of an engine: its configuration and everything that a saved engine must restore."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.engine.config import EngineConfig
from nearcast.index import Work
from nearcast.model import NO_TIME, Subscription
from nearcast.window import Results


class SavedSubscriptions(NamedTuple):
    """Subscriptions of one kind with the step at which each was added and the results that must be saved."""

    kind: type[Subscription]
    stored: pa.Table
    sinces: npt.NDArray[np.int64]
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
    subscriptions: list[SavedSubscriptions] = field(default_factory=list)
    routing: bytes | None = None
    """The routing, once it is fitted."""
