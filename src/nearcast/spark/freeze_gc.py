"""How does a Python worker stay quick? What it has loaded by the end of its first task is there to stay.

Spark has its workers collect garbage after every task. With compiled kernels, Arrow and pandas loaded that is a walk
over some hundred thousand objects, longer than a small batch takes to match; frozen, they are left out of it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TypeVar

T = TypeVar("T")


def freezing_gc(answers: Iterable[T]) -> Iterator[T]:
    """Hand on what a task answers; when that is done for the first time, settle down."""
    yield from answers
    _freeze()


@cache
def _freeze() -> None:
    """Once: what is frozen and then dropped in a circle would never be freed."""
    gc.collect()
    gc.freeze()
