"""A run of the pipeline over the files of a folder, for tests that kill it: `python driver.py FOLDER LOCAL`.

Prints `batch N` after each batch, and ends after the last file. When restarted, it continues where it stopped. Each
line of the file `rescales` in the folder is a number of shards, with which it continues one after the other.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import nearcast as nc
from nearcast.jobs.epochs import EpochLog
from nearcast.spark import match, session
from nearcast.testing import strategies
from spark import inputs


def main(folder, local, master="local[2,4]"):
    spark = session(
        shards=2,
        master=master,  # by default a task is tried four times
        settings={
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.local.dir": local,
            "spark.nearcast.batchesPerSnapshot": 3,
            "spark.sql.streaming.fileSink.log.compactInterval": 3,
        },
    )
    messages, subscriptions = (
        spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(f"{folder}/{name}")
        for name, schema in (("messages", inputs.MESSAGES_DDL), ("subscriptions", inputs.SUBSCRIPTIONS_DDL))
    )
    matched = match(
        messages,
        subscriptions,
        space=strategies.PLANE,
        vocabulary=strategies.vocabulary(),
        social=strategies.social_graph(),
        window=nc.CountWindow(7),
        attributes=inputs.ATTRIBUTES,
        state=f"{folder}/state",
    )
    writer = matched.updates.writeStream.format("parquet").option("path", f"{folder}/out")
    query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    emitted, rescales, log = -1, shards_to_come(folder), EpochLog(f"{folder}/state")
    while True:
        if emitted >= 0 and rescales and in_force(folder) == log.newest_number() < len(rescales):
            matched.rescale(rescales[log.newest_number()])
        ended = query.awaitTermination(0.05)
        for progress in query.recentProgress:
            if progress.batchId > emitted:
                emitted = progress.batchId
                print(f"batch {emitted}", flush=True)  # noqa: T201 - the test waits for this line
        if ended:
            return


def shards_to_come(folder):
    """Return the numbers of shards with which the run continues."""
    file = Path(folder, "rescales")
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def in_force(folder):
    """Return the newest epoch that a shard has reported."""
    reports = Path(folder, "state").glob("*/reports/*.json")
    return max((json.loads(report.read_text())["epoch"] for report in reports), default=-1)


if __name__ == "__main__":
    main(*sys.argv[1:])
