"""How did each shard fare in each batch? Small files beside the state, for whoever watches.

    <state>/<query>/reports/00000017.1.json      batch 17, shard 1

Rows could carry this too, but Spark would then look at every update for it. A batch that is run again writes its
report again; old ones are removed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyarrow import fs
from pyspark.sql.streaming.query import StreamingQuery

from nearcast.spark.log import Folder
from nearcast.spark.progress import SHARDS

_KEPT = 200  # batches; Spark itself remembers a hundred


def write_report(folder: Folder, batch: int, shard: int, report: Mapping[str, Any]) -> None:
    """Write how a shard fared, and forget how it did long ago."""
    folder.write(_name(batch, shard), json.dumps(report).encode())
    folder.remove([_name(batch - _KEPT, shard)])


def batches_of(query: StreamingQuery, state: str, *, after: int = -1) -> list[dict[str, Any]]:
    """Return what Spark reports of the batches of a query since one, and its shards with it."""
    folder = Folder(f"{state}/{query.id}")
    progress = [json.loads(one.json) for one in query.recentProgress]
    batches = [batch for batch in progress if batch["batchId"] > after]
    for batch in batches if batches else ():
        observed = batch.get("observedMetrics") or {}
        batch["observedMetrics"] = observed | {SHARDS: {"reports": _read(folder, batch["batchId"])}}
    return batches


def _read(folder: Folder, batch: int) -> list[str]:
    where = fs.FileSelector(f"{folder.path}/reports", allow_not_found=True)
    names = (info.base_name for info in folder.files.get_file_info(where))
    return [folder.read(f"reports/{name}").decode() for name in sorted(names) if name.startswith(f"{batch:08d}.")]


def _name(batch: int, shard: int) -> str:
    return f"reports/{batch:08d}.{shard}.json"
