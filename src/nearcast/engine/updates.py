"""Updates: changes of many kinds, shards and threads, written in the order of steps.

Each thread writes its own part in the requested form. Threads that divide a batch cover consecutive steps, so their
tables are concatenated without a sort; rows are sorted only where several kinds or shards cover the same steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.engine.groups import count_updates, group, ungroup, write_groups
from nearcast.model import ENTER, LEAVE, NO_TIME, Id, Update, to_seconds
from nearcast.model.columns import GROUPS, TIMESTAMP, UPDATES
from nearcast.window import Changes, Results, Ticks

if TYPE_CHECKING:
    from nearcast.engine.registry import SubscriptionRegistry


class Form(Enum):
    """The form in which updates are returned."""

    OBJECTS = auto()
    TABLE = auto()
    GROUPS = auto()
    """A table with one row for all receivers of a message, see `groups`."""


class UpdateBatch(NamedTuple):
    """The updates of one kind in one shard for some steps, in the order of steps."""

    steps: npt.NDArray[np.int64]
    """The step of each row."""
    updates: list[Update] | pa.Table
    n_matched: int
    """Number of messages that changed a result on arrival."""


def write_updates(registry: SubscriptionRegistry, changes: Changes, ticks: Ticks, form: Form) -> UpdateBatch:
    """Return changes as updates."""
    if form is Form.GROUPS:
        return UpdateBatch(*write_groups(registry, changes, ticks), changes.n_matched)
    write = _table if form is Form.TABLE else _objects
    return UpdateBatch(changes.steps, write(registry, changes, ticks), changes.n_matched)


def write_initial_results(registry: SubscriptionRegistry, results: Results, *, seq: int, at_us: int) -> UpdateBatch:
    """Return the initial results of subscriptions as a table of updates."""
    n = len(results.slots)
    changes = Changes(
        np.zeros(n, np.int64),
        results.slots,
        np.broadcast_to(True, n),
        results.scores,
        results.ids,
        results.seqs,
        None,
        0,
    )
    at = np.array([at_us], np.int64)
    return write_updates(registry, changes, Ticks(np.array([seq], np.int64), at, at), Form.TABLE)


def joined(parts: Sequence[UpdateBatch], form: Form) -> Any:
    """Return all updates in order."""
    if form is Form.OBJECTS:
        return _joined_objects(parts)
    return _joined_tables(parts, GROUPS if form is Form.GROUPS else UPDATES)


def _joined_objects(parts: Sequence[UpdateBatch]) -> list[Update]:
    merged = [pair for part in parts for pair in zip(part.steps.tolist(), part.updates, strict=True)]
    merged.sort(key=lambda pair: pair[0])  # stable: within a step the order of parts stays
    return [update for _, update in merged]


def _joined_tables(parts: Sequence[UpdateBatch], schema: pa.Schema = UPDATES) -> pa.Table:
    """Return all updates in order."""
    parts = [part for part in parts if len(part.steps)]
    if not parts:
        return schema.empty_table()
    table = pa.concat_tables([part.updates for part in parts])  # copies nothing
    if all(a.steps[-1] < b.steps[0] for a, b in pairwise(parts)):
        return table
    order = np.argsort(np.concatenate([part.steps for part in parts]), kind="stable")
    return table.combine_chunks().take(pa.array(order))


def net(updates: Any, form: Form) -> Any:
    """Return the net effect of updates: an enter and a leave of the same message cancel out."""
    if form is Form.OBJECTS:
        return _net_objects(updates)
    return _net_table(updates) if form is Form.TABLE else group(_net_table(ungroup(updates)))


def count(updates: Any, form: Form) -> int:
    """Return the number of updates."""
    return count_updates(updates) if form is Form.GROUPS else len(updates)


def _net_objects(updates: Sequence[Update]) -> list[Update]:
    pairs: dict[tuple[Id, Id], list[int]] = {}
    for row, update in enumerate(updates):
        pairs.setdefault((update.subscription, update.message), []).append(row)
    return [updates[row] for row in sorted(rows[-1] for rows in pairs.values() if len(rows) % 2)]


def _net_table(updates: pa.Table) -> pa.Table:
    numbered = updates.select(["subscription", "message"]).append_column("row", pa.array(np.arange(len(updates))))
    pairs = numbered.group_by(["subscription", "message"]).aggregate([("row", "max"), ("row", "count")])
    is_odd = pairs["row_count"].to_numpy() % 2 == 1
    return updates.take(pa.array(np.sort(pairs["row_max"].to_numpy()[is_odd])))


def _objects(registry: SubscriptionRegistry, changes: Changes, ticks: Ticks) -> list[Update]:
    if not len(changes.steps):
        return []
    rows = np.arange(len(changes.steps)) if changes.rows is None else changes.rows
    columns = (ticks.seqs[changes.steps], ticks.ats_us[changes.steps], changes.enters, changes.scores, rows)
    messages = changes.ids.objects
    return [
        Update(seq, id_, messages[row], ENTER if enter else LEAVE, score, to_seconds(at_us))
        for id_, seq, at_us, enter, score, row in zip(
            registry.ids(changes.slots), *(column.tolist() for column in columns), strict=True
        )
    ]


def _table(registry: SubscriptionRegistry, changes: Changes, ticks: Ticks) -> pa.Table:
    from nearcast.engine.id_strings import repeated

    if not len(changes.steps):
        return UPDATES.empty_table()
    columns = [
        pa.array(ticks.seqs[changes.steps]),
        _times(ticks.ats_us, changes.steps),
        registry.names(changes.slots),
        changes.ids.strings if changes.rows is None else repeated(changes.ids.strings, changes.rows),
        _directions(changes.enters),
        _scores(changes.scores),
    ]
    return pa.Table.from_arrays(columns, schema=UPDATES)


def _times(ats_us: npt.NDArray[np.int64], steps: npt.NDArray[np.int64]) -> pa.Array:
    """Return the times of steps, null where there is none."""
    missing = ats_us == NO_TIME
    if missing.all():
        return _constant(None, len(steps))
    times = ats_us[steps]
    return pa.array(times, mask=times == NO_TIME if missing.any() else None).cast(TIMESTAMP)


def _directions(enters: npt.NDArray[np.bool_]) -> pa.Array:
    """Return enter or leave for each change."""
    if enters.strides == (0,) or enters.all():
        return _constant(ENTER, len(enters))
    return pc.if_else(pa.array(enters), ENTER, LEAVE)


def _scores(scores: npt.NDArray[np.float64]) -> pa.Array:
    """Return the scores; one score repeated is stored once."""
    return _constant(float(scores[0]), len(scores)) if scores.strides == (0,) else pa.array(scores)


_CONSTANTS: dict[Any, pa.Array] = {}
_MOST_CONSTANT = 1 << 22


def _constant(value: Any, n: int) -> pa.Array:
    """Return a column of one value; columns up to some length share their memory."""
    type_ = TIMESTAMP if value is None else pa.scalar(value).type
    if n > _MOST_CONSTANT:
        return pa.repeat(pa.scalar(value, type_), n)
    cached = _CONSTANTS.get(value)
    if cached is None or len(cached) < n:
        cached = _CONSTANTS[value] = pa.repeat(pa.scalar(value, type_), 1 << max(n - 1, 1).bit_length())
    return cached.slice(0, n)
