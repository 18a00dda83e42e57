"""Errors of Spark in one line that names the key of the job file."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from nearcast.errors import InvalidInput

SPARK_ERRORS = (PySparkException, Py4JError)

_OURS = re.compile(r"nearcast\.errors\.\w+: (.+)")
_TRACEBACK = "Traceback (most recent call last):"
_FRAMES = (
    re.compile(r"^An error occurred while calling \S+\s*: ?"),
    re.compile(r"^.*?terminated with exception: "),
    re.compile(r"^(?:[a-z]\w*\.)+\w+(?:Exception|Error): "),
)
_TAIL = re.compile(r"\s*SQLSTATE: \w+.*")


def in_one_line(error: BaseException) -> str:
    """Return the message and the root cause of an error of Spark, without stack traces.

    >>> in_one_line(RuntimeError("[PATH_NOT_FOUND] Path does not exist: /nowhere. SQLSTATE: 42K03"))
    '[PATH_NOT_FOUND] Path does not exist: /nowhere.'
    >>> in_one_line(RuntimeError("An error occurred while calling o7.start.\\n: a.b.CException: No.\\n\\tat a.b"))
    'No.'
    >>> in_one_line(RuntimeError("Job aborted\\n  File x\\nnearcast.errors.StateError: shards must be 2; got 3\\n"))
    'shards must be 2; got 3'
    """
    texts = [str(one).strip() for one in _chain(error)]
    for text in texts:
        if ours := _OURS.search(text):  # raised by a Python worker, inside its own traceback
            return ours[1].strip()
        if _TRACEBACK in text:
            return text.rpartition(_TRACEBACK)[2].strip().rpartition("\n")[2]
    top, root = _first_line(texts[0]), _first_line(texts[-1])
    return top if root in top else f"{top} {root}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes, down to the root; PySpark hides them."""
    while error is not None:
        yield error
        error = getattr(error, "_cause", None)


def _first_line(text: str) -> str:
    for frame in _FRAMES:
        text = frame.sub("", text)
    return _TAIL.sub("", text.partition("\n")[0])


@contextmanager
def blaming(field: str, rule: str, value: Any, *, subject: str) -> Iterator[None]:
    """Turn an error of Spark into `InvalidInput` for a key of the job file."""
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # otherwise it appears on stderr too
    try:
        yield
    except SPARK_ERRORS as error:
        raise InvalidInput(field, f"{rule} ({in_one_line(error)})", value, subject=subject) from None
