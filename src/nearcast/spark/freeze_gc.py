"""Garbage collection in Python workers: objects that exist after the first task are frozen.

Spark's workers collect garbage after every task. With compiled kernels, Arrow and pandas loaded, a collection visits
a few hundred thousand objects, which takes longer than matching a small batch; frozen objects are skipped.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TypeVar

T = TypeVar("T")


def freezing_gc(answers: Iterable[T]) -> Iterator[T]:
    """Yield the output of a task; after the first task, freeze all objects."""
    yield from answers
    _freeze()


@cache
def _freeze() -> None:
    """Only once: frozen objects in unreachable cycles are never freed."""
    gc.collect()
    gc.freeze()
