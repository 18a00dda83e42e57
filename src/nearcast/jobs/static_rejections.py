"""Rows of static frames that shards reject, computed from the frames alone: a static run stores no rejections."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from nearcast.jobs.edge_operations import EdgeOperations, reject_unknown
from nearcast.jobs.frame import EDGE, MESSAGE, SUBSCRIPTION, Frame
from nearcast.jobs.job import Job
from nearcast.jobs.message_rows import RETRACT, are
from nearcast.jobs.operation_rejections import ends_of, expired_rejections
from nearcast.jobs.order import SourceRows, in_order, positions_of
from nearcast.jobs.rejections import Rejection
from nearcast.model import NO_TIME


def rejected_operations(frames: Sequence[Frame], job: Job, *, shard: int) -> list[Rejection]:
    """Return the operations on subscriptions that a shard rejects; the times of messages are the clock."""
    messages, changed, requested = (
        [frame for frame in frames if frame.source == source] for source in (MESSAGE, EDGE, SUBSCRIPTION)
    )
    if not requested:
        return []
    rows, rejections = in_order(requested), list[Rejection]()
    if job.has_edges:
        edges = EdgeOperations(changed) if changed else None
        rows, rejections = reject_unknown(rows, edges, job.scoring.social.users, shard=shard)
    return rejections + (_expired(rows, in_order(messages), shard=shard) if messages else [])


def _expired(rows: SourceRows, messages: SourceRows, *, shard: int) -> list[Rejection]:
    """Return the subscriptions that have expired by the time of the last message before each."""
    ends_us = ends_of(rows.table)
    if ends_us is None:
        return []
    times_us = messages.ats_us.copy()
    times_us[messages.places[are(RETRACT, messages.table)]] = NO_TIME  # a retraction does not move the clock
    nows_us = np.maximum.accumulate(np.concatenate([[NO_TIME], times_us]))[positions_of(rows, messages.ats_us)]
    found: list[Rejection] = []
    for now_us in np.unique(nows_us[ends_us <= nows_us]).tolist():
        expired = np.flatnonzero((ends_us <= nows_us) & (nows_us == now_us))
        found += expired_rejections(rows.table.take(pa.array(expired)), now_us, shard=shard)
    return found
