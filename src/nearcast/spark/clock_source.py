"""The clock of a job as a source of Spark: its position is the time, and a batch has one row with it.

    host ── Clock, in the driver ── position {"us": 1767225600000000} ── Spark's log of positions ── a row

Spark asks every source for its position before it begins a batch, writes the positions down, and reads up to them:
a replayed batch has the same time. A position that has moved is a reason to run a batch, so a quiet stream expires.
The clock moves at most twice per second, so that a query without a trigger does not run empty batches all the time.
A whole second would be too long: triggers of one second are not exactly a second apart, and one that is early would
find that the clock has not moved.

After a restart the clock continues no earlier than the last position.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from nearcast.engine.clock import Clock

TICK_US = 500_000
"""The least time between two positions."""
NOW_US = "now_us"

Rows = Iterator[tuple[Any, ...]]


class ClockReader(SimpleDataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_us: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Return the position before the first one."""
        return {"us": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Stop at the present time."""
        self._until_us = self._now_us()

    def read(self, start: dict[str, int]) -> tuple[Rows, dict[str, int]]:
        """Return a row with the time, and its position; nothing if hardly any time has passed."""
        self._clock.resume(start["us"] / 1_000_000)
        now_us = self._now_us() if self._until_us is None else self._until_us
        if now_us - start["us"] < TICK_US:
            return iter(()), start
        return iter([(now_us,)]), {"us": now_us}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Rows:  # noqa: N802
        """Return the row that was read before."""
        return iter([(end["us"],)])

    def _now_us(self) -> int:
        return round(self._clock.now() * 1_000_000)


class ClockSource(DataSource):
    """The source `nearcast_clock`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "nearcast_clock"

    def schema(self) -> str:
        """Return the columns."""
        return f"{NOW_US} long"

    def simpleStreamReader(self, schema: Any) -> ClockReader:  # noqa: N802
        """Return a reader with a clock of its own, which starts with the query."""
        return ClockReader(Clock())


def read_clock(spark: SparkSession) -> DataFrame:
    """Return the time as a stream."""
    spark.dataSource.register(ClockSource)
    return spark.readStream.format(ClockSource.name()).load()
