"""Spark in a command: its log goes to a file, and Ctrl-C is handled here."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nearcast.errors import StateError

_QUIET = {"spark.ui.showConsoleProgress": "false"}


def require_spark() -> None:
    """Raise `StateError` if PySpark is not installed."""
    if find_spec("pyspark") is None:
        raise StateError("pyspark must be installed for this; it is not. Try pip install 'nearcast[spark]'")


@contextmanager
def spark_session(log: Path, *, settings: dict[str, str] | None = None, **options: Any) -> Iterator[Any]:
    """Yield a SparkSession that logs to a file."""
    from nearcast.spark import session
    from nearcast.spark.error_summary import blaming

    print(f"nearcast: starting Spark, which writes its log to {log}", file=sys.stderr, flush=True)
    with (
        _errors_to(log),  # the JVM that is started here inherits the file
        blaming("master", "must be a Spark that can be reached", options.get("master"), subject="session"),
    ):
        spark = session(settings={**_QUIET, **(settings or {})}, **options)
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def interrupts() -> Iterator[Callable[[], None]]:
    """Delay Ctrl-C to a safe moment: yield a function that raises `KeyboardInterrupt` once it was pressed.

    In the middle of a call to Spark it would break the connection. Pressed twice, it takes effect at once. SIGTERM,
    which service managers send, is handled in the same way.
    """
    pressed = threading.Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in signals}

    def note(_number: int, _frame: object) -> None:
        pressed.set()
        for number in signals:
            signal.signal(number, signal.default_int_handler)

    def check() -> None:
        if pressed.is_set():
            raise KeyboardInterrupt

    for number in signals:
        signal.signal(number, note)
    try:
        yield check
    finally:
        for number in signals:
            signal.signal(number, before[number])


@contextmanager
def _errors_to(file: Path) -> Iterator[None]:
    """Redirect the stderr of processes that are started in the block to a file."""
    sys.stderr.flush()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        log = file.open("ab")
    except OSError as error:
        raise StateError(f"{file} must be a file that can be written: {error.strerror}") from None
    ours = os.dup(2)
    try:
        with log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(ours, 2)
        os.close(ours)
