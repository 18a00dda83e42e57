"""Random streams for the pipeline, with many ties, and the updates of one embedded engine for them."""

import json
import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

import nearcast as nc
from nearcast.engine import EngineConfig
from nearcast.jobs import message_rows
from nearcast.jobs.edge_rows import EDGE_ROWS
from nearcast.jobs.job import Job
from nearcast.model import KINDS, Attributes, columns
from nearcast.model.columns import TIMESTAMP, UPDATES, subscriptions_schema
from nearcast.space.region_formats import to_geojson, to_wkb
from nearcast.testing import strategies

ATTRIBUTES = Attributes.of(strategies.ATTRIBUTES)
_OWN = pa.schema({"price": pa.float64(), "stars": pa.int64(), "category": pa.string(), "open now": pa.bool_()})
MESSAGES, MESSAGE_ROWS = (pa.schema([*schema, *_OWN]) for schema in (columns.MESSAGES, message_rows.MESSAGE_ROWS))
SUBSCRIPTIONS = subscriptions_schema()
MESSAGES_DDL = (
    "id string, x double, y double, text string, at timestamp, place string, price double, stars bigint, "
    "category string, `open now` boolean"
)
SUBSCRIPTIONS_DDL = (
    "op string, id string, kind string, x double, y double, xmin double, ymin double, xmax double, ymax double, "
    "region string, radius double, keywords string, k int, alpha double, delta double, tau double, user string, "
    "where string, require string, at timestamp"
)
"""The columns of streams without ends and bodies."""
BEGIN = datetime.min.replace(tzinfo=UTC)
"""Earlier than all times."""


@dataclass
class Batch:
    """Messages, subscriptions and edges of one batch."""

    messages: pa.Table
    subscriptions: pa.Table
    edges: pa.Table | None = None


JOB_OPTIONS = (
    "partitioner",
    "state",
    "tasks",
    "local",
    "batches_per_snapshot",
    "fitted",
    "threads",
    "clock",
    "max_ahead_s",
    "has_edges",
    "may_withdraw",
    "balance",
)


def job(*, space=strategies.PLANE, window=None, shards=2, **options):
    of_job = {name: options.pop(name) for name in JOB_OPTIONS if name in options}
    config = EngineConfig.of(
        {
            "space": space,
            "vocabulary": strategies.vocabulary(),
            "social": strategies.social_graph(),
            "window": nc.CountWindow(7) if window is None else window,
            "attributes": ATTRIBUTES,
            **options,
        }
    )
    return Job(config, shards=shards, **of_job)


def engine(of):
    return nc.Engine.from_config(of.config)


def batches(
    seed,
    fields,
    *,
    space=strategies.PLANE,
    n=4,
    kinds=tuple(k.kind for k in KINDS),
    timed=False,
    withdrawn=0.0,
    filtered=0.4,
):
    """Draw batches; times, if any, are out of order, and some messages are late.

    A share of the rows, `withdrawn`, retracts or replaces messages, some of which are unknown. Of subscriptions, the
    share `filtered` has filters.
    """
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
                **{name: rng.choice(values) for name, values in strategies.VALUES.items()},
            }
            for i, (x, y) in enumerate(rng.choices(strategies.GRID[space], k=rng.randint(0, 9)))
        ]
        changes = []
        for _ in range(rng.randint(0, 9)):
            row = {"op": "unsubscribe", "id": f"s{rng.randrange(12)}"}
            if rng.random() < 0.8:
                kind = rng.choice(kinds)
                row |= {"op": rng.choice(["subscribe", None]), "kind": kind, **row_of(fields(kind, space, rng))}
                if rng.random() < filtered:
                    row |= filters(row, space, rng)
            changes.append(row | {"at": (step * 6 + rng.randrange(9)) * 1_000_000 if timed else None})
        if not withdrawn:
            drawn.append(Batch(table(messages, MESSAGES), table(changes, SUBSCRIPTIONS)))
            continue
        for message in messages:
            chance = rng.random()
            if chance < withdrawn:
                message |= {"op": "replace", "id": f"m{max(step - rng.randrange(2), 0)}.{rng.randrange(6)}"}
                if chance < withdrawn / 2:
                    message |= {"op": "retract", "x": None, "y": None, "text": None, "place": None}
        drawn.append(Batch(table(messages, MESSAGE_ROWS), table(changes, SUBSCRIPTIONS)))
    return drawn


def with_edges(given, seed, *, timed=False):
    """Add random changes of edges to batches; some remove edges that are not there."""
    rng, made = random.Random(seed), []
    for step, batch in enumerate(given):
        rows = [
            {
                "op": rng.choice(["add", "add", "remove"]),
                "user": rng.choice(strategies.USERS),
                "place": rng.choice(strategies.PLACES),
                "at": (step * 6 + rng.randrange(9)) * 1_000_000 if timed else None,
            }
            for _ in range(rng.randint(0, 6))
        ]
        made.append(Batch(batch.messages, batch.subscriptions, table(rows, EDGE_ROWS)))
    return made


def with_ends(given, seed):
    """Add ends to some messages and subscriptions of batches, some of which have passed then, and bodies."""
    rng, made = random.Random(seed), []

    def later(row, least):
        at = 0 if row["at"] is None else round(row["at"].timestamp())
        return (at + rng.randint(least, 14)) * 1_000_000

    for batch in given:
        messages, subscriptions = batch.messages.to_pylist(), batch.subscriptions.to_pylist()
        for row in messages:
            row["expires_at"] = later(row, 1) if rng.random() < 0.4 else None
            row["body"] = f"body {rng.randrange(100)} of {row['id']}" if rng.random() < 0.8 else None
        for row in subscriptions:
            row["expires_at"] = later(row, -6) if rng.random() < 0.3 else None
        made.append(Batch(table(messages, MESSAGE_ROWS), table(subscriptions, SUBSCRIPTIONS), batch.edges))
    return made


def numbered(given):
    """Give the rows distinct times, operations and messages in turn, so that the order of reading does not matter."""
    made, n = [], 0
    for batch in given:
        timed = []
        for offset, rows in ((1, batch.messages), (0, batch.subscriptions)):
            ats = pa.array([(n + 2 * i + offset) * 1_000_000 for i in range(len(rows))], pa.int64()).cast(TIMESTAMP)
            timed.append(rows.set_column(rows.column_names.index("at"), "at", ats))
        made.append(Batch(*timed))
        n += 2 * max(len(batch.messages), len(batch.subscriptions))
    return made


CONDITIONS = (
    "price <= 1.5", "NOT price > 0", "price BETWEEN 0 AND 2 OR stars IS NULL", "stars <> 3", "stars IN (-1, 3)",
    "category = 'bike'", "NOT category IN ('it''s', '')", "category IS NOT NULL AND (price >= 0 OR stars < 3)",
    '"open now" = TRUE', 'NOT "open now" = TRUE OR price IS NULL',
)  # fmt: skip
REQUIREMENTS = ("NOT a", '"a b"', "a OR NOT b", "NOT (b AND c) AND NOT d", "c NOT f")


def filters(row, space, rng):
    """Draw filters for a subscription, regions in every form of columns."""
    is_boolean, made = row["kind"] == "boolean", {}
    if rng.random() < 0.6:
        made["where"] = rng.choice(CONDITIONS)
    if is_boolean and rng.random() < 0.6:
        made["keywords"] = f"({row['keywords']}) AND ({rng.choice(REQUIREMENTS)})"
    elif not is_boolean and rng.random() < 0.4:
        made["require"] = rng.choice(REQUIREMENTS)
    if rng.random() < 0.6:
        made |= region(row, space, rng)
    return made


def region(row, space, rng):
    """Draw the columns of a region."""
    sides = ("xmin", "ymin", "xmax", "ymax")
    (x1, y1), (x2, y2), (x3, y3) = corners = rng.choices(strategies.GRID[space], k=3)
    form = rng.choice(["box", "radius", "geojson", "wkt", "wkb"])
    if form == "box":
        west, east = sorted((x1, x2), reverse=space.metric == "haversine" and rng.random() < 0.5)
        return dict(zip(sides, (west, min(y1, y2), east, max(y1, y2)), strict=True))
    made = dict.fromkeys(sides)
    if form == "radius":
        place = {} if "x" in row else {"x": x1, "y": y1}
        return made | place | {"radius": rng.choice(strategies.RADII[space])}
    if (x2 - x1) * (y3 - y1) == (y2 - y1) * (x3 - x1):  # no triangle
        corners = [(x1, y1), (x1 + 2, y1), (x1, y1 + 2)]
    shape = nc.Polygon(corners)
    ring = ", ".join(f"{x} {y}" for x, y in (*corners, corners[0]))
    forms = {"geojson": json.dumps(to_geojson(shape)), "wkt": f"POLYGON (({ring}))", "wkb": to_wkb(shape).hex()}
    return made | {"region": forms[form]}


def decoded(messages, of):
    """Return a table of messages with the names that attributes have within a job."""
    names = {name: column for column, name in message_rows.attribute_columns(of.config.attributes).items()}
    return messages.rename_columns([names.get(name, name) for name in messages.column_names])


def row_of(fields):
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


def subscribe(alone, row, reasons=None):
    """Add a subscription to an engine; one that has expired changes nothing, and its reason is noted."""
    try:
        return alone.subscribe(table([row | {"op": "subscribe"}], SUBSCRIPTIONS))
    except nc.InvalidInput as error:
        if error.field != "expires_at":
            raise
        if reasons is not None:
            reasons.append(str(error))
        return UPDATES.empty_table()


def embedded(of, given):
    """Return the updates of one engine that processes batches row by row, which the pipeline must equal."""
    return counted(row_by_row(of, given))


def row_by_row(of, given, reasons=None):
    """Yield the updates of one engine for each row of all batches; note the reasons of expired subscriptions."""
    alone = engine(of)
    for batch in given:
        yield from apply_batch(alone, batch, reasons)


def apply_batch(alone, batch, reasons=None):
    """Yield the updates of an engine for each row of a batch; note the reasons of expired subscriptions."""
    for source, row in in_order(batch):
        if source == "message":
            yield publish(alone, row)
        elif source == "edge":
            with suppress(nc.InvalidInput):  # removes an edge that is not there
                yield change_edge(alone, row)
        elif row["user"] is not None and row["user"] not in alone._scoring.social.users:
            pass  # rejected
        elif row["op"] != "unsubscribe":
            yield subscribe(alone, row, reasons)
        elif row["id"] in alone:
            alone.unsubscribe([row["id"]])


def change_edge(alone, row):
    """Add or remove an edge."""
    change = alone.add_edges if row["op"] == "add" else alone.remove_edges
    return change(pa.table({"user": [row["user"]], "place": [row["place"]]}))


def publish(alone, row):
    """Do with an engine what a row of messages says; an unknown id changes nothing."""
    op, message = row.get("op"), table([{name: row.get(name) for name in MESSAGES.names}], MESSAGES)
    if op == "replace":
        return alone.replace(message)
    if op != "retract":
        return alone.publish(message)
    try:
        return alone.retract(pa.table({"id": [row["id"]]}))
    except nc.UnknownMessage:
        return UPDATES.empty_table()


def in_order(batch):
    """Return the rows of a batch by time, those without one first; of the same time, edges, then subscriptions."""
    sources = {"subscription": batch.subscriptions, "message": batch.messages}
    if batch.edges is not None:
        sources = {"edge": batch.edges, **sources}
    rows = [(source, row) for source, some in sources.items() for row in some.to_pylist()]
    return sorted(rows, key=lambda pair: BEGIN if pair[1]["at"] is None else pair[1]["at"])  # stable


def counted(tables):
    """Return updates as a multiset."""
    return Counter(key(row) for updates in tables for row in updates.to_pylist())


def key(row):
    names = ("seq", "subscription", "message", "change", "score", *(("body",) if "body" in row else ()))
    return tuple(row[name] for name in names)
