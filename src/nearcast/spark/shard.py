"""What does a shard do with the frames of one micro-batch? Subscriptions first, then messages, each in its order.

    subscription frames ── by time, else arrival ── runs of one op ── engine.subscribe / unsubscribe ─┐
    message frames ─────── by time, else arrival ── chunks ────────── engine.publish ─────────────────┴─ updates

Rows without a time come first, as they arrived; then the others by time, and as they arrived where times are equal.
All shards see the times of all messages, so all put the stream into the same order and number it alike. Changes of
one subscription count one by one: that does not depend on which others share the shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.engine import Engine
from nearcast.engine.groups import count_updates, group
from nearcast.engine.share import Share
from nearcast.model.columns import SUBSCRIPTIONS
from nearcast.spark.frame import MESSAGE, SUBSCRIPTION, Frame, unpack, unpack_batch
from nearcast.text import Vocabulary

CHUNK = 8192
"""Messages published at a time, at most."""

TOLD_AT_ONCE = 1 << 18
"""Updates that a chunk of messages should have: they are held in memory at once, and handed on together."""

_FIRST = 64  # messages of the first chunk: how many updates they have shows what fits


@dataclass
class Counts:
    """What happened to one shard in one micro-batch."""

    messages: int = 0
    updates: int = 0
    late: int = 0
    unknown: int = 0
    """Unsubscribed, but not there."""


class _Arrived(NamedTuple):
    """Rows of a source, those for this shard, in the order of all."""

    table: pa.Table
    places: npt.NDArray[np.int64]
    """Where each row stands among the rows for all shards."""
    ats_us: npt.NDArray[np.int64]
    """The time of every row for any shard, in order."""


def apply(engine: Engine, frames: Iterable[Frame], *, vocabulary: Vocabulary, counts: Counts) -> Iterator[pa.Table]:
    """Carry out the frames of one micro-batch; yield groups of updates, and count while doing so."""
    arrived = list(frames)
    late_before = engine.stats().late
    steps = (
        _subscribe(engine, [f for f in arrived if f.source == SUBSCRIPTION], counts),
        _publish(engine, [f for f in arrived if f.source == MESSAGE], vocabulary, counts),
    )
    for step in steps:
        for told in step:
            counts.updates += count_updates(told)
            yield told
    counts.late += engine.stats().late - late_before


def _subscribe(engine: Engine, frames: Sequence[Frame], counts: Counts) -> Iterator[pa.Table]:
    if not frames:
        return
    table = _in_order(frames).table
    leaves: npt.NDArray[np.bool_] = np.array(pc.equal(table["op"], "unsubscribe"))
    for start, stop in _runs(table["id"], leaves):
        part = table.slice(start, stop - start)
        if not leaves[start]:
            yield group(engine.subscribe(part.select(SUBSCRIPTIONS.names)))
            continue
        ids = part["id"].to_pylist()
        known = [id_ for id_ in ids if id_ in engine]
        counts.unknown += len(ids) - len(known)
        engine.unsubscribe(known)


def _runs(ids: pa.ChunkedArray, leaves: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows that all come or all leave, and hold no id twice."""
    n = len(leaves)
    if not leaves.any() and pc.count_distinct(ids).as_py() == n:
        yield 0, n
        return
    start, seen = 0, set[str]()
    for row, id_ in enumerate(ids.to_pylist()):
        if id_ in seen or leaves[row] != leaves[start]:
            yield start, row
            start, seen = row, set()
        seen.add(id_)
    yield start, n


def _publish(engine: Engine, frames: Sequence[Frame], vocabulary: Vocabulary, counts: Counts) -> Iterator[pa.Table]:
    if not frames:
        return
    table, places, ats_us = _in_order(frames)
    counts.messages += len(ats_us)
    start, size = 0, _FIRST
    while start < len(ats_us):
        stop = min(start + size, len(ats_us))
        first, last = np.searchsorted(places, (start, stop)).tolist()
        own = places[first:last]
        batch = unpack_batch(table.slice(first, last - first), ats_us[own], vocabulary=vocabulary)
        told = engine.publish(batch, grouped=True, share=Share(own - start, ats_us[start:stop]))
        yield told
        fitting = (stop - start) * TOLD_AT_ONCE // max(1, count_updates(told))
        start, size = stop, max(1, min(fitting, 2 * size, CHUNK))


def _in_order(frames: Sequence[Frame]) -> _Arrived:
    """Join the frames of one source, at least one, and put their rows into the order of the stream."""
    frames = sorted(frames, key=lambda frame: (frame.part, frame.block))
    ats_us = np.concatenate([frame.ats_us for frame in frames])
    order = np.argsort(ats_us, kind="stable")
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    tables = [unpack(frame.payload) for frame in frames]
    starts = np.cumsum([0, *(frame.rows for frame in frames[:-1])])
    # Blocks that follow each other in time are put so, whichever task had them: mostly nothing is left to sort then.
    arrived = [(ranks[table["row"].to_numpy() + start], table) for table, start in zip(tables, starts, strict=True)]
    arrived.sort(key=lambda block: block[0][:1].tolist())
    places = np.concatenate([places for places, _ in arrived])
    # Counts of terms may be wider in some.
    table = pa.concat_tables([table for _, table in arrived], promote_options="permissive")
    if (np.diff(places) < 0).any():
        by_place = np.argsort(places)
        table, places = table.take(pa.array(by_place)), places[by_place]
    return _Arrived(table, places, ats_us[order])
