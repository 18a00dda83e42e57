"""`nearcast advise`: recommend a partitioner for a stream, by estimates and short runs, with the reason.

With `--drift` it is a dry run of load adjustment instead.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nearcast.cli.arguments import count, positive
from nearcast.errors import require

if TYPE_CHECKING:
    from rich.table import Table

    from nearcast.advice import AdviceReport, DriftReport, Stream

NAME = "advise"
HELP = "recommend a partitioner for a stream"

_QUIET = "NEARCAST_QUIET"
_WIDE = 112  # width of the table without a terminal


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    from nearcast.model import kinds
    from nearcast.partition import partitioners
    from nearcast.partition.balance.policy import LOADS, SIGMA
    from nearcast.partition.balance.selection import SELECTIONS
    from nearcast.space import METRICS
    from nearcast.workload import WORKLOADS

    add = parser.add_argument
    add("--workload", choices=[one.name for one in WORKLOADS], default="tweets", help="the generated stream")
    add(
        "--kind",
        action="append",
        choices=[kind.kind for kind in kinds()],
        help="a kind of subscription, repeatable; by default boolean, or all kinds of the file",
    )
    add("--messages-file", type=Path, metavar="FILE", help="messages as Parquet or JSON lines, instead of a workload")
    add("--subscriptions-file", type=Path, metavar="FILE", help="subscriptions as Parquet or JSON lines")
    add("--metric", choices=[metric.name for metric in METRICS], default="haversine", help="metric of files")
    add("--shards", type=positive, default=4, help="number of shards")
    add("--processes", action="store_true", help="shards are processes, as on Spark, not threads of one engine")
    add(
        "--subscriptions", type=positive, default=20_000, help="maximum number of subscriptions; 10k and 1M are valid"
    )
    add("--sample", type=positive, default=20_000, help="maximum number of messages")
    add("--window", type=positive, default=10_000, help="messages in the window, for kinds that need one")
    add("--seed", type=count, default=0, help="seed of the workload")
    add(
        "--partitioner",
        action="append",
        choices=[partitioner.name for partitioner in partitioners()],
        help="a partitioner to compare, repeatable; by default all",
    )
    add("--json", action="store_true", help="print one JSON object instead of a table")
    add("--html", type=Path, metavar="PATH", help="write an HTML page with the table and maps")
    add("--save", type=Path, metavar="PATH", help="write the recommended routing, fitted to the whole stream")
    drift = parser.add_argument_group("a dry run of load adjustment")
    add = drift.add_argument
    add("--drift", action="store_true", help="show what would have moved between shards while the stream went by")
    add("--periods", type=positive, default=10, help="the stream is divided into so many periods, and one to fit to")
    add("--sigma", type=float, default=SIGMA, help="the accepted ratio of the busiest to the idlest shard")
    add("--selection", choices=list(SELECTIONS), default="gr", help="how cells are chosen")
    add("--load", choices=LOADS, default=LOADS[0], help="what a message costs: pairs that are compared, or products")


def run(options: argparse.Namespace) -> int:
    """Compare the partitioners, or adjust one in a dry run, and print the report."""
    return _run_drift(options) if options.drift else _run_advice(options)


def _run_drift(options: argparse.Namespace) -> int:
    from nearcast.advice import try_adjusting
    from nearcast.partition import partitioners
    from nearcast.partition.balance.policy import Balance
    from nearcast.partition.hybrid import HybridPartitioner
    from nearcast.partition.masks import check_shards
    from nearcast.text import new_hash_key

    check_shards(options.shards)
    balance = Balance(sigma=options.sigma, selection=options.selection, load=options.load)
    names = options.partitioner or [HybridPartitioner.name]
    reports = []
    with _progress() as watch:
        watch("generating the stream")
        stream = replace(_stream(options), hash_key=new_hash_key())
        for partitioner in partitioners():
            if partitioner.name in names:
                reports.append(
                    try_adjusting(
                        stream, partitioner, n_shards=options.shards, balance=balance, n_periods=options.periods,
                        watch=watch,
                    )
                )  # fmt: skip
    if options.json:
        print(json.dumps({"drift": [report.figures() for report in reports]}))
    else:
        for report in reports:
            _print_drift(report)
    return 0


def _run_advice(options: argparse.Namespace) -> int:
    from nearcast.advice import advise
    from nearcast.partition import partitioners as all_partitioners
    from nearcast.partition.masks import check_shards
    from nearcast.partition.serialization import pack
    from nearcast.text import new_hash_key

    check_shards(options.shards)
    names = options.partitioner or [partitioner.name for partitioner in all_partitioners()]
    partitioners = [partitioner for partitioner in all_partitioners() if partitioner.name in names]
    workers = min(options.shards, os.cpu_count() or 1)
    with _progress() as watch:
        watch("generating the stream")
        stream = replace(_stream(options), hash_key=new_hash_key())
        few = stream.thinned(100, 200)
        advise(few, n_shards=options.shards, workers=workers, partitioners=partitioners)  # compiles what it needs
        report = advise(
            stream, n_shards=options.shards, workers=workers, in_threads=not options.processes,
            partitioners=partitioners, watch=watch,
        )  # fmt: skip
    if options.html:
        from nearcast.advice.page import page_of

        options.html.write_text(page_of(report), encoding="utf-8")
    if options.save:
        options.save.write_bytes(pack(report.routing(), hash_key=stream.hash_key))
    if options.json:
        print(json.dumps({**report.figures(), "workers": workers}))
    else:
        _print_table(report)
    return 0


def _stream(options: argparse.Namespace) -> Stream:
    from nearcast.advice import generated, recorded

    sizes = {"n_subscriptions": options.subscriptions, "n_messages": options.sample, "window": options.window}
    files = options.messages_file, options.subscriptions_file
    if not any(files):
        return generated(options.workload, options.kind or ["boolean"], seed=options.seed, **sizes)
    for name, other, file in (("messages-file", *files), ("subscriptions-file", *files[::-1])):
        require(file is None or other is not None, name, "must be given too", other)
    return recorded(*files, kinds=options.kind or (), metric=options.metric, **sizes)


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Show the current step on stderr, if it is a terminal."""
    if os.environ.get(_QUIET) or not sys.stderr.isatty():
        yield lambda what: None
        return
    from rich.console import Console

    with Console(stderr=True).status("advising") as status:
        yield lambda what: status.update(f"advising: {what}")


def _print_drift(report: DriftReport) -> None:
    from rich.console import Console

    from nearcast.advice.drift import HEADINGS

    table = _table(report.title, "period", HEADINGS)
    for cells in report.rows():
        table.add_row(*cells)
    console = Console(width=None if sys.stdout.isatty() else _WIDE)
    console.print(table)
    console.print(f"{report.summary}.", highlight=False)


def _table(title: str, first: str, headings: Sequence[str]) -> Table:
    """Return an empty table whose columns are as wide as their longest word."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, collapse_padding=True)
    table.add_column(first, no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", min_width=max(map(len, heading.split())))
    return table


def _print_table(report: AdviceReport) -> None:
    from rich.console import Console

    from nearcast.advice.report import COLUMNS_EXPLAINED, HEADINGS

    table = _table(report.title, "partitioner", HEADINGS)
    for name, cells in report.rows():
        table.add_row(name, *cells, style="bold" if name == report.taken.name else None)
    console = Console(width=None if sys.stdout.isatty() else _WIDE)
    console.print(table)
    console.print(f"{COLUMNS_EXPLAINED}. {report.costs_explained}\n", style="dim", highlight=False)
    console.print(f"[bold]{report.taken.name}[/bold]: {report.reason}.", highlight=False)
