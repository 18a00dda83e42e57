"""How do changes of many kinds and shards become one stream of updates? Merged by step, as objects or as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.engine.names import MOST, Records, strings
from nearcast.engine.roster import Roster
from nearcast.model import ENTER, LEAVE, NO_TIME, Id, Update, to_seconds
from nearcast.model.columns import TIMESTAMP, UPDATES
from nearcast.window import Changes, Ticks


class Part(NamedTuple):
    """What the subscriptions of one kind in one shard have to tell, in the order of the steps."""

    roster: Roster
    changes: Changes
    records: Records | None = None
    """Who each change is for, see `names`; for a table of many."""


Merge = Callable[[Sequence[npt.NDArray[Any]]], npt.NDArray[Any]]
"""Join a column of several parts, in the order of the steps."""


def as_updates(parts: Sequence[Part], ticks: Ticks) -> list[Update]:
    """Return updates as objects."""
    seqs, ats = ticks.seqs.tolist(), [to_seconds(at_us) for at_us in ticks.ats_us.tolist()]
    merged: list[tuple[int, Update]] = []
    for roster, changes, _ in parts:
        if not len(changes.steps):
            continue
        columns = (changes.steps, changes.enters, changes.scores, changes.rows)
        ids = roster.ids(changes.slots)
        for id_, step, enter, score, row in zip(ids, *(column.tolist() for column in columns), strict=True):
            change = ENTER if enter else LEAVE
            merged.append((step, Update(seqs[step], id_, changes.ids[row], change, score, ats[step])))
    merged.sort(key=lambda told: told[0])  # stable: parts are in order, and stay so within a step
    return [update for _, update in merged]


def as_table(parts: Sequence[Part], ticks: Ticks) -> pa.Table:
    """Return updates as a table; ids become strings."""
    parts = [part for part in parts if len(part.changes.steps)]
    if not parts:
        return UPDATES.empty_table()
    changes = [part.changes for part in parts]
    steps = np.concatenate([c.steps for c in changes])
    order = None
    if len(parts) > 1:
        order = np.argsort(steps, kind="stable")
        steps = steps[order]

    def merged(columns: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        column = np.concatenate(columns)
        return column if order is None else column[order]

    columns = [
        pa.array(ticks.seqs[steps]),
        _times(ticks.ats_us[steps], may_lack=bool((ticks.ats_us == NO_TIME).any())),
        _subscriptions(parts, order),
        _messages(changes, merged),
        _directions(changes, merged),
        pa.array(merged([c.scores for c in changes])),
    ]
    return pa.Table.from_arrays(columns, schema=UPDATES)


def _times(ats_us: npt.NDArray[np.int64], *, may_lack: bool) -> pa.Array:
    """Return the times of steps; some may have none."""
    return pa.array(ats_us, mask=ats_us == NO_TIME if may_lack else None).cast(TIMESTAMP)


def _directions(changes: Sequence[Changes], merged: Merge) -> pa.Array:
    """Return which way each change goes."""
    if all(c.enters.all() for c in changes):
        return pa.repeat(ENTER, sum(len(c.enters) for c in changes))
    return pc.if_else(pa.array(merged([c.enters for c in changes])), ENTER, LEAVE)


def _subscriptions(parts: Sequence[Part], order: npt.NDArray[np.int64] | None) -> pa.Array:
    """Return the ids of the subscriptions."""
    records = [part.records for part in parts if part.records is not None]
    if len(records) == len(parts) and sum(map(len, records)) <= MOST:
        named = strings(np.concatenate(records), order)
        if named is not None:
            return named
    joined = pa.concat_arrays([part.roster.names(part.changes.slots) for part in parts])
    return joined if order is None else joined.take(pa.array(order))


def _messages(
    changes: Sequence[Changes], merged: Callable[[Sequence[npt.NDArray[Any]]], npt.NDArray[Any]]
) -> pa.Array:
    """Return the ids of the messages; kinds that pass on what came share the ids of the batch."""
    ids: list[Id] = []
    starts: dict[int, int] = {}
    rows = []
    for c in changes:
        if id(c.ids) not in starts:
            starts[id(c.ids)] = len(ids)
            ids += c.ids
        rows.append(c.rows + starts[id(c.ids)])
    try:
        names = pa.array(ids, pa.string())
    except pa.ArrowTypeError:  # some of them are integers
        names = pa.array([str(id_) for id_ in ids], pa.string())
    return names.take(pa.array(merged(rows)))
