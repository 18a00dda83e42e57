"""The order of a micro-batch across its sources: by time, and by source at equal times.

    at               none      3      5           9
    edges                             e1                       applied before subscriptions of the same time
    subscriptions     s1              s2 s3                    applied before the messages of the same time
    messages          m1  m2   m3     m4     m5   m6 m7        numbered in this order
                     ▲                ▲
    positions        0                3                        messages before each operation

Rows without a time come first. Within a source, rows of the same time stay in the order of arrival, so a source is
sorted on its own, and the order across sources is one number per operation: how many messages come before it. Every
shard sees the times of all messages, so all shards agree, although each sees its own operations only.

Retractions and replacements are rows among the messages, in the order of arrival.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.jobs.frame import Frame, unpack


class SourceRows(NamedTuple):
    """The rows of a source for one shard, in the order of the stream."""

    table: pa.Table
    places: npt.NDArray[np.int64]
    """Position of each row among the rows of all shards."""
    ats_us: npt.NDArray[np.int64]
    """The time of every row of all shards, in order; NO_TIME, the least of all times, where there is none."""

    def chosen(self, are_chosen: npt.NDArray[np.bool_]) -> SourceRows:
        """Return some of the rows."""
        return SourceRows(self.table.filter(pa.array(are_chosen)), self.places[are_chosen], self.ats_us)


def in_order(frames: Sequence[Frame]) -> SourceRows:
    """Concatenate the frames of one source, at least one, in the order of the stream."""
    frames = _as_arrived(frames)
    ats_us = np.concatenate([frame.ats_us for frame in frames])
    order = _by_time(ats_us)
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    tables = [unpack(frame.payload) for frame in frames]
    starts = np.cumsum([0, *(frame.rows for frame in frames[:-1])])
    # Blocks are ordered by time first, whichever task packed them, so that mostly nothing is left to sort.
    arrived = [(ranks[table["row"].to_numpy() + start], table) for table, start in zip(tables, starts, strict=True)]
    arrived.sort(key=lambda block: block[0][:1].tolist())
    places = np.concatenate([places for places, _ in arrived])
    # Term counts may be wider in some blocks.
    table = pa.concat_tables([table for _, table in arrived], promote_options="permissive")
    if (np.diff(places) < 0).any():
        by_place = np.argsort(places)
        table, places = table.take(pa.array(by_place)), places[by_place]
    return SourceRows(table, places, ats_us[order])


def ends_in_order(frames: Sequence[Frame]) -> npt.NDArray[np.int64]:
    """Return when every message of the frames expires by a time of its own, in the order of the stream."""
    frames = _as_arrived(frames)
    ends_us = np.concatenate([frame.ends_us for frame in frames])
    return ends_us[_by_time(np.concatenate([frame.ats_us for frame in frames]))]


def _as_arrived(frames: Sequence[Frame]) -> list[Frame]:
    return sorted(frames, key=lambda frame: (frame.part, frame.block))


def _by_time(ats_us: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.argsort(ats_us, kind="stable")


def positions_of(operations: SourceRows, message_ats_us: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return how many messages of the batch come before each operation; the times of messages ascend.

    >>> rows = SourceRows(pa.table({}), np.array([0, 1, 2]), np.array([0, 5, 10]))
    >>> positions_of(rows, np.array([-1, 5, 5, 7])).tolist()
    [1, 1, 4]
    """
    return np.searchsorted(message_ats_us, operations.ats_us[operations.places], side="left").astype(np.int64)
