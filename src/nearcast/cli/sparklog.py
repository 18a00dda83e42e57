"""How does a command share a terminal with Spark? Spark's own talk goes into a file, and Ctrl-C is ours."""

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
    """Raise `StateError` if there is no PySpark here."""
    if find_spec("pyspark") is None:
        raise StateError("pyspark must be installed for this; it is not. Try pip install 'nearcast[spark]'")


@contextmanager
def spark_session(log: Path, *, settings: dict[str, str] | None = None, **options: Any) -> Iterator[Any]:
    """Run a SparkSession that writes what it has to say to a file."""
    from nearcast.spark import session
    from nearcast.spark.error_summary import blaming

    print(f"nearcast: starting Spark, which writes its log to {log}", file=sys.stderr, flush=True)
    with (
        _errors_to(log),  # the runtime that is started here keeps the file
        blaming("master", "must be a Spark that can be reached", options.get("master"), subject="session"),
    ):
        spark = session(settings={**_QUIET, **(settings or {})}, **options)
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def interrupts() -> Iterator[Callable[[], None]]:
    """Let Ctrl-C wait for a good moment: lend a function that raises `KeyboardInterrupt` once it was pressed.

    In the middle of a call to Spark it would break the connection to it. Pressed twice it does not wait. Whoever
    asks a process to end, as service managers do, is answered alike.
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
    """Let processes that are started in the block write their errors to a file."""
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
