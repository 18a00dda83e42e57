"""Question: what do filters cost, and what do they save?

    regions      boxes, circles and polygons of 8 to 200 points, a third each, against boxes of the same areas
    attributes   saved searches with a category of 200 and a range of prices, against the same words and boxes
                 whose updates are filtered afterwards
    places       kinds that also find subscriptions without a word, with a category of 200, against the same where the
                 index does not know it
    topk         a category that one message in 10, 1,000 or 10,000 has, against no filter
    expressions  one subscription in five with NOT or a phrase, against none

Variants take turns on the same messages, batch by batch, in one process; the ratio of their total times counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import shapely

import nearcast as nc
from experiments.question import Question, Row, report_progress, scaled
from nearcast.index import find_index, has_index, register
from nearcast.workload import Workload, make

_BATCH, _SMALL_BATCH = 1_000, 100
_SIDES = ("xmin", "ymin", "xmax", "ymax")
_METRES_PER_DEGREE = 111_195.0
_WORKLOAD_SEED = 1
Floats = npt.NDArray[np.float64]
Variant = tuple[nc.Engine, Callable[[pa.Table], pa.Table]]
"""An engine, and what is done with its updates."""


def _all_updates(updates: pa.Table) -> pa.Table:
    return updates


def _in_turns(variants: dict[str, Variant], batches: list[pa.Table], **facts: Any) -> list[Row]:
    """Publish the same batches to all variants in turn; return the figures of each, with its share of the first."""
    seconds, updates = dict.fromkeys(variants, 0.0), dict.fromkeys(variants, 0)
    before = {name: engine.stats() for name, (engine, _) in variants.items()}
    for i, batch in enumerate(batches):
        names = list(variants)
        for name in names[i % len(names) :] + names[: i % len(names)]:
            engine, finish = variants[name]
            start = perf_counter()
            updates[name] += finish(engine.publish(batch)).num_rows
            seconds[name] += perf_counter() - start
    n, rows, base = sum(map(len, batches)), [], seconds[next(iter(variants))]
    for name, (engine, _) in variants.items():
        work, earlier = engine.stats(), before[name]
        row = {
            "variant": name,
            "messages": n,
            "messages_per_second": n / seconds[name],
            "updates": updates[name],
            "visited": (work.visited - earlier.visited) / n,
            "verified": (work.verified - earlier.verified) / n,
            "cost_ratio": seconds[name] / base,
            **facts,
        }
        report_progress(f"  {row}")
        rows.append(row)
    return rows


def _batches(tables: Iterator[pa.Table], size: int = _BATCH) -> list[pa.Table]:
    return [table.slice(i, size) for table in tables for i in range(0, len(table), size)]


def _subscribed(engine: nc.Engine, tables: list[pa.Table], what: str) -> nc.Engine:
    start = perf_counter()
    for table in tables:
        engine.subscribe(table)
    report_progress(f"  {what}: {sum(map(len, tables))} subscriptions in {perf_counter() - start:.1f} s")
    return engine


def _warmed(variants: dict[str, Variant], batches: list[pa.Table]) -> list[pa.Table]:
    """Publish the first batches to all variants; return the others."""
    for batch in batches[:5]:
        for engine, _ in variants.values():
            engine.publish(batch)
    return batches[5:]


def _tables(workload: Workload, kind: str, n: int, **options: Any) -> list[pa.Table]:
    return list(workload.subscriptions(kind, n, **options))


# -- regions


def measure_regions(scale: float) -> list[Row]:
    """Compare boxes, circles and polygons with boxes of equal areas."""
    workload = make("tweets", seed=_WORKLOAD_SEED)
    boxes = _tables(workload, "boolean", scaled(1_000_000, scale))
    rng = np.random.default_rng(5)
    mixed = [_with_regions(table, rng) for table in boxes]
    space, vocabulary = workload.space(), workload.vocabulary()
    variants: dict[str, Variant] = {
        "boxes": (_subscribed(nc.Engine(space=space, vocabulary=vocabulary), boxes, "boxes"), _all_updates),
        "mixed": (_subscribed(nc.Engine(space=space, vocabulary=vocabulary), mixed, "mixed"), _all_updates),
    }
    batches = _warmed(variants, _batches(workload.messages(scaled(100_000, scale, least=20_000))))
    return _in_turns(variants, batches, subscriptions=sum(map(len, boxes)))


def _with_regions(table: pa.Table, rng: np.random.Generator) -> pa.Table:
    """Return a table in which a third of the boxes are circles, and a third polygons, of the same areas."""
    sides = np.column_stack([table[name].to_numpy() for name in _SIDES])
    centers, sizes = (sides[:, :2] + sides[:, 2:]) / 2, sides[:, 2:] - sides[:, :2]
    shape = np.arange(len(table)) % 3
    areas_m2 = sizes.prod(axis=1) * np.cos(np.radians(centers[:, 1])) * _METRES_PER_DEGREE**2
    polygons = np.full(len(table), None, object)
    polygons[shape == 2] = _polygons(centers[shape == 2], sizes[shape == 2], rng)
    for i, name in enumerate(_SIDES):
        table = _with_column(table, name, pa.array(sides[:, i], mask=shape != 0))
    for i, name in enumerate(("x", "y")):
        table = _with_column(table, name, pa.array(centers[:, i], mask=shape != 1))
    table = _with_column(table, "radius", pa.array(np.sqrt(areas_m2 / np.pi), mask=shape != 1))
    return _with_column(table, "region", pa.array(polygons, pa.binary()))


def _polygons(centers: Floats, sizes: Floats, rng: np.random.Generator) -> Any:
    """Return star-shaped polygons of 8 to 200 points as WKB, with the areas of boxes of some sizes."""
    n_points = rng.integers(8, 201, len(centers))
    owners = np.repeat(np.arange(len(centers)), n_points)
    places = np.arange(len(owners)) - np.repeat(np.cumsum(n_points) - n_points, n_points)
    angles = (places + rng.uniform(-0.4, 0.4, len(owners))) * (2 * np.pi / n_points[owners])
    stars = np.column_stack([np.cos(angles), np.sin(angles)]) * rng.uniform(0.7, 1.3, (len(owners), 1))
    areas = shapely.area(shapely.polygons(shapely.linearrings(stars, indices=owners)))
    points = centers[owners] + stars * (sizes / np.sqrt(areas)[:, None])[owners]
    return shapely.to_wkb(shapely.polygons(shapely.linearrings(points, indices=owners)))


def _with_column(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)


# -- attributes

_ATTRIBUTES = {"category": str, "price": float}


def measure_attributes(scale: float) -> list[Row]:
    """Compare saved searches with two attributes with the same words, filtered afterwards."""
    workload = make("tweets", seed=_WORKLOAD_SEED)
    n, rng = scaled(1_000_000, scale), np.random.default_rng(7)
    plain = _saved_searches(workload, n)
    categories, lows = rng.integers(0, 200, n), np.round(rng.gamma(2.0, 100.0, n), 2)
    highs = np.round(lows * rng.uniform(1.2, 3.0, n), 2)
    conditions = [
        f"category = 'c{c}' AND price BETWEEN {low} AND {high}"
        for c, low, high in zip(categories.tolist(), lows.tolist(), highs.tolist(), strict=True)
    ]
    filtered, at = [], 0
    for table in plain:
        filtered.append(_with_column(table, "where", pa.array(conditions[at : at + len(table)])))
        at += len(table)
    space, vocabulary = workload.space(), workload.vocabulary()
    with_where = nc.Engine(space=space, vocabulary=vocabulary, attributes=_ATTRIBUTES)
    without = nc.Engine(space=space, vocabulary=vocabulary)
    messages = [
        _with_attributes(batch, rng) for batch in _batches(workload.messages(scaled(50_000, scale, least=20_000)))
    ]
    wanted = _Afterwards(pa.concat_tables(plain)["id"], categories, lows, highs, pa.concat_tables(messages))
    variants: dict[str, Variant] = {
        "afterwards": (_subscribed(without, plain, "plain"), wanted.select),
        "where": (_subscribed(with_where, filtered, "where"), _all_updates),
    }
    return _in_turns(variants, _warmed(variants, messages), subscriptions=n)


def _saved_searches(workload: Workload, n: int) -> list[pa.Table]:
    """Return boolean subscriptions with one or two frequent words."""
    made = _tables(workload, "boolean", n)
    frequent = np.array(workload.terms().slice(0, 1_000).to_pylist())
    rng, searches = np.random.default_rng(11), []
    for table in made:
        ranks = np.minimum(rng.zipf(1.3, (len(table), 2)), len(frequent)) - 1
        both = rng.random(len(table)) < 0.5
        words = [
            f"{frequent[a]} AND {frequent[b]}" if two and a != b else str(frequent[a])
            for (a, b), two in zip(ranks.tolist(), both.tolist(), strict=True)
        ]
        searches.append(_with_column(table, "keywords", pa.array(words)))
    return searches


def _with_attributes(messages: pa.Table, rng: np.random.Generator, n_categories: int = 200) -> pa.Table:
    categories = [f"c{c}" for c in rng.integers(0, n_categories, len(messages)).tolist()]
    prices = np.round(rng.gamma(2.0, 150.0, len(messages)), 2)
    return messages.append_column("category", pa.array(categories)).append_column("price", pa.array(prices))


class _Afterwards:
    """Filters updates by the attributes of their messages, as a program would that has no filters."""

    def __init__(self, ids: pa.ChunkedArray, categories: Any, lows: Any, highs: Any, messages: pa.Table) -> None:
        self._rows = {id_: row for row, id_ in enumerate(ids.to_pylist())}
        self._categories, self._lows, self._highs = categories, lows, highs
        self._messages = {id_: row for row, id_ in enumerate(messages["id"].to_pylist())}
        self._held = np.array([int(name[1:]) for name in messages["category"].to_pylist()])
        self._prices = messages["price"].to_numpy()

    def select(self, updates: pa.Table) -> pa.Table:
        """Return the updates whose message fulfils the condition of their subscription."""
        rows = np.array([self._rows[id_] for id_ in updates["subscription"].to_pylist()], np.int64)
        held = np.array([self._messages[id_] for id_ in updates["message"].to_pylist()], np.int64)
        prices = self._prices[held]
        fits = (self._categories[rows] == self._held[held]) & (self._lows[rows] <= prices)
        return updates.filter(pa.array(fits & (prices <= self._highs[rows])))


# -- kinds that find subscriptions by place and by user

_BY_PLACE: dict[str, dict[str, int]] = {
    "similarity": {"subscriptions": 1_000_000, "messages": 4_000, "window": 1_000},
    "social": {"subscriptions": 100_000, "messages": 2_000, "window": 100_000},
}


def measure_places(scale: float) -> list[Row]:
    """Compare conditions by which an index finds subscriptions with those that are tested afterwards."""
    rows = []
    for kind, sizes in _BY_PLACE.items():
        workload = make("tweets", seed=_WORKLOAD_SEED)
        n, size = (scaled(sizes[name], scale) for name in ("subscriptions", "window"))
        n_messages = scaled(sizes["messages"], scale, least=500)
        community = workload.social(n) if kind == "social" else None
        rng = np.random.default_rng(19)
        tables = [
            _with_column(table, "where", pa.array([f"category = 'c{c}'" for c in rng.integers(0, 200, len(table))]))
            for table in _tables(workload, kind, n, k=10, community=community)
        ]
        options: dict[str, Any] = {
            "space": workload.space(max_distance=500_000.0),
            "vocabulary": workload.vocabulary(),
            "window": nc.CountWindow(size),
            "attributes": _ATTRIBUTES,
            "social": community.graph if community else None,
        }
        before = [_with_attributes(table, rng) for table in workload.messages(size, community=community)]
        variants: dict[str, Variant] = {}
        for name, index in (("afterwards", _without_facets(kind)), ("where", kind)):
            engine = nc.Engine(**options, index=index)
            for table in before:
                engine.publish(table)
            variants[f"{kind}, {name}"] = _subscribed(engine, tables, name), _all_updates
        later = workload.messages(n_messages + 5 * _SMALL_BATCH, start=size, community=community)
        batches = [_with_attributes(batch, rng) for batch in _batches(later, _SMALL_BATCH)]
        rows += _in_turns(variants, _warmed(variants, batches), subscriptions=n, window=size, kind=kind)
    return rows


def _without_facets(kind: str) -> str:
    """Return the name of the index of a kind that lists no subscription by its attributes."""
    name = f"{kind} without facets"
    if not has_index(name):
        entry = find_index(kind, kind)
        assert entry is not None
        register(entry._replace(name=name, most_facet_values=0))
    return name


# -- top-k


def measure_topk(scale: float) -> list[Row]:
    """Compare top-k subscriptions with a category to those without."""
    rows = []
    for one_in in (10, 1_000, 10_000):
        workload = make("tweets", seed=_WORKLOAD_SEED)
        n, size = scaled(300_000, scale), scaled(200_000, scale)
        rng = np.random.default_rng(13)
        plain = _tables(workload, "topk", n, k=20)
        filtered = [
            _with_column(
                table, "where", pa.array([f"category = 'c{c}'" for c in rng.integers(0, one_in, len(table)).tolist()])
            )
            for table in plain
        ]
        options: dict[str, Any] = {
            "space": workload.space(max_distance=500_000.0),
            "vocabulary": workload.vocabulary(),
            "window": nc.CountWindow(size),
            "attributes": _ATTRIBUTES,
        }
        variants: dict[str, Variant] = {}
        window = [_with_attributes(table, rng, one_in) for table in workload.messages(size)]
        for name, tables in (("unfiltered", plain), ("where", filtered)):
            engine = nc.Engine(**options)
            for table in window:
                engine.publish(table)
            variants[name] = _subscribed(engine, tables, name), _all_updates
        batches = [
            _with_attributes(batch, rng, one_in)
            for batch in _batches(workload.messages(scaled(30_000, scale, least=15_000), start=size))
        ]
        rows += _in_turns(variants, _warmed(variants, batches), subscriptions=n, window=size, one_in=one_in)
    return rows


# -- expressions


def measure_expressions(scale: float) -> list[Row]:
    """Compare expressions of which one in five has NOT or a phrase to those without."""
    workload = make("tweets", seed=_WORKLOAD_SEED)
    n, rng = scaled(1_000_000, scale), np.random.default_rng(17)
    plain = _tables(workload, "boolean", n)
    terms = np.array(workload.terms().slice(0, 2_000).to_pylist())
    rich = []
    for table in plain:
        keywords = table["keywords"].to_pylist()
        for row in range(0, len(keywords), 5):
            words = keywords[row].split()
            if row % 2 and "AND" in words:
                keywords[row] = '"' + " ".join(word for word in words if word != "AND") + '"'
            else:
                keywords[row] = f"({keywords[row]}) NOT {terms[int(rng.integers(0, len(terms)))]}"
        rich.append(_with_column(table, "keywords", pa.array(keywords)))
    space, vocabulary = workload.space(), workload.vocabulary()
    variants: dict[str, Variant] = {
        "plain": (_subscribed(nc.Engine(space=space, vocabulary=vocabulary), plain, "plain"), _all_updates),
        "rich": (_subscribed(nc.Engine(space=space, vocabulary=vocabulary), rich, "rich"), _all_updates),
    }
    tables = (
        _with_column(table, "text", pc.binary_join(table["text"], " "))
        for table in workload.messages(scaled(100_000, scale, least=20_000))
    )
    return _in_turns(variants, _warmed(variants, _batches(tables)), subscriptions=n)


QUESTION = Question(
    "filters",
    "What do filters cost, and what do they save?",
    {
        "regions": measure_regions,
        "attributes": measure_attributes,
        "places": measure_places,
        "topk": measure_topk,
        "expressions": measure_expressions,
    },
    minutes=15,
)
