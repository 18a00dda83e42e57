"""What does Spark complain about? Its errors run to pages; here one becomes a line that names the key to blame."""

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
    """Return what an error of Spark says and what is at the root of it, without where in Spark it was said.

    >>> in_one_line(RuntimeError("[PATH_NOT_FOUND] Path does not exist: /nowhere. SQLSTATE: 42K03"))
    '[PATH_NOT_FOUND] Path does not exist: /nowhere.'
    >>> in_one_line(RuntimeError("An error occurred while calling o7.start.\\n: a.b.CException: No.\\n\\tat a.b"))
    'No.'
    >>> in_one_line(RuntimeError("Job aborted\\n  File x\\nnearcast.errors.StateError: shards must be 2; got 3\\n"))
    'shards must be 2; got 3'
    """
    said = [str(one).strip() for one in _chain(error)]
    for text in said:
        if ours := _OURS.search(text):  # raised by a Python worker, with its own traceback around it
            return ours[1].strip()
        if _TRACEBACK in text:
            return text.rpartition(_TRACEBACK)[2].strip().rpartition("\n")[2]
    top, root = _first_line(said[0]), _first_line(said[-1])
    return top if root in top else f"{top} {root}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what caused it, down to the root; PySpark keeps causes to itself."""
    while error is not None:
        yield error
        error = getattr(error, "_cause", None)


def _first_line(text: str) -> str:
    for frame in _FRAMES:
        text = frame.sub("", text)
    return _TAIL.sub("", text.partition("\n")[0])


@contextmanager
def blaming(field: str, rule: str, value: Any, *, subject: str) -> Iterator[None]:
    """Turn an error of Spark into `InvalidInput` of the key of a job file that it comes from."""
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # else it says the same, on stderr
    try:
        yield
    except SPARK_ERRORS as error:
        raise InvalidInput(field, f"{rule} ({in_one_line(error)})", value, subject=subject) from None
