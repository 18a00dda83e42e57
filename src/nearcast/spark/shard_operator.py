"""The stateful operator as Spark sends it: one key per shard, and the manifest of each in Spark's state store.

Whenever a query starts, Spark unpickles the operator in a new process, only to read the names of its state. This
module therefore imports little: with Numba and pandas each start would take almost two seconds longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

if TYPE_CHECKING:
    import pandas as pd

    from nearcast.spark.job_handle import JobHandle


class ShardOperator(StatefulProcessor):
    """The shards of one query; `manifest` is the schema of what the state store holds of each."""

    def __init__(self, handle: JobHandle, *, manifest: str, is_packed: bool = False) -> None:
        self._handle, self._schema, self._is_packed = handle, manifest, is_packed

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._manifest = handle.getValueState("shard", self._schema)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Apply the frames of a shard in one micro-batch."""
        from nearcast.spark.worker import apply_frames

        (number,) = key
        yield from apply_frames(self._handle.job, number, rows, self._manifest, is_packed=self._is_packed)

    def close(self) -> None:
        """Release nothing."""
