"""Tables with columns of every Arrow type: an engine takes them as it takes objects, or refuses them and stays as it was."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import nearcast as nc
from effort import search
from fuzz.arrow_arrays import columns, tables
from nearcast.testing import strategies

N = 4
TIME = pa.timestamp("us", tz="UTC")
MESSAGES = {
    "id": (pa.string(), ["m0", "m1", "m2", "m3"]),
    "x": (pa.float64(), [0.0, 2.0, 8.0, 4.0]),
    "y": (pa.float64(), [0.0, 4.0, 8.0, 4.0]),
    "text": (pa.string(), ["a b", "c", "", "f a a"]),
    "at": (TIME, [1, 2, 3, 4]),
    "place": (pa.string(), ["p0", None, "p9", "p1"]),
}
SUBSCRIPTIONS = {
    "id": (pa.string(), ["s0", "s1", "s2", "s3"]),
    "kind": (pa.string(), ["topk", "boolean", "similarity", "social"]),
    "op": (pa.string(), ["subscribe"] * N),
    "x": (pa.float64(), [0.0, 2.0, 8.0, 4.0]),
    "y": (pa.float64(), [0.0, 4.0, 8.0, 4.0]),
    "xmin": (pa.float64(), [0.0] * N),
    "ymin": (pa.float64(), [0.0] * N),
    "xmax": (pa.float64(), [4.0] * N),
    "ymax": (pa.float64(), [8.0] * N),
    "keywords": (pa.string(), ["a b", "a OR (b AND c)", "c", "f"]),
    "k": (pa.int32(), [1, 2, 3, 4]),
    "alpha": (pa.float64(), [0.5] * N),
    "delta": (pa.float64(), [0.5] * N),
    "tau": (pa.float64(), [0.5] * N),
    "user": (pa.string(), ["u0", "u1", "u2", "u3"]),
}
EDGES = {"user": (pa.string(), ["u0", "u1", "new", "u2"]), "place": (pa.string(), ["p4", "p0", "p1", "other"])}
FIRST = [
    nc.TopKSubscription("first", location=(2, 4), keywords="a b", k=2, alpha=0.5),
    nc.BooleanSubscription("b", region=nc.Box(0, 0, 8, 8), keywords="a OR c"),
    nc.SocialSubscription("social", location=(2, 4), keywords="a f", k=2, user="u0"),
]


def engine(window):
    made = nc.Engine(
        space=strategies.PLANE,
        vocabulary=strategies.vocabulary(),
        social=strategies.social_graph(),
        window=window,
        limits=nc.Limits(text_bytes=500, terms=5, k=100, branches=4, id_bytes=100),
    )
    made.subscribe(FIRST)
    made.publish([nc.Message("m", (2, 4), "a", at=1.0, place="p0")])
    return made


def state_of(engine):
    """Return all that a call could change."""
    stats = engine.stats()
    ids = sorted((str(one.id), repr(one)) for one in engine.subscriptions())
    results = [(id_, engine.results(id_)) for id_ in ("first", "social")]
    return stats.messages, stats.late, stats.window, stats.subscriptions, stats.updates, ids, results


def applied(engine, call):
    """Return whether a call was applied; if it was refused, nothing may have changed."""
    before = state_of(engine)
    try:
        call()
    except nc.NearcastError as error:
        assert state_of(engine) == before, f"half-applied: {error}"
        assert len(str(error)) < 2_000, "an error does not repeat long input"
        return False
    return True


WINDOWS = st.sampled_from([nc.CountWindow(3), nc.TimeWindow(9)])
SIZES = st.sampled_from([1, 2, 4, 4, 0])


def chunked(table, at):
    """Return a table whose columns have two chunks."""
    return pa.concat_tables([table.slice(0, at), table.slice(at)])


@search(usual=60)
@given(st.data(), WINDOWS, SIZES)
def test_a_table_of_messages_is_published_or_refused_as_a_whole(data, window, n):
    table = data.draw(tables(MESSAGES, n))
    if n > 1 and data.draw(st.booleans()):
        table = chunked(table, 1)
    here, twin = engine(window), engine(window)
    form = data.draw(st.sampled_from([{}, {"grouped": True}, {"conflate": True}]))
    if applied(here, lambda: here.publish(table, **form)):
        assert here.stats().messages == 1 + n
        objects = as_objects(table)
        if objects is not None:
            twin.publish(objects, conflate=form.get("conflate", False))
            assert state_of(here) == state_of(twin), "a table means what its rows mean as objects"


def as_objects(table):
    """Return the messages of a table as objects; None if a time has no exact equivalent."""
    if "at" in table.column_names and table.schema.field("at").type != TIME:
        return None
    if "at" in table.column_names:
        table = table.set_column(table.column_names.index("at"), "at", table["at"].cast(pa.int64()))
    rows = table.to_pylist()
    return [
        nc.Message(
            row["id"],
            (row["x"], row["y"]),
            row["text"],
            None if row.get("at") is None else row["at"] / 1e6,
            row.get("place"),
        )
        for row in rows
    ]


@search(usual=60)
@given(st.data(), SIZES)
def test_a_table_of_subscriptions_is_taken_or_refused_as_a_whole(data, n):
    table = data.draw(tables(SUBSCRIPTIONS, n, odd=3))
    if n > 1 and data.draw(st.booleans()):
        table = chunked(table, 1)
    here = engine(nc.CountWindow(3))
    if applied(here, lambda: here.subscribe(table)):
        ids = {str(id_) for id_ in table["id"].to_pylist()}
        assert {str(one.id) for one in here.subscriptions()} == ids | {one.id for one in FIRST}
        here.publish([nc.Message("later", (2, 4), "a b c", at=2.0, place="p0")])
        for id_ in table["id"].to_pylist():
            here.results(id_)


@search(usual=25)
@given(st.data(), SIZES)
def test_a_table_of_ids_or_edges_is_applied_or_refused_as_a_whole(data, n):
    here = engine(nc.CountWindow(3))
    ids = pa.table({"id": data.draw(columns(n) | st.just(pa.array(["first", "b", "social", "b"][:n])))})
    edges = data.draw(tables(EDGES, n))
    for call in (here.add_edges, here.remove_edges):
        applied(here, lambda call=call: call(edges))
    if applied(here, lambda: here.unsubscribe(ids)):
        assert len(here) == len(FIRST) - len(set(ids["id"].to_pylist()))


@search(usual=20)
@given(st.data())
def test_tables_with_columns_that_occur_twice_are_refused(data):
    here = engine(nc.CountWindow(3))
    for good, call in ((MESSAGES, here.publish), (SUBSCRIPTIONS, here.subscribe)):
        table = data.draw(tables(good, 2, odd=1))
        name = data.draw(st.sampled_from(sorted(good)))
        twice = table.append_column(name, data.draw(columns(2)))
        applied(here, lambda call=call, twice=twice: call(twice))


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=5),
    st.lists(st.text(max_size=3) | st.integers() | st.none(), max_size=3), st.tuples(st.floats(), st.floats()),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2), st.datetimes(), st.complex_numbers(),
    st.decimals(), st.fractions(), st.dates(), st.uuids(), st.just(object()), st.sampled_from([1 << 64, 10**400, -(10**400)]),
)  # fmt: skip
NAMES = st.sampled_from(
    ["id", "location", "text", "at", "place", "x", "y", "kind", "region", "keywords", "k", "alpha", "user", "tau"]
)


@search(usual=50)
@given(
    st.lists(st.dictionaries(NAMES | st.text(max_size=3), VALUES, max_size=3), min_size=1, max_size=2),
    st.sampled_from(["boolean", "similarity", "topk", "nearest", "social"]),
)
def test_dicts_are_taken_or_refused_as_a_whole(changes, kind):
    here = engine(nc.TimeWindow(9))
    message = {"id": "x", "location": (2, 4), "text": "a", "at": 1.5, "place": "p0"}
    given_fields = {"keywords": "a", "location": (2, 4), "k": 1, "alpha": 0.5, "delta": 0.5, "tau": 0.5, "user": "u0"}
    own = {name: value for name, value in given_fields.items() if name in nc.model.find_kind(kind).field_types()}
    if kind == "boolean":
        own["region"] = nc.Box(0, 0, 8, 8)
    applied(here, lambda: here.publish([message | change for change in changes]))
    applied(here, lambda: here.subscribe([{"id": "s", "kind": kind, **own, **change} for change in changes]))
    first = next(iter(changes[0].values()), None)
    applied(here, lambda: here.unsubscribe(first))
    applied(here, lambda: here.add_edges(first))
    applied(here, lambda: here.advance(first))
