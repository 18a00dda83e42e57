"""Spark in a command: its log goes to a file, and Ctrl-C is handled here."""

from __future__ import annotations

import logging
import os
import re
import signal
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nearcast.errors import InvalidInput, NearcastError, StateError

_QUIET = {"spark.ui.showConsoleProgress": "false"}
_PACKAGES = "spark.jars.packages"


def require_spark() -> None:
    """Raise `StateError` if PySpark is not installed."""
    if find_spec("pyspark") is None:
        raise StateError("pyspark must be installed for this; it is not. Try pip install 'nearcast[spark]'")


@contextmanager
def spark_session(log: Path, *, settings: dict[str, str] | None = None, **options: Any) -> Iterator[Any]:
    """Yield a SparkSession that logs to a file."""
    from nearcast.spark import session
    from nearcast.spark.error_summary import SPARK_ERRORS, in_one_line

    print(f"nearcast: starting Spark, which writes its log to {log}", file=sys.stderr, flush=True)
    start = log.stat().st_size if log.exists() else 0
    with _errors_to(log), _kept_handler():  # the JVM that is started here inherits the file
        try:
            spark = session(settings={**_QUIET, **(settings or {})}, **options)
        except SPARK_ERRORS as error:
            written = log.read_bytes()[start:].decode(errors="replace")
            raise start_error(written, in_one_line(error), settings or {}, options.get("master")) from None
    try:
        yield spark
    finally:
        with suppress(*SPARK_ERRORS, ConnectionError):  # Spark may have ended, as when SIGTERM reaches all processes
            spark.stop()


def start_error(log: str, error: str, settings: dict[str, str], master: str | None) -> NearcastError:
    """Return why Spark did not start: what its launcher wrote to the log, or else that the master was not reached.

    >>> print(start_error("unresolved dependency: a#b;1: not found", "", {"spark.jars.packages": "a:b:1"}, None))
    spark.jars.packages must be packages that can be resolved (a#b;1 was not found); got 'a:b:1' (session)
    """
    if missing := re.findall(r"unresolved dependency: (\S+): not found", log):
        rule = f"must be packages that can be resolved ({', '.join(dict.fromkeys(missing))} was not found)"
        return InvalidInput(_PACKAGES, rule, settings.get(_PACKAGES), subject="session")
    if ended := re.findall(r'^(?:Exception in thread "main" |Error: )(.+)$', log, re.M):
        return StateError(f"Spark did not start: {ended[-1]}")
    return InvalidInput("master", f"must be a Spark that can be reached ({error})", master, subject="session")


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
        # A signal to all processes also ends Spark. Its client then logs every call, and its server of accumulators
        # prints a traceback: both would bury the line that says what happens.
        logging.disable(logging.ERROR)
        socketserver.BaseServer.handle_error = lambda *_: None  # type: ignore[method-assign]
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
def _kept_handler() -> Iterator[None]:
    """Keep the handler of Ctrl-C: PySpark sets one that raises in the middle of a call to Spark."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


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
