"""Random streams for the pipeline, with many ties, and the updates of one embedded engine for them."""

import random
from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

import nearcast as nc
from nearcast.engine import EngineConfig
from nearcast.jobs.job import Job
from nearcast.model import KINDS
from nearcast.model.columns import MESSAGES, TIMESTAMP, subscriptions_schema
from nearcast.testing import strategies

SUBSCRIPTIONS = subscriptions_schema()


@dataclass
class Batch:
    """Messages and subscriptions of one batch."""

    messages: pa.Table
    subscriptions: pa.Table


JOB_OPTIONS = ("partitioner", "local", "batches_per_snapshot", "fitted")


def job(*, space=strategies.PLANE, window=None, shards=2, **options):
    of_job = {name: options.pop(name) for name in JOB_OPTIONS if name in options}
    config = EngineConfig.of(
        {
            "space": space,
            "vocabulary": strategies.vocabulary(),
            "social": strategies.social_graph(),
            "window": nc.CountWindow(7) if window is None else window,
            **options,
        }
    )
    return Job(config, shards=shards, **of_job)


def engine(of):
    return nc.Engine.from_config(of.config)


def batches(seed, fields, *, space=strategies.PLANE, n=4, kinds=tuple(k.kind for k in KINDS), timed=False):
    """Draw batches; times, if any, are out of order, and some messages are late."""
    rng = random.Random(seed)
    drawn = []
    for step in range(n):
        messages = [
            {
                "id": f"m{step}.{i}",
                "x": x,
                "y": y,
                "text": " ".join(rng.choices(strategies.TERMS, k=rng.randint(0, 4))),
                "at": (step * 6 + rng.randrange(8)) * 1_000_000 if timed else None,
                "place": rng.choice([None, *strategies.PLACES]),
            }
            for i, (x, y) in enumerate(rng.choices(strategies.GRID[space], k=rng.randint(0, 9)))
        ]
        changes = []
        for _ in range(rng.randint(0, 9)):
            row = {"op": "unsubscribe", "id": f"s{rng.randrange(12)}"}
            if rng.random() < 0.8:
                kind = rng.choice(kinds)
                row |= {"op": rng.choice(["subscribe", None]), "kind": kind, **columns(fields(kind, space, rng))}
            changes.append(row | {"at": rng.randrange(9) * 1_000_000 if timed else None})
        drawn.append(Batch(table(messages, MESSAGES), table(changes, SUBSCRIPTIONS)))
    return drawn


def numbered(given):
    """Give the rows distinct times in their order, so that the order in which files are read does not matter."""
    made, n = [], 0
    for batch in given:
        timed = []
        for rows in (batch.messages, batch.subscriptions):
            ats = pa.array([(n + i) * 1_000_000 for i in range(len(rows))], pa.int64()).cast(TIMESTAMP)
            timed.append(rows.set_column(rows.column_names.index("at"), "at", ats))
            n += len(rows)
        made.append(Batch(*timed))
    return made


def columns(fields):
    """Return the fields of a subscription as columns."""
    row = dict(fields)
    if "region" in row:
        row |= zip(("xmin", "ymin", "xmax", "ymax"), row.pop("region"), strict=True)
    else:
        row |= zip(("x", "y"), row.pop("location"), strict=True)
        row["keywords"] = " ".join(row["keywords"])
    return row


def table(rows, schema):
    return pa.Table.from_pylist(rows, schema=schema)


def embedded(of, given):
    """Return the updates of one engine that processes batches row by row, which the pipeline must equal."""
    alone, updates = engine(of), []
    for batch in given:
        for row in in_order(batch.subscriptions).to_pylist():
            if row["op"] != "unsubscribe":
                updates.append(alone.subscribe(table([row | {"op": "subscribe"}], SUBSCRIPTIONS)))
            elif row["id"] in alone:
                alone.unsubscribe([row["id"]])
        updates.append(alone.publish(in_order(batch.messages)))
    return counted(updates)


def in_order(rows):
    """Return rows sorted by time, those without a time first; the sort is stable."""
    at = pc.fill_null(rows["at"].cast(pa.int64()), -(1 << 62)).to_pylist()
    return rows.take(pa.array(sorted(range(len(rows)), key=at.__getitem__), pa.int64()))


def counted(tables):
    """Return updates as a multiset."""
    return Counter(key(row) for updates in tables for row in updates.to_pylist())


def key(row):
    return (row["seq"], row["subscription"], row["message"], row["change"], row["score"])
