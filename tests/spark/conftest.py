"""One Spark session for all tests of the pipeline."""

import os

import pyarrow.parquet as pq
import pytest


@pytest.hookimpl(tryfirst=True)  # before tests are handed out by their groups
def pytest_collection_modifyitems(items):
    """Let all tests that need the session run in one process: there is then one session."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    from nearcast.spark.settings import session

    made = session(
        shards=2,
        master="local[2]",
        app_name="nearcast-tests",
        settings={
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.log.level": "ERROR",
        },
    )
    yield made
    made.stop()


@pytest.fixture
def shards(spark):
    """Set the number of shards of the session for one test."""
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    yield lambda n: spark.conf.set(name, n)
    spark.conf.set(name, before)


@pytest.fixture
def write_stream(tmp_path):
    """Write tables as the files of two streams, one file each a batch; return the folders."""

    def write(batches):
        for i, batch in enumerate(batches):
            for source in ("messages", "subscriptions"):
                file = tmp_path / source / f"{i:04d}.parquet"
                file.parent.mkdir(exist_ok=True)
                pq.write_table(getattr(batch, source), file)
                os.utime(file, (1_000_000 + i, 1_000_000 + i))  # Spark takes older files first
        return str(tmp_path / "messages"), str(tmp_path / "subscriptions")

    return write
