"""A progress line on stderr while tables stream past.

It is quiet when stderr is not a terminal, or when the environment variable `NEARCAST_QUIET` is set.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator

import pyarrow as pa

QUIET = "NEARCAST_QUIET"


def progress(tables: Iterable[pa.Table], total: int, what: str) -> Iterator[pa.Table]:
    """Yield tables unchanged, and show how many of `total` rows have passed.

    >>> from nearcast.workload.generator import make
    >>> sum(table.num_rows for table in progress(make("places").messages(10), 10, "messages"))
    10
    """
    if os.environ.get(QUIET) or not sys.stderr.isatty():
        yield from tables
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=total)
        for table in tables:
            yield table
            shown.advance(task, table.num_rows)
