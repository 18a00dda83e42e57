"""Fixtures for tests of the pipeline."""

import os

import pyarrow.parquet as pq
import pytest


@pytest.fixture
def shards(spark):
    """Set the number of shards of the session for one test."""
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    yield lambda n: spark.conf.set(name, n)
    spark.conf.set(name, before)


@pytest.fixture
def write_stream(tmp_path):
    """Return a function that writes tables as files of streams, one file per batch, and returns the folders."""

    def write(batches):
        for i, batch in enumerate(batches):
            for source in ("messages", "subscriptions", "edges"):
                if getattr(batch, source) is None:
                    continue
                file = tmp_path / source / f"{i:04d}.parquet"
                file.parent.mkdir(exist_ok=True)
                pq.write_table(getattr(batch, source), file)
                os.utime(file, (1_000_000 + i, 1_000_000 + i))  # Spark takes older files first
        return str(tmp_path / "messages"), str(tmp_path / "subscriptions")

    return write
