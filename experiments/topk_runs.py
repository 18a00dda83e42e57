"""The cost of a message for top-k over a window, with arrivals and expiries timed apart.

    fill the window ── subscribe ── let the window pass once ── publish in batches (timed)

A setting is run twice. In a window by count every message that arrives pushes one out, so only both together can be
timed. In a window by time the messages come in bursts that share a timestamp, and nothing expires within a burst:

    burst          ...  i - n     ...     i - 1     i                        n bursts fill the window
    published                                       1 message │ the others
                                                        │          └── arrivals: nothing expires
                                                        └── expiries: all of burst i - n expires

The first message of a burst, published alone, is timed as the expiries, the others as the arrivals. The one arrival
that is timed with the expiries is 1 of `BURST`. A subscription that loses several messages of a burst gets their
updates at once, where a window by count gives them step by step. Times are those of the median batch, in microseconds
of processor time per message: with one worker nothing waits, and other work on the machine counts less.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from experiments.question import Row, report_progress, scaled
from nearcast import CountWindow, Engine, EngineConfig, TimeWindow
from nearcast.index import IndexEntry, find_index, register
from nearcast.window.buffered import BufferedResults
from nearcast.workload import make
from nearcast.workload.generator import Workload
from nearcast_baselines import BASELINES
from nearcast_baselines.ciq import CIQ

BURST = 500
"""Messages per batch."""
TIMED = 20
"""Batches that are timed."""


@dataclass(frozen=True)
class Setting:
    """One point of a plot."""

    subscriptions: int
    window: int
    k: int = 20
    keywords: int | None = None
    """The exact number of keywords; None stands for 1 to 5, as in the workload."""
    is_zipf: bool = False
    """Whether keywords follow the distribution of all terms instead of being those of one message."""
    index: str = "topk"


def default_setting(scale: float) -> Setting:
    """Return the setting of which every figure varies one thing."""
    return Setting(scaled(30_000, scale, least=2_000), scaled(30_000, scale, least=2_000))


def register_baselines() -> None:
    """Register the papers' indexes, CIQ with our buffers, and our index with the buffers of the papers."""
    for entry in BASELINES:
        register(entry)
    register(IndexEntry("ciq-cskyband", frozenset({"topk"}), CIQ, in_arena=False, result_store="cskyband"))
    ours = find_index("topk", "topk")
    assert ours is not None
    for result_store in ("skyband", "kmax"):
        register(ours._replace(name=f"topk-{result_store}", result_store=result_store))


def measure(setting: Setting) -> Row:
    """Return the times of one setting, its buffers and its re-evaluations."""
    return {**by_count(setting)[0], **by_time(setting)[0]}


def _in_turns(run: Callable[[Setting], Iterator[Row]]) -> Callable[..., list[Row]]:
    """Run several settings burst by burst in turns, so that other work on the machine slows all of them alike.

    A run yields after each burst and, last, its row. Rows are cached: figures share settings.
    """

    @cache
    def rows(*settings: Setting) -> list[Row]:
        for setting in settings:
            report_progress(f"topk, {run.__name__}: {setting}")
        *_, last = zip(*map(run, settings), strict=True)
        timing = {"batch": BURST, "batches": TIMED}
        return [asdict(setting) | timing | row for setting, row in zip(settings, last, strict=True)]

    return rows


@_in_turns
def by_count(setting: Setting) -> Iterator[Row]:
    """Time arrivals and expiries together in a window by count, and count updates, re-evaluations and buffers."""
    with _engine(setting, CountWindow(setting.window)) as engine:
        bursts = _start(engine, setting)
        buffers = buffers_of(engine)
        searches = buffers.searches
        seconds, updates = [], 0
        for burst in bursts:
            yield {}
            started = time.process_time()
            updates += engine.publish(burst).num_rows
            seconds.append(time.process_time() - started)
        n = TIMED * BURST
        yield {
            "both_us": _median_us(seconds),
            "updates": updates / n,
            "searches": (buffers.searches - searches) / n,
            "buffer": float(buffers.sizes.mean()),
        }


@_in_turns
def by_time(setting: Setting) -> Iterator[Row]:
    """Time arrivals and expiries apart in a window by time, and count what the index visits."""
    with _engine(setting, TimeWindow(seconds=setting.window // BURST)) as engine:
        bursts = _start(engine, setting)
        before = engine.stats().work["topk"]
        arrivals, expiries = [], []
        for burst in bursts:
            yield {}
            started = time.process_time()
            engine.publish(burst.slice(0, 1))
            between = time.process_time()
            engine.publish(burst.slice(1))
            arrivals.append(time.process_time() - between)
            expiries.append(between - started)
        work, n = engine.stats().work["topk"], TIMED * BURST
        yield {
            "arrivals_us": _median_us(arrivals),
            "expiries_us": _median_us(expiries),
            "visited": (work.visited - before.visited) / n,
            "candidates": (work.candidates - before.candidates) / n,
        }


def buffers_of(engine: Engine) -> BufferedResults:
    """Return the buffers of an engine with one shard."""
    result_store = engine._shards.shards[0].matchers["topk"]._result_store
    assert isinstance(result_store, BufferedResults)
    return result_store


def _median_us(seconds: list[float]) -> float:
    return float(np.median(seconds)) / BURST * 1e6


def _engine(setting: Setting, window: CountWindow | TimeWindow) -> Engine:
    workload = _workload()
    config = EngineConfig(
        space=workload.space(), vocabulary=workload.vocabulary(), index=setting.index, window=window
    )

    def sample() -> None:
        with Engine.from_config(replace(config, window=type(window)(2))) as engine:
            engine.subscribe(next(_subscriptions(setting)).slice(0, 100))
            for burst in _bursts(0, 4):
                engine.publish(burst)

    sample()
    return Engine.from_config(config)


def _start(engine: Engine, setting: Setting) -> list[pa.Table]:
    """Fill the window, subscribe, let the window pass once, and return the bursts to time."""
    n = setting.window // BURST
    for burst in _bursts(0, n):
        engine.publish(burst)
    for table in _subscriptions(setting):
        engine.subscribe(table)
    for burst in _bursts(n, 2 * n):
        engine.publish(burst)
    return list(_bursts(2 * n, 2 * n + TIMED))


def _bursts(first: int, end: int) -> Iterator[pa.Table]:
    """Yield bursts of messages, one per second."""
    tables = _workload().messages((end - first) * BURST, start=first * BURST, block=BURST)
    for number, table in enumerate(tables, first):
        column = table.schema.get_field_index("at")
        field = table.schema.field(column)
        at = pa.array(np.full(table.num_rows, number * 1_000_000)).cast(field.type)
        yield table.set_column(column, field, at)


def _subscriptions(setting: Setting) -> Iterator[pa.Table]:
    """Yield the subscriptions of a setting."""
    wanted, n = setting.keywords, setting.subscriptions
    offered = _workload().subscriptions("topk", n if wanted is None else 20 * n, k=setting.k)
    for number, table in enumerate(offered):
        if setting.is_zipf:
            table = _with_zipf_keywords(table, number)
        if wanted is not None:
            table = table.filter(pc.equal(pc.count_substring(table["keywords"], " "), wanted - 1)).slice(0, n)
        yield table
        n -= table.num_rows
        if n <= 0:
            return


def _with_zipf_keywords(table: pa.Table, number: int) -> pa.Table:
    """Replace keywords by as many that are drawn from the distribution of all terms."""
    rng = np.random.default_rng(number)
    counts = np.asarray(pc.add(pc.count_substring(table["keywords"], " "), 1))
    ends = np.cumsum(counts)
    ranks = _workload().words.draw(rng.random(int(ends[-1])))
    lists = pa.ListArray.from_arrays(np.append(0, ends).astype(np.int32), _workload().terms().take(pa.array(ranks)))
    column = table.schema.get_field_index("keywords")
    return table.set_column(column, table.schema.field(column), pc.binary_join(lists, " "))


@cache
def _workload() -> Workload:
    return make("tweets")
