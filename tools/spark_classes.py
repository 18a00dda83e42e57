"""Record the classes that Spark loads in an archive, from which the JVMs of the tests start in less time.

python tools/spark_classes.py ARCHIVE

A runtime that cannot record them leaves no archive, and JVMs start as usual.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

RUN = """
import sys
import nearcast as nc
from nearcast.spark import match, session

folder = sys.argv[1]
settings = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1", "spark.sql.warehouse.dir": folder + "/warehouse"}
spark = session(shards=2, master="local[2]", settings=settings)
messages = spark.createDataFrame([("m", 1.0, 1.0, "tea")], "id string, x double, y double, text string")
subscriptions = spark.createDataFrame(
    [("s", "topk", 1.0, 1.0, "tea", 3, 0.5)],
    "id string, kind string, x double, y double, keywords string, k int, alpha double",
)
for name, frame in (("messages", messages), ("subscriptions", subscriptions)):
    frame.write.parquet(f"{folder}/{name}")
streams = (spark.readStream.schema(f.schema).parquet(f"{folder}/{n}") for n, f in
           (("messages", messages), ("subscriptions", subscriptions)))
options = {"space": nc.Space(nc.Box(0, 0, 8, 8)), "window": nc.CountWindow(5)}
match(messages, subscriptions, **options).updates.collect()
updates = match(*streams, **options, state=f"{folder}/state").updates
writer = updates.writeStream.format("parquet").option("path", f"{folder}/out")
writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""


def main(archive: Path) -> None:
    """Run a small job in a JVM that records its classes."""
    options = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit={archive.resolve()} -Xlog:disable"
    print("recording the classes of Spark", flush=True)  # noqa: T201 - this takes half a minute
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", RUN, folder],
            cwd=folder,
            env=os.environ | {"SPARK_SUBMIT_OPTS": options},
            capture_output=True,
            text=True,
        )
    if done.returncode:
        print(f"Spark's classes were not recorded: {done.stderr[-2000:]}", file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
