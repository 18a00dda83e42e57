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

from nearcast.engine.groups import count_updates, entering_bodies, group, ungroup, write_groups
from nearcast.engine.step_changes import StepChange, to_updates
from nearcast.model import ENTER, LEAVE, NO_TIME, Id, Update, to_seconds
from nearcast.model.columns import TIMESTAMP, groups_schema, updates_schema, updates_to_table
from nearcast.window import Changes, Results, ScoredMessage, Ticks

if TYPE_CHECKING:
    from nearcast.engine.message_bodies import MessageBodies
    from nearcast.engine.registry import SubscriptionRegistry


class Form(Enum):
    """The form in which updates are returned."""

    OBJECTS = auto()
    TABLE = auto()
    GROUPS = auto()
    """A table with one row for all receivers of a message, see `groups`."""
    CHANGES = auto()
    """Objects that tell messages with the same id apart, for the parts of a step; see `step_changes`."""


class UpdateBatch(NamedTuple):
    """The updates of one kind in one shard for some steps, in the order of steps."""

    steps: npt.NDArray[np.int64]
    """The step of each row."""
    updates: list[Update] | list[StepChange] | pa.Table
    n_matched: int
    """Number of messages that changed a result on arrival."""


class UpdateWriter(NamedTuple):
    """Writes the changes of one call as updates."""

    ticks: Ticks
    form: Form
    bodies: MessageBodies | None = None
    """The bodies of messages, if updates carry them."""

    def write(self, registry: SubscriptionRegistry, changes: Changes) -> UpdateBatch:
        """Return changes as updates."""
        if self.form is Form.GROUPS:
            return UpdateBatch(*write_groups(registry, changes, self.ticks, self.bodies), changes.n_matched)
        if self.form is Form.CHANGES:
            return UpdateBatch(changes.steps, _step_changes(registry, changes), changes.n_matched)
        write = _table if self.form is Form.TABLE else _objects
        return UpdateBatch(changes.steps, write(registry, changes, self.ticks, self.bodies), changes.n_matched)

    def write_step(self, step: int, changes: Sequence[StepChange]) -> UpdateBatch:
        """Return the changes of one step as updates."""
        seq, at = int(self.ticks.seqs[step]), to_seconds(int(self.ticks.nows_us[step]))
        updates: Any = to_updates(changes, seq=seq, at=at, bodies=self.bodies)
        if self.form is not Form.OBJECTS:
            updates = updates_to_table(updates, bodies=self.bodies is not None)
        if self.form is Form.GROUPS:
            updates = group(updates)
        return UpdateBatch(np.full(len(updates), step, np.int64), updates, 0)

    def write_initial_results(self, registry: SubscriptionRegistry, results: Results) -> UpdateBatch:
        """Return the initial results of subscriptions as updates of the first step."""
        return self.write(registry, _entering(results))


def _entering(results: Results) -> Changes:
    """Return results as changes: all messages enter."""
    n = len(results.slots)
    return Changes(
        np.zeros(n, np.int64),
        results.slots,
        np.broadcast_to(True, n),
        results.scores,
        results.ids,
        results.seqs,
        None,
        0,
    )


def joined(parts: Sequence[UpdateBatch], form: Form, *, bodies: bool) -> Any:
    """Return all updates in order, in tables with a column of bodies if that is wanted."""
    if form in (Form.OBJECTS, Form.CHANGES):
        return _joined_objects(parts)
    return _joined_tables(parts, (groups_schema if form is Form.GROUPS else updates_schema)(bodies=bodies))


def _joined_objects(parts: Sequence[UpdateBatch]) -> list[Any]:
    merged = [pair for part in parts for pair in zip(part.steps.tolist(), part.updates, strict=True)]
    merged.sort(key=lambda pair: pair[0])  # stable: within a step the order of parts stays
    return [update for _, update in merged]


def _joined_tables(parts: Sequence[UpdateBatch], schema: pa.Schema) -> pa.Table:
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


def _step_changes(registry: SubscriptionRegistry, changes: Changes) -> list[StepChange]:
    if not len(changes.steps):
        return []
    rows = np.arange(len(changes.steps)) if changes.rows is None else changes.rows
    messages, columns = changes.ids.objects, (changes.seqs[rows], changes.enters, changes.scores, rows)
    return [
        StepChange(id_, ScoredMessage(seq, messages[row], score), ENTER if enter else LEAVE)
        for id_, seq, enter, score, row in zip(
            registry.ids(changes.slots), *(column.tolist() for column in columns), strict=True
        )
    ]


def _objects(
    registry: SubscriptionRegistry, changes: Changes, ticks: Ticks, bodies: MessageBodies | None
) -> list[Update]:
    if not len(changes.steps):
        return []
    rows = np.arange(len(changes.steps)) if changes.rows is None else changes.rows
    seqs, nows_us = ticks.seqs[changes.steps], ticks.nows_us[changes.steps]
    columns = (seqs, nows_us, changes.enters, changes.scores, rows, changes.seqs[rows])
    messages, none = changes.ids.objects, [None] * len(rows)
    carried = none if bodies is None else entering_bodies(bodies, changes.seqs[rows], changes.enters).to_pylist()
    return [
        Update(seq, id_, messages[row], ENTER if enter else LEAVE, score, to_seconds(now_us), body, message_seq)
        for id_, body, seq, now_us, enter, score, row, message_seq in zip(
            registry.ids(changes.slots), carried, *(column.tolist() for column in columns), strict=True
        )
    ]


def _table(registry: SubscriptionRegistry, changes: Changes, ticks: Ticks, bodies: MessageBodies | None) -> pa.Table:
    from nearcast.engine.id_strings import repeated

    schema = updates_schema(bodies=bodies is not None)
    if not len(changes.steps):
        return schema.empty_table()
    columns = [
        pa.array(ticks.seqs[changes.steps]),
        _times(ticks.nows_us, changes.steps),
        registry.names(changes.slots),
        changes.ids.strings if changes.rows is None else repeated(changes.ids.strings, changes.rows),
        _directions(changes.enters),
        _scores(changes.scores),
    ]
    if bodies is not None:
        seqs = changes.seqs if changes.rows is None else changes.seqs[changes.rows]
        columns.append(entering_bodies(bodies, seqs, changes.enters))
    return pa.Table.from_arrays(columns, schema=schema)


def _times(nows_us: npt.NDArray[np.int64], steps: npt.NDArray[np.int64]) -> pa.Array:
    """Return the times of steps, null where there is none."""
    missing = nows_us == NO_TIME
    if missing.all():
        return _constant(None, len(steps))
    times = nows_us[steps]
    return pa.array(times, mask=times == NO_TIME if missing.any() else None).cast(TIMESTAMP)


def _directions(enters: npt.NDArray[np.bool_]) -> pa.Array:
    """Return enter or leave for each change."""
    if enters.strides == (0,) or enters.all():
        return _constant(ENTER, len(enters))
    words = _DIRECTIONS[enters.view(np.uint8)]
    offsets = np.arange(0, words.nbytes + 1, words.itemsize, dtype=np.int32)
    return pa.StringArray.from_buffers(len(words), pa.py_buffer(offsets), pa.py_buffer(words))


_DIRECTIONS = np.array([LEAVE.encode(), ENTER.encode()])  # of the same length


def _scores(scores: npt.NDArray[np.float64]) -> pa.Array:
    """Return the scores; one score repeated is stored once."""
    return _constant(float(scores[0]), len(scores)) if scores.strides == (0,) else pa.array(scores)


_CONSTANTS: dict[Any, pa.Array] = {}
_MAX_CONSTANT = 1 << 22


def _constant(value: Any, n: int) -> pa.Array:
    """Return a column of one value; columns up to some length share their memory."""
    type_ = TIMESTAMP if value is None else pa.scalar(value).type
    if n > _MAX_CONSTANT:
        return pa.repeat(pa.scalar(value, type_), n)
    cached = _CONSTANTS.get(value)
    if cached is None or len(cached) < n:
        cached = _CONSTANTS[value] = pa.repeat(pa.scalar(value, type_), 1 << max(n - 1, 1).bit_length())
    return cached.slice(0, n)
