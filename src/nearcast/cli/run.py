"""`nearcast run CONFIG.toml`: a whole job on Spark from a file, with its progress live."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearcast.cli.sparklog import spark_session

if TYPE_CHECKING:
    from rich.console import RenderableType

    from nearcast.spark.progress import Tally
    from nearcast.spark.run import Run

NAME = "run"
HELP = "run a job on Spark from a file: sources, subscriptions, sinks; started again, it goes on where it stopped"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Say what a run can be told."""
    parser.add_argument("config", type=Path, metavar="CONFIG.toml", help="the job, see docs/spark.md")
    parser.add_argument("--master", default=None, help="as Spark users know it: local[*], spark://host:7077, yarn")
    parser.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark; may be given often"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a batch, and no table")


def run(options: argparse.Namespace) -> int:
    """Run a job until it ends or is stopped."""
    from nearcast.spark.plan import read_plan
    from nearcast.spark.run import start_run

    plan = read_plan(options.config)
    log, settings = options.config.with_suffix(".log"), settings_of(options.conf)
    with spark_session(log, shards=plan.match.shards, master=options.master, settings=settings) as spark:
        started = start_run(spark, plan)
        try:
            watch(started, as_json=options.json)
        except KeyboardInterrupt:
            print("nearcast: stopping; the same command goes on from here", file=sys.stderr)
            return 130
        finally:
            started.stop()
    return 0


def settings_of(given: list[str]) -> dict[str, str]:
    """Return settings of Spark given as NAME=VALUE.

    >>> settings_of(["spark.executor.memory=4g"])
    {'spark.executor.memory': '4g'}
    """
    from nearcast.errors import require

    settings = {}
    for one in given:
        name, is_pair, value = one.partition("=")
        require(bool(is_pair and name), "conf", "must be NAME=VALUE", one)
        settings[name] = value
    return settings


def watch(started: Run, *, as_json: bool) -> Tally:
    """Show how a job does until it ends."""
    from rich.console import Console
    from rich.live import Live

    from nearcast.spark.progress import Tally

    tally, console = Tally(), Console()
    if as_json or not console.is_terminal:
        while True:
            is_active = started.is_active  # before the last look, so that nothing is missed
            if tally.take(reports(started)):
                print(json.dumps(dict(tally.rows())), flush=True)
            if not is_active:
                break
            started.wait(1)
    else:
        with Live(picture(tally), console=console, refresh_per_second=2) as live:
            while True:
                is_active = started.is_active
                tally.take(reports(started))
                live.update(picture(tally))
                if not is_active:
                    break
                started.wait(1)
    started.wait(0)
    return tally


def reports(started: Run) -> list[dict[str, Any]]:
    """Return what Spark reports of the latest batches."""
    return [json.loads(progress.json) for progress in started.updates.recentProgress]


def picture(tally: Tally) -> RenderableType:
    """Draw how a job does."""
    from rich.panel import Panel
    from rich.table import Table

    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column()
    table.add_column(justify="right")
    for name, value in tally.rows():
        table.add_row(name, value)
    for shard, n in sorted(tally.subscriptions.items()):
        table.add_row(f"shard {shard}", f"{n:,} subscriptions, {tally.work[shard]:,.1f} s")
    return Panel(table, title="nearcast run", subtitle="Ctrl-C stops it; the same command goes on", expand=False)
