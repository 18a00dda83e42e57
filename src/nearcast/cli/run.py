"""`nearcast run JOB.toml`: a whole job on Spark from a file, with live progress."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from nearcast.cli.spark_session import interrupts, require_spark, spark_session
from nearcast.errors import StateError, require

if TYPE_CHECKING:
    from rich.console import RenderableType

    from nearcast.jobs.progress import Tally
    from nearcast.spark.run import Run

NAME = "run"
HELP = "run a job on Spark from a file; a restart continues where it stopped"

_LOOK_EVERY_S = 0.25


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("config", type=Path, metavar="JOB.toml", help="the job, see docs/spark.md")
    parser.add_argument("--master", default=None, help="Spark master: local[*], spark://host:7077, yarn")
    parser.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="a Spark setting, repeatable"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per batch, also on a terminal")


def run(options: argparse.Namespace) -> int:
    """Run a job until it ends or is stopped."""
    require_spark()
    from nearcast.jobs.job_file import read_job_file
    from nearcast.spark.run import start_run

    job_file = read_job_file(options.config)
    log, settings = options.config.with_suffix(".log"), settings_of(options.conf)
    with (
        spark_session(log, shards=job_file.tasks, master=options.master, settings=settings) as spark,
        interrupts() as check,
    ):
        started = start_run(spark, job_file)
        try:
            watch(started, check, as_json=options.json)
        except KeyboardInterrupt:
            print("nearcast: stopping; the same command continues from here", file=sys.stderr)
            return 130
        finally:
            started.stop()
    return 0


def settings_of(given: list[str]) -> dict[str, str]:
    """Parse Spark settings given as NAME=VALUE.

    >>> settings_of(["spark.executor.memory=4g"])
    {'spark.executor.memory': '4g'}
    """
    settings = {}
    for one in given:
        name, is_pair, value = one.partition("=")
        require(bool(is_pair and name), "conf", "must be NAME=VALUE", one)
        settings[name] = value
    return settings


def watch(started: Run, check: Callable[[], None], *, as_json: bool) -> None:
    """Show the progress of a job until it ends: a live table on a terminal, else one line per batch."""
    from rich.console import Console
    from rich.live import Live

    from nearcast.jobs.progress import Tally

    console = Console()
    if as_json or not console.is_terminal:
        for tally in progress_of(started, check):
            print(json.dumps(tally.figures()), flush=True)
        return
    with Live(picture(Tally()), console=console, refresh_per_second=2) as live:
        for tally in progress_of(started, check):
            live.update(picture(tally))


def progress_of(started: Run, check: Callable[[], None]) -> Iterator[Tally]:
    """Yield the progress of a job whenever it changes, until the job ends."""
    from nearcast.jobs.progress import Tally

    tally, is_active = Tally(), True
    while is_active:
        wait(started, check)
        is_active = started.is_active  # read before the last progress, so that nothing is missed
        if tally.take(started.batches(after=tally.last_batch)):
            yield tally


def wait(started: Run, check: Callable[[], None]) -> None:
    """Let a job run for a moment; `check` raises if it is to be stopped."""
    try:
        started.wait(_LOOK_EVERY_S)
    except StateError:
        check()  # Ctrl-C reaches the workers too, and fails their batch: that is no error
        raise
    check()


def picture(tally: Tally) -> RenderableType:
    """Return the progress as a table."""
    from rich.panel import Panel
    from rich.table import Table

    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column()
    table.add_column(justify="right")
    for name, value in tally.rows():
        table.add_row(name, value)
    for shard, n in sorted(tally.subscriptions.items()):
        table.add_row(f"shard {shard}", f"{n:,} subscriptions, {tally.work[shard]:,.1f} s")
    return Panel(table, title="nearcast run", subtitle="Ctrl-C stops; the same command continues", expand=False)
