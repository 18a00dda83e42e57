"""Filters and attributes on real Spark: results are those of the oracle, on static frames and in a job from a file."""

import json
import os
import random
from collections import Counter

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 - the usual name

import nearcast as nc
from nearcast.errors import InvalidInput
from nearcast.jobs.job_file import make_job_file
from nearcast.model.columns import subscriptions_schema
from nearcast.space.region_formats import to_geojson, to_wkb
from nearcast.spark import match
from nearcast.spark.run import start_run
from oracle import Oracle
from sink_rows import committed_rows
from spark import inputs

CENTER, RADIUS_M = (13.4, 52.5), 10_000.0
SQUARE = nc.Polygon([(13.3, 52.45), (13.5, 52.45), (13.5, 52.55), (13.3, 52.55)])
WEIGHTS = {"bike": 2.0, "red": 1.0, "kids": 1.5, "car": 1.0}
FIELDS = {
    "location": CENTER,
    "keywords": "bike",
    "k": 5,
    "alpha": 0.5,
    "require": "NOT kids",
    "where": "price <= 300",
}
ROW = {"kind": "topk", "x": CENTER[0], "y": CENTER[1], "keywords": "bike", "k": 5, "alpha": 0.5} | {
    "require": "NOT kids", "where": "price <= 300"
}  # fmt: skip
SPACE = {"metric": "haversine", "max_distance": 20_000.0}


def bikes(seed, n):
    """Draw offers of bikes, a share of which is too far, too dear or for kids; some are withdrawn or replaced."""
    rng, rows = random.Random(seed), []
    for i in range(n):
        words = rng.sample(["car", "red", "red", "tall"] + ["kids"] * (i % 4 == 0), k=2)
        row = {
            "op": None, "id": f"m{i}", "x": rng.gauss(CENTER[0], 0.06), "y": rng.gauss(CENTER[1], 0.05),
            "text": " ".join(["bike", *words] if i % 5 else words),
            "price": rng.choice([None, 99.0, 199.5, 299.5, 300.0, 300.5]), "open now": rng.choice([None, True, False]),
        }  # fmt: skip
        if i > 5 and i % 7 == 0:
            rows.append({"op": "retract", "id": f"m{rng.randrange(i - 4, i - 1)}"})
        rows.append(row | ({"op": "replace", "id": f"m{i - 3}"} if i > 5 and i % 5 == 0 else {}))
    return rows


def check_results(updates, rows, regions, *, window):
    """Check the results after each message; rows of updates come in any order."""
    oracle = Oracle(metric="haversine", max_distance=20_000.0, weights=WEIGHTS, edges=(), window=("count", window))
    for name, region in regions.items():
        oracle.subscribe(name, "topk", FIELDS | {"region": region})
    by_seq, held = {}, {name: Counter() for name in regions}
    scores, n_checked = {}, 0
    for update in updates:
        by_seq.setdefault(update["seq"], []).append(update)
    for i, row in enumerate(rows):
        if row["op"] is not None:
            oracle.retract([row["id"]])
        if row["op"] != "retract":
            attributes = {"price": row["price"], "open now": row["open now"]}
            oracle.publish({"id": row["id"], "location": (row["x"], row["y"]), "text": row["text"], "place": None}
                           | {"attributes": attributes})  # fmt: skip
        if i + 1 < len(rows) and rows[i + 1]["op"] == "retract":
            continue  # its updates have the same seq
        for update in by_seq.pop(oracle.seq, ()):
            has_entered = update["change"] == "enter"
            held[update["subscription"]][update["message"]] += 1 if has_entered else -1
            if has_entered:
                scores[update["subscription"], update["message"]] = update["score"]
        for name, counts in held.items():
            result = [(message, scores[name, message]) for message, n in counts.items() if n]
            oracle.check_result(name, sorted(result, key=lambda found: -found[1]))
            n_checked += len(result) == FIELDS["k"]
    assert not by_seq and n_checked > 20


REGIONS = {"circle": ("circle", CENTER, RADIUS_M), "square": ("polygon", SQUARE.shell, ())}


def test_a_job_from_a_file_gives_the_results_of_the_oracle(spark, tmp_path):
    """Half of the messages come in a second batch; a bad value and a word instead of a number are rejected."""
    rows = bikes(7, 60)
    bad = [{"id": "dear", "x": 13.4, "y": 52.5, "text": "bike", "price": float("inf")}]
    requests = [
        {"id": "circle", "radius": RADIUS_M, **ROW},
        {"id": "square", "region": json.dumps(to_geojson(SQUARE)), **ROW},
        {"id": "bad", **ROW, "where": "weight < 3"},
    ]
    for name, lines in (
        ("messages/0", [*rows[:30], *bad]), ("messages/1", [*rows[30:], {"id": "m", "price": "low"}]),
        ("subscriptions/0", requests),
    ):  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        file = tmp_path / f"{name}.json"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        os.utime(file, (1_000_000 + int(file.stem),) * 2)  # Spark takes older files first
    (tmp_path / "vocabulary.json").write_text(json.dumps({"weights": WEIGHTS}))
    content = {
        "space": {"bounds": [-180, -90, 180, 90], **SPACE},
        "vocabulary": {"file": "vocabulary.json"},
        "window": {"count": 40},
        "match": {"attributes": {"price": "float", "open now": "bool", "a.b": "str"}},
        "messages": {"format": "json", "path": "messages", "options": {"maxFilesPerTrigger": 1}},
        "subscriptions": {"format": "json", "path": "subscriptions"},
        "updates": {"format": "json", "path": "updates"},
        "rejected": {"format": "json", "path": "rejected"},
        "run": {"checkpoint": "checkpoint", "trigger": "available now"},
    }
    job_file = make_job_file(content, file=tmp_path / "job.toml")
    started = start_run(spark, job_file)
    while started.is_active:
        started.wait(60)
    check_results(committed_rows(tmp_path / "updates"), rows, REGIONS, window=40)
    rejected = {json.loads(row["row"])["id"]: row["reason"] for row in committed_rows(tmp_path / "rejected")}
    assert rejected.pop("m").startswith("row must be JSON of id string")
    assert rejected == {
        "dear": "price must be a finite number; got inf (message 'dear')",
        "bad": "where must name attributes of the engine: ['price', 'open now', 'a.b']; got 'weight' "
        "(subscription 'bad')",
    }
    content["match"]["attributes"] = {"price": "float"}
    with pytest.raises(
        nc.StateError, match=r"attributes must be .*'open now': 'bool'.*, as when the query was first"
    ):
        start_run(spark, make_job_file(content, file=tmp_path / "job.toml"))


def test_static_frames_give_the_results_of_the_oracle_whatever_the_types_of_columns(spark):
    """Regions as bytes and as geometries; prices as decimals."""
    rows = bikes(8, 60)
    blank = dict.fromkeys(["x", "y", "text", "price", "open now"])
    messages = spark.createDataFrame(pa.Table.from_pylist([blank | row for row in rows])).coalesce(1)
    messages = messages.withColumn("price", F.col("price").cast("decimal(9, 2)")).withColumn("stars", F.lit(None))
    request = {"id": "square", **ROW}
    table = pa.Table.from_pylist([request, request | {"id": "other"}], schema=subscriptions_schema())
    subscriptions = spark.createDataFrame(table).drop("region", "xmin", "ymin", "xmax", "ymax", "radius")
    options = {"space": nc.Space.earth(max_distance=20_000), "vocabulary": nc.Vocabulary.with_weights(WEIGHTS)}
    options |= {"window": nc.CountWindow(40), "attributes": {"price": float, "open now": bool, "stars": int}}
    with_bytes = subscriptions.withColumn("region", F.lit(bytearray(to_wkb(SQUARE))))
    for frame in (with_bytes, with_bytes.withColumn("region", F.st_geomfromwkb("region"))):
        matched = match(messages, frame, shards=2, **options)
        updates = [row.asDict() for row in matched.updates.collect()]
        check_results(updates, rows, dict.fromkeys(("square", "other"), REGIONS["square"]), window=40)


@pytest.mark.parametrize(
    ("column", "words"),
    {
        "cast(1 AS string) price": "price must be a column of double or another number; got 'string'",
        "cast(1 AS decimal(5, 1)) stars": "stars must be a column of bigint or another integer, or double; got 'dec",
        "1 AS category": "category must be a column of string; got 'int'",
        "'yes' AS `open now`": "open now must be a column of boolean; got 'string'",
    }.items(),
)
def test_columns_whose_type_cannot_hold_an_attribute_are_refused(spark, column, words):
    messages = spark.createDataFrame([], "id string, x double, y double, text string").selectExpr("*", column)
    subscriptions = spark.createDataFrame([], inputs.SUBSCRIPTIONS_DDL)
    with pytest.raises(InvalidInput, match=words.replace("(", r"\(")):
        match(messages, subscriptions, space=nc.Space.earth(), attributes=inputs.ATTRIBUTES)
    rule = "region must be a column of string, binary, geometry or geography; got 'int'"
    with pytest.raises(InvalidInput, match=rule):
        match(
            messages.select("id", "x", "y", "text"),
            subscriptions.withColumn("region", F.lit(1)),
            space=nc.Space.earth(),
        )
