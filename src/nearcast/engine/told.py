"""How do changes of many kinds and shards become one stream of updates? Merged by step, as objects or as a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.engine.roster import Roster
from nearcast.model import ENTER, LEAVE, NO_TIME, Update, to_seconds
from nearcast.model.columns import TIMESTAMP, UPDATES
from nearcast.window import Changes, Ticks

Part = tuple[Roster, Changes]
"""What the subscriptions of one kind in one shard have to tell, in the order of the steps."""


def as_updates(parts: Sequence[Part], ticks: Ticks) -> list[Update]:
    """Return updates as objects."""
    seqs, ats = ticks.seqs.tolist(), [to_seconds(at_us) for at_us in ticks.ats_us.tolist()]
    merged: list[tuple[int, Update]] = []
    for roster, changes in parts:
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
    parts = [part for part in parts if len(part[1].steps)]
    if not parts:
        return UPDATES.empty_table()
    steps = np.concatenate([changes.steps for _, changes in parts])
    ats_us = ticks.ats_us[steps]
    table = pa.Table.from_arrays(
        [
            pa.array(ticks.seqs[steps]),
            pa.array(ats_us, mask=ats_us == NO_TIME).cast(TIMESTAMP),
            pa.chunked_array([roster.names(changes.slots) for roster, changes in parts]),
            pa.chunked_array([_strings(changes) for _, changes in parts]),
            pc.if_else(pa.array(np.concatenate([changes.enters for _, changes in parts])), ENTER, LEAVE),
            pa.array(np.concatenate([changes.scores for _, changes in parts])),
        ],
        schema=UPDATES,
    )
    if len(parts) == 1:
        return table
    return table.take(pa.array(np.argsort(steps, kind="stable")))


def _strings(changes: Changes) -> pa.Array:
    ids = changes.ids
    if not all(isinstance(id_, str) for id_ in ids):
        ids = [str(id_) for id_ in ids]
    return pa.array(ids, pa.string()).take(pa.array(changes.rows))
