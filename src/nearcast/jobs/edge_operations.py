"""Changes of edges of a micro-batch, which every shard applies, and the users that they make known.

At equal times they come before operations on subscriptions. So a user is known to a subscription if an edge of the
batch adds it at the same time or before; otherwise the subscription is rejected here, where the order is known.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.engine.replica_log import EDGE_STEP, places_of
from nearcast.engine.shard_engine import ShardEngine
from nearcast.errors import InvalidInput
from nearcast.jobs.edge_rows import ADD
from nearcast.jobs.frame import Frame
from nearcast.jobs.operation_rejections import are_added, rejections_of
from nearcast.jobs.order import SourceRows, in_order, positions_of
from nearcast.jobs.rejections import Rejection
from nearcast.model import Id, kinds

Rows = npt.NDArray[np.int64]


class EdgeOperations:
    """The changes of edges of a micro-batch, applied from the first to the last."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        """Put the changes, in at least one frame, into their order."""
        self._rows = rows = in_order(frames)
        self._edges: list[tuple[Id, Id]] = list(
            zip(rows.table["user"].to_pylist(), rows.table["place"].to_pylist(), strict=True)
        )
        self._are_added: list[bool] = np.asarray(pc.equal(rows.table["op"], ADD)).tolist()
        self._ats_us = rows.ats_us[rows.places]
        self._positions: Rows = np.zeros(len(self._edges), np.int64)
        self._n_applied = 0
        self.n_unknown = 0
        """Removals of edges that are not there, so far."""

    def place(self, message_ats_us: Rows) -> None:
        """Find the place of each change among messages of the given times."""
        self._positions = positions_of(self._rows, message_ats_us)

    @property
    def users_since(self) -> dict[Id, int]:
        """The users that these changes make known, and the time of the first edge of each."""
        since: dict[Id, int] = {}
        for (user, _), is_added, at_us in zip(self._edges, self._are_added, self._ats_us.tolist(), strict=True):
            if is_added:
                since.setdefault(user, at_us)
        return since

    def first(self, position: int) -> int | None:
        """Return the time of the next change before the message at a position; None if there is none."""
        row = self._n_applied
        return int(self._ats_us[row]) if row < len(self._edges) and self._positions[row] <= position else None

    def first_position(self, stop: int) -> int:
        """Return the position of the next change, `stop` at most."""
        following = self._positions[self._n_applied :]
        return min(stop, int(following[0])) if len(following) else stop

    def apply(self, engine: ShardEngine, position: int, until_us: int | None) -> pa.Table:
        """Apply the changes before the message at a position and up to a time, if there is one; return updates."""
        start = self._n_applied
        stop = int(np.searchsorted(self._positions, position, side="right"))
        if until_us is not None:
            stop = min(stop, int(np.searchsorted(self._ats_us, until_us, side="right")))
        self._n_applied = stop
        places = places_of(self._positions[start:stop], self._ats_us[start:stop], EDGE_STEP, np.arange(start, stop))
        updates, n_unknown = engine.change_edges(self._edges[start:stop], self._are_added[start:stop], places)
        self.n_unknown += n_unknown
        return updates


def reject_unknown(
    rows: SourceRows, edges: EdgeOperations | None, users: Collection[Id], *, shard: int
) -> tuple[SourceRows, list[Rejection]]:
    """Return operations without subscriptions of users that are unknown at their place, and those as rejections."""
    since = {} if edges is None else edges.users_since
    names = pa.array([kind.kind for kind in kinds() if kind.depends_on_users()], pa.string())
    chosen = np.flatnonzero(np.asarray(pc.is_in(rows.table["kind"], value_set=names)) & are_added(rows.table))
    ats_us = rows.ats_us[rows.places[chosen]].tolist()
    bad = [
        row
        for row, user, at_us in zip(
            chosen.tolist(), rows.table["user"].take(pa.array(chosen)).to_pylist(), ats_us, strict=True
        )
        if user not in users and (user not in since or since[user] > at_us)
    ]
    if not bad:
        return rows, []
    rejected = rows.table.take(pa.array(bad, pa.int64()))
    is_good = np.ones(len(rows.table), np.bool_)
    is_good[bad] = False
    return rows.chosen(is_good), rejections_of(rejected, _unknown_user, shard=shard)


def _unknown_user(row: dict[str, Any]) -> InvalidInput:
    subject = f"subscription {row['id']!r}"
    return InvalidInput("user", "must be known to the social graph", row["user"], subject=subject)
