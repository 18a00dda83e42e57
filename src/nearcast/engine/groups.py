"""Groups of updates: one row per message and change, with the list of its receivers.

    seq, at, message, change     what all updates of the group have in common
    subscriptions                the receivers
    scores                       one score per receiver, or one for all
    body                         the body of a message that enters, if the engine has bodies

Where a message has many receivers, groups take a quarter of the bytes. Adjacent updates that agree form one group;
expanded in the order of the lists, groups are the updates.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.model import ENTER, LEAVE, NO_TIME
from nearcast.model.columns import GROUPS, TIMESTAMP, groups_schema, updates_schema
from nearcast.window import Changes, Ticks

if TYPE_CHECKING:
    from nearcast.engine.message_bodies import MessageBodies
    from nearcast.engine.registry import SubscriptionRegistry

Rows = npt.NDArray[np.int64]


def write_groups(
    registry: SubscriptionRegistry, changes: Changes, ticks: Ticks, bodies: MessageBodies | None = None
) -> tuple[Rows, pa.Table]:
    """Return changes as groups, and the step of each group."""
    n = len(changes.steps)
    if not n:
        return np.zeros(0, np.int64), groups_schema(bodies=bodies is not None).empty_table()
    names = registry.names(changes.slots)
    if changes.rows is None:
        differs = _differs(changes.ids.strings)
        if bodies is not None:  # messages with the same id may have different bodies
            differs = differs | (changes.seqs[1:] != changes.seqs[:-1])
    else:
        differs = changes.rows[1:] != changes.rows[:-1]
    differs = differs | (changes.steps[1:] != changes.steps[:-1])
    if changes.enters.strides != (0,):
        differs = differs | (changes.enters[1:] != changes.enters[:-1])
    firsts = _firsts(differs, names)
    steps = changes.steps[firsts]
    times = ticks.nows_us[steps]
    at = firsts if changes.rows is None else changes.rows[firsts]
    messages = changes.ids.strings.take(pa.array(at))
    columns = [
        pa.array(ticks.seqs[steps]),
        pa.array(times, mask=times == NO_TIME).cast(TIMESTAMP),
        messages,
        pc.if_else(pa.array(changes.enters[firsts]), ENTER, LEAVE),
    ]
    entered = None if bodies is None else entering_bodies(bodies, changes.seqs[at], changes.enters[firsts])
    return steps, _with_lists(columns, firsts, names, changes.scores, entered)


def entering_bodies(
    bodies: MessageBodies, seqs: npt.NDArray[np.int64], enters: npt.NDArray[np.bool_]
) -> pa.ChunkedArray:
    """Return the bodies of messages that enter, and null for those that leave."""
    return bodies.of(seqs if enters.strides == (0,) or enters.all() else np.where(enters, seqs, 0))


def group(updates: pa.Table) -> pa.Table:
    """Return updates as groups.

    >>> rows = [(7, "ann", "m7", "enter", 1.0), (7, "bob", "m7", "enter", 1.0), (8, "bob", "m7", "leave", 1.0)]
    >>> columns = dict(zip(["seq", "subscription", "message", "change", "score"], zip(*rows), strict=True))
    >>> groups = group(pa.table(columns | {"at": pa.nulls(3, TIMESTAMP)}))
    >>> groups["subscriptions"].to_pylist(), groups["scores"].to_pylist()
    ([['ann', 'bob'], ['bob']], [[1.0], [1.0]])
    """
    if not len(updates):
        return groups_schema(bodies="body" in updates.column_names).empty_table()
    seqs = updates["seq"].to_numpy()
    differs = seqs[1:] != seqs[:-1]
    for name in ("message", "change"):
        differs = differs | _differs(updates[name])
    if "body" in updates.column_names:
        body = updates["body"]
        differs = differs | _differs(pc.is_valid(body)) | _differs(pc.fill_null(body, ""))
    firsts = _firsts(differs, updates["subscription"])
    columns = [updates[name].take(pa.array(firsts)) for name in GROUPS.names[:4]]
    bodies = updates["body"].take(pa.array(firsts)) if "body" in updates.column_names else None
    return _with_lists(columns, firsts, updates["subscription"], updates["score"].to_numpy(), bodies)


def ungroup(groups: pa.Table) -> pa.Table:
    """Return groups as updates, one per row."""
    lengths, n_scores = (pc.list_value_length(groups[name]).to_numpy() for name in ("subscriptions", "scores"))
    rows = np.repeat(np.arange(len(groups)), lengths)
    starts = np.cumsum(n_scores) - n_scores
    places = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    which = starts[rows] + np.where(n_scores[rows] == 1, 0, places)
    has_bodies = "body" in groups.column_names
    names = [*GROUPS.names[:4], "body"] if has_bodies else GROUPS.names[:4]
    shared = {name: groups[name].take(pa.array(rows)) for name in names}
    own = {
        "subscription": pc.list_flatten(groups["subscriptions"]),
        "score": pc.list_flatten(groups["scores"]).take(pa.array(which)),
    }
    schema = updates_schema(bodies=has_bodies)
    return pa.table({name: (shared | own)[name] for name in schema.names}, schema=schema)


def count_updates(groups: pa.Table) -> int:
    """Return the number of updates in groups."""
    return int(pc.sum(pc.list_value_length(groups["subscriptions"])).as_py() or 0)


def _differs(strings: pa.Array) -> npt.NDArray[np.bool_]:
    """Return for each string but the first whether it differs from the one before."""
    return np.asarray(pc.not_equal(strings.slice(1), strings.slice(0, len(strings) - 1)))


def _pieces(names: pa.ChunkedArray) -> list[tuple[int, int, pa.Array]]:
    """Return the chunks of a column with their first and last rows."""
    pieces = [piece for piece in names.chunks if len(piece)]
    return [(end - len(piece), end, piece) for end, piece in zip(accumulate(map(len, pieces)), pieces, strict=True)]


def _firsts(differs: npt.NDArray[np.bool_], names: pa.ChunkedArray) -> Rows:
    """Return the first row of each group; no group extends over two chunks of the names."""
    begins = np.concatenate([[True], differs])
    begins[[start for start, _, _ in _pieces(names)]] = True
    return np.flatnonzero(begins)


def _with_lists(
    columns: list[pa.Array],
    firsts: Rows,
    names: pa.ChunkedArray,
    scores: npt.NDArray[np.float64],
    bodies: pa.ChunkedArray | None,
) -> pa.Table:
    """Return a table of groups."""
    schema, last = groups_schema(bodies=bodies is not None), [] if bodies is None else [bodies]
    pieces = [
        pa.Table.from_arrays(
            [*(column.slice(a, b - a) for column in columns), *lists, *(column.slice(a, b - a) for column in last)],
            schema=schema,
        )
        for a, b, lists in _lists(firsts, names, scores)
    ]
    return pa.concat_tables(pieces)


def _lists(
    firsts: Rows, names: pa.ChunkedArray, scores: npt.NDArray[np.float64]
) -> Iterator[tuple[int, int, list[pa.Array]]]:
    """Yield ranges of groups with their receivers and scores; the strings of a list lie in one chunk."""
    for start, stop, piece in _pieces(names):
        a, b = np.searchsorted(firsts, (start, stop)).tolist()
        bounds = np.append(firsts[a:b], stop) - start
        receivers = pa.ListArray.from_arrays(pa.array(bounds.astype(np.int32)), piece)
        yield a, b, [receivers, _scores(bounds, scores[start:stop])]


def _scores(bounds: Rows, scores: npt.NDArray[np.float64]) -> pa.Array:
    """Return the scores of each group, or the one that all its updates share."""
    if scores.strides == (0,):
        return _list(np.arange(len(bounds)), scores[: len(bounds) - 1])
    starts, lengths = bounds[:-1], np.diff(bounds)
    is_one = np.maximum.reduceat(scores, starts) == np.minimum.reduceat(scores, starts)
    counts = np.where(is_one, 1, lengths)
    taken = np.repeat(~is_one, lengths)
    taken[starts] = True
    return _list(np.concatenate([[0], np.cumsum(counts)]), scores[taken])


def _list(bounds: Rows, values: npt.NDArray[np.float64]) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(bounds.astype(np.int32)), pa.array(np.ascontiguousarray(values)))
