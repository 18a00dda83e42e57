"""The progress of a streaming query: Spark's reports of its batches, with those of the shards."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from nearcast.jobs.epochs import EpochLog
from nearcast.jobs.folder import Folder
from nearcast.jobs.progress import ADJUSTMENT, SHARDS, epoch_of_reports
from nearcast.jobs.reports import read_batch


def batches_of(query: StreamingQuery, state: str, *, after: int = -1) -> list[dict[str, Any]]:
    """Return the reports of the batches of a query after the given one."""
    folder = Folder(f"{state}/{query.id}")
    progress = [json.loads(one.json) for one in query.recentProgress]
    batches = [batch for batch in progress if batch["batchId"] > after]
    for batch in batches:
        observed, reports = batch.get("observedMetrics") or {}, read_batch(folder, batch["batchId"])
        batch["observedMetrics"] = observed | {SHARDS: {"reports": reports}}
        adjustment = EpochLog(state).adjustment(epoch_of_reports(map(json.loads, reports)))
        batch[ADJUSTMENT] = None if adjustment is None else adjustment.summary()
    return batches
