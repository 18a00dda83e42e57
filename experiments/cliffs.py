"""Question: which input makes it fall over?

    boolean ... social  what an adversary or a city centre sends, beside the uniform workload: subscriptions at one
                        point or with one word, k = 1,000, long texts, messages at one point, bursts of copies, one
                        place or one user with a large share, the statistics of a recorded stream
    expiry              a whole window that expires at once, and messages after a silence
    first               messages right after subscribing with k = 1,000, beside those after a whole window
    subscribing         a subscription, into windows of different sizes
    deletes             subscriptions that are all the same, and different ones
    results             a result that is looked up in the window
    pauses              the longest call while an index grows to millions of subscriptions

Each row has an engine of its own with one worker. Times are those of the processor. A row is given up after some
seconds, and says how many subscriptions and messages it had until then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter, process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import nearcast as nc
from experiments.question import Question, Row, report_progress, scaled
from nearcast.social import SocialGraph
from nearcast.workload import Community, Workload, make

MESSAGES = 10_000
SIZES = {"social": (20_000, 20_000)}
"""Kind to subscriptions and window, where these are not the usual ones, since filling them takes long."""
_SIZES = 100_000, 50_000
KINDS = ("boolean", "similarity", "topk", "nearest", "social")
_BATCH, _CALL = 250, 1_000
_SETUP_S, _MEASURE_S = 15.0, 4.0  # seconds after which subscribing, and publishing, are given up
_KS = {"topk": 20, "nearest": 10, "social": 10}
_LARGE_K = 1_000
_LONG_TEXT = 300
_COPIES = 500  # of a message in a burst
_FRIENDS_PLACES = 10_000
_SEED = 1
Change = Callable[[pa.Table, Workload], pa.Table]


@dataclass(frozen=True)
class Case:
    """One kind of input."""

    name: str
    kinds: tuple[str, ...] = KINDS
    subscriptions: Change | None = None
    """Changes the subscriptions of the uniform workload."""
    messages: Change | None = None
    """Changes its messages."""
    k: int | None = None
    workload: str = "tweets"


# -- changes of the uniform workload --------------------------------------------------------------------------------


def _with(table: pa.Table, **columns: Any) -> pa.Table:
    for name, values in columns.items():
        at = table.column_names.index(name)
        table = table.set_column(at, table.schema.field(name), pa.array(values, table.schema.field(name).type))
    return table


def _center(workload: Workload) -> tuple[float, float]:
    """Return the centre of the largest city."""
    xs, ys = workload.cities.centres(workload.seed)
    return float(xs[0]), float(ys[0])


def _at_one_point(table: pa.Table, workload: Workload) -> pa.Table:
    x, y = _center(workload)
    if "xmin" in table.column_names and table["xmin"].null_count == 0:  # boxes
        return _with(table, **{name: np.full(len(table), value) for name, value in _box(x, y).items()})
    return _with(table, x=np.full(len(table), x), y=np.full(len(table), y))


def _box(x: float, y: float) -> dict[str, float]:
    return {"xmin": x - 0.2, "ymin": y - 0.2, "xmax": x + 0.2, "ymax": y + 0.2}


def _of_one_word(table: pa.Table, workload: Workload) -> pa.Table:
    return _with(table, keywords=[workload.terms()[0].as_py()] * len(table))


def _half_with_one_word(table: pa.Table, workload: Workload) -> pa.Table:
    word = workload.terms()[0].as_py()
    texts = [sorted({*text, word}) if i % 2 else text for i, text in enumerate(table["text"].to_pylist())]
    return _with(table, text=texts)


def _long(table: pa.Table, workload: Workload) -> pa.Table:
    rng = np.random.default_rng(len(table))
    n = len(table) * _LONG_TEXT
    words = workload.terms().take(pa.array(workload.words.draw(rng.random(n))))
    offsets = np.arange(0, n + 1, _LONG_TEXT, dtype=np.int32)
    return _with(table, text=pa.ListArray.from_arrays(offsets, words))


def _copied(table: pa.Table, workload: Workload) -> pa.Table:
    """Return bursts of messages that differ in their ids only."""
    rows = pa.array(np.arange(len(table)) // _COPIES * _COPIES)
    return _with(table, **{name: table[name].take(rows) for name in ("x", "y", "text", "place")})


def _half_of_one_place(table: pa.Table, workload: Workload) -> pa.Table:
    """Return messages of which every other one is of the place of the first."""
    rows = np.arange(len(table))
    rows[1::2] = 0
    return _with(table, **{name: table[name].take(pa.array(rows)) for name in ("x", "y", "place")})


UNIFORM = Case("uniform")
CASES = (
    UNIFORM,
    Case("a recorded stream's statistics", workload="incidents"),
    Case("all subscriptions at one point", subscriptions=_at_one_point),
    Case("all subscriptions with one word", subscriptions=_of_one_word, messages=_half_with_one_word),
    Case("k = 1,000", ("topk", "nearest", "social"), k=_LARGE_K),
    Case("messages of 300 terms", messages=_long),
    Case("all messages at one point", ("boolean", "similarity", "topk", "nearest"), messages=_at_one_point),
    Case("bursts of copies of a message", messages=_copied),
    Case("one place with half of the messages", ("social",), messages=_half_of_one_place),
    Case("a user with 10,000 places", ("social",)),
)


# -- engines --------------------------------------------------------------------------------------------------------


class Bench:
    """The uniform workload or a change of it, and an engine for it."""

    def __init__(self, kind: str, case: Case, *, subscriptions: int, window: Any) -> None:
        self.kind, self.case, self.n, self.window = kind, case, subscriptions, window
        self.workload = make(case.workload, seed=_SEED)
        self.community = self._community() if kind == "social" else None
        self.engine = nc.Engine(
            space=self.workload.space(max_distance=500_000.0),
            vocabulary=self.workload.vocabulary(),
            window=None if kind == "nearest" else window,
            social=self.community.graph if self.community else None,
        )
        self._next = 0

    def _community(self) -> Community:
        community = self.workload.social(self.n)
        if "user with" not in self.case.name:
            return community
        more = [("u0", f"p{i}") for i in range(min(_FRIENDS_PLACES, community.places))]
        return replace(community, graph=SocialGraph({*community.graph.edges(), *more}))

    def subscribe(self, seconds: float = _SETUP_S) -> tuple[int, float]:
        """Subscribe until all are there or the time is over; return how many, and seconds per subscription."""
        tables = self.workload.subscriptions(
            self.kind, self.n, k=self.case.k or _KS.get(self.kind), community=self.community, block=_CALL
        )
        n, spent, end = 0, 0.0, perf_counter() + seconds
        for table in tables:
            if self.case.subscriptions is not None:
                table = self.case.subscriptions(table, self.workload)
            start = process_time()
            self.engine.subscribe(table)
            spent += process_time() - start
            n += len(table)
            if perf_counter() > end:
                break
        return n, spent / n

    def batches(self, n: int, size: int = _BATCH) -> Iterator[pa.Table]:
        """Yield the next messages of the stream."""
        tables = self.workload.messages(n, start=self._next, community=self.community)
        self._next += n
        for table in tables:
            if self.case.messages is not None:
                table = self.case.messages(table, self.workload)
            for start in range(0, len(table), size):
                yield table.slice(start, size)

    def publish(self, batches: Iterable[pa.Table], seconds: float = _MEASURE_S) -> Row:
        """Publish until the time is over; return what it cost."""
        before, end = self.engine.stats(), perf_counter() + seconds
        n, terms, updates, spent, longest = 0, 0, 0, 0.0, 0.0
        for batch in batches:
            terms += pc.sum(pc.list_value_length(batch["text"])).as_py()
            start = process_time()
            updates += len(self.engine.publish(batch))
            took = process_time() - start
            spent, longest, n = spent + took, max(longest, took), n + len(batch)
            if perf_counter() > end:
                break
        after = self.engine.stats()
        work = {name: (getattr(after, name) - getattr(before, name)) / n for name in ("visited", "verified")}
        return {
            "messages": n,
            "terms_per_message": terms / n,
            "updates_per_message": updates / n,
            "us_per_message": spent / n * 1e6,
            "us_per_update": spent / max(updates, 1) * 1e6,
            "longest_ms": longest * 1e3,
            **work,
        }


def _warm_up(kind: str, case: Case) -> None:
    """Do everything once with a few rows, so that all kernels are compiled."""
    bench = Bench(kind, case, subscriptions=200, window=nc.CountWindow(400))
    bench.publish(bench.batches(400))
    bench.subscribe()
    bench.publish(bench.batches(1_000))


# -- kinds ----------------------------------------------------------------------------------------------------------


def measure_kind(kind: str, scale: float) -> list[Row]:
    """Publish every case of a kind, and compare it with the uniform workload."""
    rows: list[Row] = []
    for case in CASES:
        if kind not in case.kinds:
            continue
        _warm_up(kind, case)
        n, size = (scaled(usual, scale) for usual in SIZES.get(kind, _SIZES))
        bench = Bench(kind, case, subscriptions=n, window=nc.CountWindow(size))
        if kind != "nearest":  # its results begin empty
            bench.publish(bench.batches(size), _SETUP_S)
        n, seconds = bench.subscribe()
        if kind == "nearest":
            bench.publish(bench.batches(size), _SETUP_S)
        cost = bench.publish(bench.batches(scaled(MESSAGES, scale, least=2_000)))
        rows.append(
            {"kind": kind, "case": case.name, "subscriptions": n, "window": size, "us_to_subscribe": seconds * 1e6}
            | cost
        )
        rows[-1] |= _ratios(rows[-1], rows[0])
        report_progress(f"  {rows[-1]}")
    return rows


def _ratios(row: Row, uniform: Row) -> Row:
    """Return how much more a message, an update, and a term cost than on the uniform workload; the least one counts.

    A message with many results or terms may cost more in the same proportion, and one with few is no cheaper.
    """
    by_message = row["us_per_message"] / uniform["us_per_message"]
    updates, terms = (
        max(row[name], 1e-9) / max(uniform[name], 1e-9) for name in ("updates_per_message", "terms_per_message")
    )
    ratios = {"per_message": by_message, "per_update": by_message / updates, "per_term": by_message / terms}
    return ratios | {"ratio": min(ratios.values())}


# -- the rest -------------------------------------------------------------------------------------------------------


def measure_expiry(scale: float) -> list[Row]:
    """Let time pass: until a whole window has expired in one step, and until most of one has."""
    rows: list[Row] = []
    for kind in ("topk", "social"):
        _warm_up(kind, UNIFORM)
        n_subscriptions, size = (scaled(usual, scale) for usual in SIZES.get(kind, _SIZES))
        window = nc.TimeWindow(size / make("tweets").rate)
        first = len(rows)
        for case, share in (("no silence", 0.0), ("after a silence of 0.9 windows", 0.9), ("a whole window", 1.0)):
            bench = Bench(kind, UNIFORM, subscriptions=n_subscriptions, window=window)
            bench.publish(bench.batches(size), _SETUP_S)
            n, _ = bench.subscribe()
            bench.publish(bench.batches(2_000))
            later = int(share * size * 1_000)
            batches = [_delayed(batch, later) for batch in bench.batches(scaled(MESSAGES, scale, least=2_000))]
            cost = bench.publish([batches[0].slice(0, 1)] if share == 1.0 else batches)
            rows.append({"kind": kind, "case": case, "subscriptions": n, "window": size} | cost)
            rows[-1] |= _ratios(rows[-1], rows[first])
            report_progress(f"  {rows[-1]}")
    return rows


def _delayed(batch: pa.Table, by_us: int) -> pa.Table:
    at = batch["at"].cast(pa.int64()).to_numpy() + by_us
    return _with(batch, at=pa.array(at).cast(batch.schema.field("at").type))


def measure_first(scale: float) -> list[Row]:
    """Publish with k = 1,000, from the first message on until the window has passed."""
    rows: list[Row] = []
    size = scaled(20_000, scale)
    for kind in ("topk", "social"):
        case = Case("k = 1,000", k=_LARGE_K, workload="incidents")
        _warm_up(kind, case)
        bench = Bench(kind, case, subscriptions=scaled(5_000, scale, least=300), window=nc.CountWindow(size))
        bench.publish(bench.batches(size), _SETUP_S)
        n, _ = bench.subscribe()
        first, last = bench.batches(size // 10), bench.batches(size // 10)
        costs = [bench.publish(first), bench.publish(bench.batches(size), 2 * _MEASURE_S), bench.publish(last)]
        for name, cost in zip(("first", "between", "settled"), costs, strict=True):
            rows.append({"kind": kind, "case": name, "subscriptions": n, "window": size} | cost)
            rows[-1]["ratio"] = cost["us_per_message"] / costs[-1]["us_per_message"]
            report_progress(f"  {rows[-1]}")
    return rows


def measure_subscribing(scale: float) -> list[Row]:
    """Subscribe into windows of different sizes, with words that are mostly frequent."""
    rows: list[Row] = []
    for kind in ("topk", "social"):
        for name, messages in (("a recorded stream", None), ("all at one point", _at_one_point)):
            case = Case(name, workload="incidents", messages=messages if kind == "topk" else None)
            if kind == "social" and messages is not None:
                continue
            _warm_up(kind, case)
            first = len(rows)
            for size in (5_000, 50_000, 150_000):
                n = scaled(2_000, scale, least=300)
                bench = Bench(kind, case, subscriptions=n, window=nc.CountWindow(scaled(size, scale)))
                bench.publish(bench.batches(scaled(size, scale), 4_096), 2 * _SETUP_S)
                bench.n = min(n, 200)
                bench.subscribe()  # makes arrays
                bench.n = n
                n, seconds = bench.subscribe(_MEASURE_S)
                row = {"kind": kind, "case": name, "window": scaled(size, scale), "subscriptions": n}
                rows.append(row | {"us_to_subscribe": seconds * 1e6})
                rows[-1]["ratio"] = rows[-1]["us_to_subscribe"] / rows[first]["us_to_subscribe"]
                report_progress(f"  {rows[-1]}")
    return rows


def measure_deletes(scale: float) -> list[Row]:
    """Delete some of many subscriptions that are all the same."""
    rows: list[Row] = []
    for kind in KINDS:
        first = len(rows)
        for name, changes in (("uniform", ()), ("all the same", (_at_one_point, _of_one_word))):

            def change(table: pa.Table, workload: Workload, changes: tuple[Change, ...] = changes) -> pa.Table:
                for one in changes:
                    table = one(table, workload)
                return table

            case = Case(name, subscriptions=change)
            _warm_up(kind, case)
            size = 1_000
            n = scaled(SIZES.get(kind, _SIZES)[0], scale)
            bench = Bench(kind, case, subscriptions=n, window=nc.CountWindow(size))
            bench.publish(bench.batches(size))
            n, to_subscribe = bench.subscribe()
            tables = bench.workload.subscriptions(kind, n, community=bench.community)
            ids = pa.concat_tables(tables).combine_chunks().select(["id"])
            ids = ids.take(pa.array(np.random.default_rng(3).permutation(n)))
            done, spent, end = 0, 0.0, perf_counter() + _MEASURE_S
            while done < n // 2 and perf_counter() < end:
                start = process_time()
                bench.engine.unsubscribe(ids.slice(done, _BATCH))
                spent += process_time() - start
                done += len(ids.slice(done, _BATCH))
            row = {"kind": kind, "case": name, "subscriptions": n, "deleted": done}
            rows.append(row | {"us_to_subscribe": to_subscribe * 1e6, "us_to_delete": spent / done * 1e6})
            rows[-1]["ratio"] = rows[-1]["us_to_delete"] / rows[first]["us_to_delete"]
            report_progress(f"  {rows[-1]}")
    return rows


def measure_results(scale: float) -> list[Row]:
    """Look results up in the window."""
    rows: list[Row] = []
    for kind in ("boolean", "similarity"):
        for workload in ("tweets", "incidents"):
            size = scaled(_SIZES[1], scale)
            case = Case("results", workload=workload)
            bench = Bench(kind, case, subscriptions=100, window=nc.CountWindow(size))
            bench.subscribe()
            bench.publish(bench.batches(size, 4_096), _SETUP_S)
            tables = bench.workload.subscriptions(kind, 100)
            ids = pa.concat_tables(tables)["id"].to_pylist()
            bench.engine.results(ids[0])  # compiles
            milliseconds, found, end = [], 0, perf_counter() + _MEASURE_S
            for id_ in ids:
                start = process_time()
                found += len(bench.engine.results(id_))
                milliseconds.append((process_time() - start) * 1e3)
                if perf_counter() > end:
                    break
            row = {"kind": kind, "workload": workload, "window": size, "calls": len(milliseconds)}
            mean, most = float(np.mean(milliseconds)), max(milliseconds)
            rows.append(row | {"results": found / len(milliseconds), "mean_ms": mean, "longest_ms": most})
            report_progress(f"  {rows[-1]}")
    return rows


_GROWTH = {"boolean": 5_000_000, "nearest": 1_000_000, "topk": 300_000}


def measure_pauses(scale: float) -> list[Row]:
    """Note the longest call while subscriptions become many, and while messages are published to them."""
    rows: list[Row] = []
    for kind, n in _GROWTH.items():
        _warm_up(kind, UNIFORM)
        size = scaled(_SIZES[1], scale)
        bench = Bench(kind, UNIFORM, subscriptions=scaled(n, scale), window=nc.CountWindow(size))
        if kind == "topk":
            bench.publish(bench.batches(size), _SETUP_S)
        calls, end = [], perf_counter() + 6 * _SETUP_S
        for table in bench.workload.subscriptions(kind, bench.n, k=_KS.get(kind), block=_CALL):
            start = process_time()
            bench.engine.subscribe(table)
            calls.append((process_time() - start) * 1e3)
            if perf_counter() > end:
                break
        published, end = [], perf_counter() + _MEASURE_S
        for batch in bench.batches(size, 100):
            start = process_time()
            bench.engine.publish(batch)
            published.append((process_time() - start) * 1e3)
            if perf_counter() > end:
                break
        for case, times, per_call in (("subscribing", calls, _CALL), ("publishing", published, 100)):
            row = {"kind": kind, "case": case, "subscriptions": len(calls) * _CALL, "per_call": per_call}
            middle, high = (float(value) for value in np.percentile(times, [50, 99]))
            rows.append(row | {"calls": len(times), "p50_ms": middle, "p99_ms": high, "longest_ms": max(times)})
            report_progress(f"  {rows[-1]}")
    return rows


QUESTION = Question(
    "cliffs",
    "Which input makes it fall over?",
    {
        **{kind: partial(measure_kind, kind) for kind in KINDS},
        "expiry": measure_expiry,
        "first": measure_first,
        "subscribing": measure_subscribing,
        "deletes": measure_deletes,
        "results": measure_results,
        "pauses": measure_pauses,
    },
    minutes=12,
)
