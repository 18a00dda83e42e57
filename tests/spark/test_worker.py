"""Workers start with the pipeline imported, and Spark accepts the output of a shard."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.conversion import PandasToArrowConversion
from pyspark.sql.types import StructType

from nearcast.jobs.frame import shard_updates
from nearcast.model.columns import GROUPS
from nearcast.spark.daemon import modules_of
from nearcast.spark.worker import _columns


def test_a_table_in_several_pieces_becomes_one_batch(spark):
    row = {"seq": 1, "at": None, "message": "m", "change": "enter", "subscriptions": ["s", "t"], "scores": [1.0]}
    pieces = pa.concat_tables([pa.Table.from_pylist([row], schema=GROUPS)] * 3)
    assert pieces["seq"].num_chunks == 3
    schema = StructType.fromDDL(shard_updates(bodies=False))
    batch = PandasToArrowConversion.convert(_columns(pieces), schema, timezone="UTC", arrow_cast=True)
    assert batch.num_rows == 3
    assert batch.column(4).to_pylist() == [["s", "t"]] * 3


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="reads command lines in /proc")
def test_workers_are_forked_with_the_pipeline_imported(spark):
    def parent(_):
        return "nearcast.spark.worker" in sys.modules, Path(f"/proc/{os.getppid()}/cmdline").read_text().split("\0")

    ((has_it, command),) = spark.sparkContext.parallelize([0], 1).map(parent).collect()
    assert has_it
    assert "nearcast.spark.daemon" in command


def test_the_operator_is_unpickled_without_numba_and_pandas():
    """Spark does so in a new process whenever a query starts."""
    heavy = "{'numba', 'pandas', 'nearcast._jit'} & set(sys.modules)"
    code = f"import sys, nearcast.spark.shard_operator, nearcast.spark.job_handle; sys.exit(bool({heavy}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("worker", "has_pipeline"), [("pyspark.worker", True), ("pyspark.sql.worker.create_data_source", False)]
)
def test_a_daemon_imports_what_its_workers_need(worker, has_pipeline):
    modules = modules_of(worker)
    assert worker in modules
    assert ("nearcast.spark.worker" in modules) == has_pipeline
