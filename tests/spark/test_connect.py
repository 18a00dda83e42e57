"""`match` works on the frames of a client of Spark Connect, which cannot broadcast."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.soak

SCRIPT = """
import os, sys
from pyspark.sql import SparkSession
import nearcast as nc
from nearcast.spark import match
from nearcast.spark.java import find_java
from nearcast.spark.settings import SETTINGS

folder = sys.argv[1]
os.environ |= {"JAVA_HOME": str(find_java()), "PYSPARK_PYTHON": sys.executable}
builder = SparkSession.builder.remote("local[2]")
for name, value in {**SETTINGS, "spark.sql.shuffle.partitions": "2"}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
assert type(spark).__module__.startswith("pyspark.sql.connect"), type(spark)
messages = spark.createDataFrame([("m", 1.0, 1.0, "tea")], "id string, x double, y double, text string")
columns = "id string, kind string, x double, y double, keywords string, k int, alpha double"
rows = [("s", "topk", 1.0, 1.0, "tea", 3, 0.5), ("bad", "topk", 9.0, 1.0, "tea", 3, 0.5)]
subscriptions = spark.createDataFrame(rows, columns)
options = {"space": nc.Space(nc.Box(0, 0, 8, 8)), "window": nc.CountWindow(5)}
matched = match(messages, subscriptions, **options)
expected = [("s", "m", "enter", 1.0)]
kept = ["subscription", "message", "change", "score"]
assert [tuple(row) for row in matched.updates.select(*kept).collect()] == expected
assert [row.source for row in matched.rejected.collect()] == ["subscription"]

for name, frame in (("messages", messages), ("subscriptions", subscriptions)):
    frame.write.parquet(f"{folder}/{name}")
streams = (spark.readStream.schema(frame.schema).parquet(f"{folder}/{name}")
           for name, frame in (("messages", messages), ("subscriptions", subscriptions)))
updates = match(*streams, **options, state=f"{folder}/state").updates
writer = updates.writeStream.format("parquet").option("path", f"{folder}/out")
writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start().awaitTermination()
assert [tuple(row) for row in spark.read.parquet(f"{folder}/out").select(*kept).collect()] == expected
spark.stop()
"""


def test_static_frames_and_streams_of_a_remote_session_are_matched(tmp_path):
    pytest.importorskip("grpc", reason="clients of Spark Connect need grpcio")
    done = subprocess.run([sys.executable, "-c", SCRIPT, tmp_path], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
