"""Subscriptions and messages as two streams of files through Spark: updates as rows, bad rows with the reason.

Takes a folder, or makes one; started again with the same folder, it goes on where it stopped.
"""

import json
import sys
import tempfile
from pathlib import Path

import nearcast as nc
from nearcast.spark import match, session

MESSAGES = [
    {"id": "m1", "x": 0.21, "y": 0.30, "text": "Coffee sale today"},
    {"id": "m2", "x": 0.90, "y": 0.90, "text": "Jazz tonight, free entry"},
    {"id": "m3", "x": 7.00, "y": 0.10, "text": "Coffee, but not in this town"},
    {"id": "m4", "x": 0.60, "y": 0.70, "text": "jazz and coffee"},
]
SUBSCRIPTIONS = [
    {"id": "b1", "kind": "boolean", "xmin": 0, "ymin": 0, "xmax": 0.5, "ymax": 0.5, "keywords": "coffee AND sale"},
    {"id": "t1", "kind": "topk", "x": 0.7, "y": 0.7, "keywords": "jazz", "k": 1, "alpha": 0.5},
    {"id": "t2", "kind": "topk", "x": 0.7, "y": 0.7, "keywords": "jazz", "k": 0, "alpha": 0.5},
]


def write(folder: Path, rows: list[dict]) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rows.json").write_text("\n".join(map(json.dumps, rows)))
    return str(folder)


def main(folder: Path) -> None:
    spark = session(shards=2, master="local[2]", settings={"spark.ui.enabled": "false", "spark.log.level": "ERROR"})
    messages = spark.readStream.schema("id string, x double, y double, text string").json(
        write(folder / "messages", MESSAGES)
    )
    subscriptions = spark.readStream.schema(
        "id string, kind string, x double, y double, xmin double, ymin double, xmax double, ymax double, "
        "keywords string, k int, alpha double"
    ).json(write(folder / "subscriptions", SUBSCRIPTIONS))

    matched = match(
        messages,
        subscriptions,
        space=nc.Space(nc.Box(0, 0, 1, 1)),
        window=nc.CountWindow(1_000),
        shards=2,
        state=str(folder / "state"),
    )
    for name, frame in (("updates", matched.updates), ("rejected", matched.rejected)):
        writer = frame.writeStream.format("json").option("path", str(folder / name))
        query = writer.option("checkpointLocation", str(folder / f"{name}.checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

    for row in (
        spark.read.schema(matched.updates.schema).json(str(folder / "updates")).orderBy("seq", "change").collect()
    ):
        print(f"{row.seq} {row.subscription} {row.change} {row.message} {row.score:.3f}")
    rejected = spark.read.schema(matched.rejected.schema).json(str(folder / "rejected"))
    for row in rejected.orderBy("reason").collect():
        print(f"rejected: {row.reason}")
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]).absolute())
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(made))
