"""The stateful operator that merges results of replicas, as Spark sends it: one key per task, and a manifest of each.

Spark unpickles the operator in a new process whenever a query starts, as that of `shard_operator`, so this module
imports little.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

if TYPE_CHECKING:
    import pandas as pd

    from nearcast.spark.job_handle import JobHandle


class MergeOperator(StatefulProcessor):
    """The partitions of the merge stage of one query; `manifest` is the schema of the state of each."""

    def __init__(self, handle: JobHandle, *, manifest: str, is_packed: bool = False) -> None:
        self._handle, self._schema, self._is_packed = handle, manifest, is_packed

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._manifest = handle.getValueState("merge", self._schema)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Merge what shards report to a partition in one micro-batch."""
        from nearcast.spark.worker import merge_frames

        (number,) = key
        yield from merge_frames(self._handle.job, number, rows, self._manifest, is_packed=self._is_packed)

    def close(self) -> None:
        """Release nothing."""
