"""The cost of a large window: Figure 18 of Skype at the paper's own size: 1 M subscriptions, 1 to 4 M messages.

    python -m experiments.topk_window [WINDOW ...] [--subscriptions N] [--at-once 1] [--out docs/benchmarks]

    fill the window ── subscribe ── let the window pass once ── publish 100,000 messages in batches (timed)

Too long for the small table: minutes a window, and a few gigabytes. Every window is measured in a process of its own,
so that memory does not mix, and its row is kept in a file: the page is drawn from all rows there are, so that windows
can be measured one by one, on different days. Times are of the processor, so other work on the machine counts less.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa

from experiments.plots import axes_of
from experiments.topk_runs import BURST, Row, buffers_of
from experiments.topk_sentences import listed, shape, verdict
from nearcast import CountWindow, Engine
from nearcast.workload import make

WINDOWS = (1_000_000, 2_000_000, 3_000_000, 4_000_000)
SUBSCRIPTIONS = 1_000_000
K = 20
TIMED = 100_000  # messages, as in the paper
_BLOCK = 5_000  # messages a batch, where nothing is timed
_SAY = 10.0  # seconds from one line of progress to the next
_PAGE = "topk-windows"
_COLUMNS = {
    "window": "window",
    "both_us": "microseconds a message",
    "updates": "updates",
    "searches": "re-evaluations",
    "buffer": "messages a buffer",
    "bytes_a_message": "bytes a message",
    "bytes_a_subscription": "bytes a subscription",
    "subscribing_s": "subscribing s",
    "commit": "commit",
}
"""Column of a row -> what the table calls it."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "windows", nargs="*", type=int, metavar="WINDOW", help="messages; by default all of Figure 18"
    )
    parser.add_argument("--subscriptions", type=int, default=SUBSCRIPTIONS, metavar="N")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="windows that are measured side by side")
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks"))
    options = parser.parse_args()
    for n in (*options.windows, options.subscriptions):
        if n <= _BLOCK:
            parser.error(f"windows and subscriptions must be more than {_BLOCK:,}; got {n:,}")
    options.out.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(options.at_once, get_context("spawn"), max_tasks_per_child=1) as pool:
        requested = [pool.submit(measure, n, options.subscriptions) for n in options.windows or WINDOWS]
        for done in as_completed(requested):
            keep(done.result(), options.out)
    return 0


def measure(window: int, n_subscriptions: int) -> Row:
    """Return what a message costs, and what it and a subscription take of memory."""
    workload, commit = make("tweets"), _commit()
    emitted = partial(_with_updates, say=partial(print, f"window {window:,}:", file=sys.stderr, flush=True))
    messages = partial(workload.messages, block=_BLOCK)
    with Engine(space=workload.space(), vocabulary=workload.vocabulary(), window=CountWindow(window)) as engine:
        subscribers = workload.subscriptions("topk", n_subscriptions, k=K, block=_BLOCK)
        engine.subscribe(next(subscribers))  # so that the window is kept for them, and all code is loaded
        engine.publish(next(messages(_BLOCK)))
        empty = engine.stats().memory_bytes
        for block in emitted("filled", messages(window - _BLOCK, start=_BLOCK)):
            engine.publish(block)
        full = engine.stats().memory_bytes
        started = time.process_time()
        for block in emitted("subscribed", subscribers):
            engine.subscribe(block)
        subscribing = time.process_time() - started
        for block in emitted("passed", messages(window, start=window)):
            engine.publish(block)
        buffers = buffers_of(engine)
        searches, updates, seconds = buffers.searches, 0, 0.0
        for block in emitted("timed", messages(TIMED, start=2 * window, block=BURST)):
            started = time.process_time()
            updates += engine.publish(block).num_rows
            seconds += time.process_time() - started
        return {
            "subscriptions": n_subscriptions,
            "window": window,
            "k": K,
            "both_us": seconds / TIMED * 1e6,
            "updates": updates / TIMED,
            "searches": (buffers.searches - searches) / TIMED,
            "buffer": float(buffers.sizes.mean()),
            "bytes_a_message": (full - empty) / (window - _BLOCK),
            "bytes_a_subscription": (engine.stats().memory_bytes - full) / (n_subscriptions - _BLOCK),
            "subscribing_s": subscribing,
            "commit": commit,
        }


def _with_updates(what: str, blocks: Iterable[pa.Table], *, say: Any) -> Iterator[pa.Table]:
    """Yield blocks, and say now and then how many rows are done."""
    started = published = time.monotonic()
    n = 0
    for block in blocks:
        yield block
        n += block.num_rows
        if time.monotonic() - published > _SAY:
            published = time.monotonic()
            say(f"{what} {n:,} after {published - started:.0f} s")
    say(f"{what} {n:,} in {time.monotonic() - started:.0f} s")


def keep(row: Row, folder: Path) -> None:
    """Keep a row in the place of one of its size, and write the page of all of them."""
    path = folder / f"{_PAGE}.json"
    rows = json.loads(path.read_text()) if path.exists() else []
    size = row["subscriptions"], row["window"]
    rows = sorted(
        [row, *(one for one in rows if (one["subscriptions"], one["window"]) != size)],
        key=lambda one: (one["subscriptions"], one["window"]),
    )
    path.write_text(json.dumps(rows, indent=1) + "\n")
    rows = [one for one in rows if one["subscriptions"] == row["subscriptions"]]
    _draw(rows, folder / f"{_PAGE}.svg")
    (folder / f"{_PAGE}.md").write_text(page(rows))


def page(rows: list[Row]) -> str:
    """Write what was measured, and hold it against the paper as soon as there is something to compare."""
    table = [f"| {' | '.join(_COLUMNS.values())} |", f"|{'---|' * len(_COLUMNS)}"]
    table += [f"| {' | '.join(_cell(row[name]) for name in _COLUMNS)} |" for row in rows]
    return "\n".join(
        [
            "# The window of top-k at the paper's size\n",
            f"Python {platform.python_version()}, {os.cpu_count()} cores. Made by `make windows`.\n",
            f"{rows[0]['subscriptions']:,} subscriptions with k = {rows[0]['k']}, one worker. The window is filled,"
            f" everyone subscribes, the window passes once, and {TIMED:,} messages are published in batches of"
            f" {BURST}: what one of them costs of the processor, what it changes, and what is kept. Bytes are what"
            " the process grew by: a message while the window was filled, a subscription from then to the end, with"
            " what the window still grows by as it passes.\n",
            *table,
            "",
            *([_compared(rows)] if len(rows) > 1 else []),
            f"![cost against the window]({_PAGE}.svg)\n",
        ]
    )


def _compared(rows: list[Row]) -> str:
    times, updates = [row["both_us"] for row in rows], [row["updates"] for row in rows]
    went = shape(times)
    return (
        "**Effect of the window (Figure 18).** In the paper arrivals cost less in a larger window, since better"
        " results are harder to beat, and expiries about the same, so that both together fall. Here, from"
        f" {rows[0]['window']:,} to {rows[-1]['window']:,} messages, the time of both {went} ({listed(times)}),"
        f" {verdict(went == 'falls')}; updates a message: {listed(updates)}.\n"
    )


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}" if value < 10 else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _draw(rows: list[Row], path: Path) -> None:
    axes, figure = axes_of(f"topk: cost of a message, {rows[0]['subscriptions']:,} subscriptions")
    xs, times = [row["window"] / 1e6 for row in rows], [row["both_us"] for row in rows]
    axes.plot(xs, times, marker="o")
    axes.set(xlabel="million messages in the window", ylabel="microseconds a message", xticks=xs)
    axes.set(ylim=(0, 1.1 * max(times)))
    figure.savefig(path)


def _commit() -> str:
    ran = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return ran.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
