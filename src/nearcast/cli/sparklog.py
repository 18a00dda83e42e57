"""Where does Spark's own talk go? Into a file beside the job, so that the terminal is left to what people look at."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUIET = {"spark.ui.showConsoleProgress": "false"}


@contextmanager
def spark_session(log: Path, *, settings: dict[str, str] | None = None, **options: Any) -> Iterator[SparkSession]:
    """Run a SparkSession that writes what it has to say to a file."""
    from nearcast.spark import session

    print(f"nearcast: starting Spark, which writes its log to {log}", file=sys.stderr)
    log.parent.mkdir(parents=True, exist_ok=True)
    with _errors_to(log):  # the runtime that is started here keeps the file
        spark = session(settings={**_QUIET, **(settings or {})}, **options)
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _errors_to(file: Path) -> Iterator[None]:
    """Let processes that are started in the block write their errors to a file."""
    sys.stderr.flush()
    ours = os.dup(2)
    try:
        with file.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(ours, 2)
        os.close(ours)
