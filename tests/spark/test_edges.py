"""Edges as a third source give the updates of the engine, on streams and static frames."""

import json
from collections import Counter

import pyarrow as pa
import pytest

import nearcast as nc
from nearcast.jobs.edge_rows import EDGE_ROWS
from nearcast.jobs.progress import Tally
from nearcast.spark import match
from nearcast.spark.query_progress import batches_of
from nearcast.testing import strategies
from spark import inputs
from spark.test_crash import forget_last_commit
from spark.test_pipeline import MESSAGES, SUBSCRIPTIONS, counted, options, run

EDGES = "op string, user string, place string, at timestamp"
GRAPH = nc.SocialGraph([(user, "p0") for user in strategies.USERS[:2]])
BAD = inputs.table([{"op": "drop", "user": "u0", "place": "p0"}, {"op": "add", "place": "p0"}], EDGE_ROWS)


@pytest.fixture
def drawn(random_fields):
    """Return a job and batches with subscriptions that come before their users are known, and withdrawn messages."""
    of = inputs.job(social=GRAPH, window=nc.TimeWindow(20), has_edges=True)
    given = inputs.batches(3, random_fields, n=3, timed=True, withdrawn=0.4, kinds=("social", "social", "topk"))
    return of, inputs.with_edges(given, 3, timed=True)


def unknown(of, given):
    """Return the ids of the subscriptions that are rejected because their user is not known yet."""
    alone, names = inputs.engine(of), Counter()
    for batch in given:
        for source, row in inputs.in_order(batch):
            if source == "edge" and row["op"] == "add":
                inputs.change_edge(alone, row)
            if source == "subscription" and row["user"] and row["user"] not in alone._scoring.social.users:
                names[row["id"]] += 1
    return names


def check_rejected(rows, of, given):
    reasons = [(row["source"], row["reason"]) for row in rows]
    assert sorted(reason for source, reason in reasons if source == "edge") == [
        "op must be 'add' or 'remove'; got 'drop' (edge ('u0', 'p0'))",
        "user must be a string; got None (edge (None, 'p0'))",
    ]
    users = [row for row in rows if row["source"] == "subscription"]
    assert all("user must be known to the social graph" in row["reason"] for row in users)
    assert Counter(json.loads(row["row"])["id"] for row in users) == unknown(of, given)
    assert users


@pytest.mark.soak
def test_static_frames_give_the_updates_of_the_engine(spark, drawn):
    of, given = drawn
    batch = inputs.Batch(
        *(pa.concat_tables(getattr(b, name) for b in given) for name in ("messages", "subscriptions", "edges"))
    )
    tables = (batch.messages, batch.subscriptions, pa.concat_tables([batch.edges, BAD]))
    messages, subscriptions, edges = (spark.createDataFrame(rows.combine_chunks()).coalesce(1) for rows in tables)
    matched = match(messages, subscriptions, edges=edges, **options(of))
    expected = inputs.embedded(of, [batch])
    assert counted(matched.updates.collect()) == expected and expected.total() > 5
    check_rejected([row.asDict() for row in matched.rejected.collect()], of, [batch])


def test_a_stream_gives_the_updates_of_the_engine_and_replays_a_lost_batch(spark, drawn, write_stream, tmp_path):
    of, given = drawn
    with_bad = [
        *given[:2],
        inputs.Batch(given[2].messages, given[2].subscriptions, pa.concat_tables([given[2].edges, BAD])),
    ]
    state = str(tmp_path / "state")

    def start(n):
        write_stream(with_bad[:n])
        messages, subscriptions, edges = (
            spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / name))
            for name, schema in (
                ("messages", f"{MESSAGES}, op string"),
                ("subscriptions", SUBSCRIPTIONS),
                ("edges", EDGES),
            )
        )
        return match(messages, subscriptions, edges=edges, **options(of), state=state)

    run(start(2).updates, tmp_path)
    assert forget_last_commit(tmp_path / "checkpoint")
    matched = start(3)
    rows, query = run(matched.updates, tmp_path)
    expected = inputs.embedded(of, given)
    assert counted(rows) == expected
    assert any(change == "leave" for _, _, _, change, _ in expected)
    tally = Tally()
    tally.take(batches_of(query, state))
    assert tally.rejected >= len(BAD)
    rejected, _ = run(matched.rejected, tmp_path / "rejected")
    check_rejected([row.asDict() for row in rejected], of, given)
