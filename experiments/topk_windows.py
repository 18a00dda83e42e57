"""Question: what does a large window of top-k cost? Figure 18 of Skype at its own size.

There are 1 M subscriptions, and windows of 1 to 4 M messages.

    fill the window ── subscribe ── let the window pass once ── publish 100,000 messages in batches (timed)

A window takes many minutes and a few gigabytes. Each is measured in a process of its own, so that the memory of one
does not count for the next. Times are of the processor, so that other work on the machine counts less.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import pyarrow as pa

from experiments.question import Question, Row, report_progress, scaled
from experiments.topk_runs import BURST, buffers_of
from nearcast import CountWindow, Engine
from nearcast.workload import make

SUBSCRIPTIONS = 1_000_000
WINDOWS = {"1M": 1_000_000, "2M": 2_000_000, "3M": 3_000_000, "4M": 4_000_000}
K = 20
TIMED = 100_000  # messages, as in the paper
_BLOCK = 5_000  # messages per batch where nothing is timed
_REPORT_S = 10.0  # seconds from one line of progress to the next


def measure(window: int, scale: float) -> list[Row]:
    """Measure one window in a process of its own."""
    sizes = (scaled(n, scale, least=2 * _BLOCK) for n in (window, SUBSCRIPTIONS, TIMED))
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return [pool.submit(measure_window, *sizes).result()]


def measure_window(window: int, n_subscriptions: int, n_timed: int) -> Row:
    """Return the cost of a message, and the memory that a message and a subscription take."""
    workload = make("tweets")
    track = partial(_with_progress, report=lambda text: report_progress(f"window {window:,}: {text}"))
    messages = partial(workload.messages, block=_BLOCK)
    with Engine(space=workload.space(), vocabulary=workload.vocabulary(), window=CountWindow(window)) as engine:
        subscriptions = workload.subscriptions("topk", n_subscriptions, k=K, block=_BLOCK)
        engine.subscribe(next(subscriptions))  # so that the window exists and all code is loaded
        engine.publish(next(messages(_BLOCK)))
        empty = engine.stats().memory_bytes
        for block in track("filled", messages(window - _BLOCK, start=_BLOCK)):
            engine.publish(block)
        full = engine.stats().memory_bytes
        started = time.process_time()
        for block in track("subscribed", subscriptions):
            engine.subscribe(block)
        subscribing = time.process_time() - started
        for block in track("passed", messages(window, start=window)):
            engine.publish(block)
        buffers = buffers_of(engine)
        searches, updates, seconds = buffers.searches, 0, 0.0
        for block in track("timed", messages(n_timed, start=2 * window, block=BURST)):
            started = time.process_time()
            updates += engine.publish(block).num_rows
            seconds += time.process_time() - started
        return {
            "subscriptions": n_subscriptions,
            "window": window,
            "k": K,
            "timed": n_timed,
            "batch": BURST,
            "both_us": seconds / n_timed * 1e6,
            "updates": updates / n_timed,
            "searches": (buffers.searches - searches) / n_timed,
            "buffer": float(buffers.sizes.mean()),
            "bytes_per_message": (full - empty) / (window - _BLOCK),
            "bytes_per_subscription": (engine.stats().memory_bytes - full) / (n_subscriptions - _BLOCK),
            "subscribing_s": subscribing,
        }


def _with_progress(what: str, blocks: Iterable[pa.Table], *, report: Callable[[str], None]) -> Iterator[pa.Table]:
    """Yield blocks, and report now and then how many rows are done."""
    started = reported = time.monotonic()
    n = 0
    for block in blocks:
        yield block
        n += block.num_rows
        if time.monotonic() - reported > _REPORT_S:
            reported = time.monotonic()
            report(f"{what} {n:,} after {reported - started:.0f} s")
    report(f"{what} {n:,} in {time.monotonic() - started:.0f} s")


QUESTION = Question(
    "topk-windows",
    "What does a large window of top-k cost? (Skype, Figure 18 at its size; needs 4 GB of memory)",
    {part: partial(measure, window) for part, window in WINDOWS.items()},
    minutes=60,
    is_long=True,
)
