"""The threads of an engine, which take pieces of work as they become free, and arrays that each has to itself."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

Piece = TypeVar("Piece")
Done = TypeVar("Done")

_LINES = 128  # bytes of two cache lines, which processors fetch together

LEAST_S = 0.0005
"""Seconds of work that are worth a piece of their own: handing one over takes a tenth of that."""
_FIRST_ROW_S = 1e-6  # what a row is taken to cost before one was measured
_MANY_S = 0.004  # seconds of work from which on there are two pieces per thread: the first to be done takes another


class WorkerPool:
    """Some threads, at most one for each core; the calling thread is one of them.

    >>> with WorkerPool(2) as pool:
    ...     pool.map(lambda n: n * n, range(4))
    [0, 1, 4, 9]
    """

    def __init__(self, n_threads: int, *, n_cores: int | None = None) -> None:
        """Make a pool; threads for which there is no core do not run, since they would only wait for each other."""
        self.n_threads = n_threads
        self._n_running = max(1, min(n_threads, _count_cores() if n_cores is None else n_cores))
        self._executor = ThreadPoolExecutor(self._n_running - 1, "nearcast") if self._n_running > 1 else None

    def map(self, work: Callable[[Piece], Done], pieces: Iterable[Piece]) -> list[Done]:
        """Return the results of some pieces of work, in order; an error is raised once all threads have stopped."""
        given = list(pieces)
        if self._executor is None or len(given) <= 1:
            return [work(piece) for piece in given]
        done: dict[int, Done] = {}
        waiting = deque(range(len(given)))

        def run() -> None:
            while waiting:
                try:
                    number = waiting.popleft()
                except IndexError:  # another thread took the last one
                    return
                done[number] = work(given[number])

        others = [self._executor.submit(run) for _ in range(min(self._n_running, len(given)) - 1)]
        try:
            run()
        except BaseException:
            waiting.clear()
            raise
        finally:
            started = [other for other in others if not other.cancel()]
            errors = [error for other in started if (error := other.exception()) is not None]
        if errors:
            raise errors[0]
        return [done[number] for number in range(len(given))]

    def for_work(self, seconds: float) -> WorkerPool:
        """Return the pool for so much work: this one, or the calling thread alone if it is little."""
        return self if seconds >= 2 * LEAST_S else SERIAL

    def cuts(self, n_rows: int, seconds: float) -> list[int]:
        """Return where rows that take so long are cut into pieces: the first row of each, and the end.

        >>> pool = WorkerPool(2, n_cores=2)
        >>> WorkerPool(1).cuts(900, 1.0), pool.cuts(900, 0.0), pool.cuts(900, 0.001)
        ([0, 900], [0, 900], [0, 450, 900])
        """
        n_running = self._n_running
        most = n_running if seconds < _MANY_S * n_running else 2 * n_running
        n_pieces = 1 if n_running == 1 else max(1, min(most, n_rows, int(seconds / LEAST_S)))
        return [n_rows * i // n_pieces for i in range(n_pieces + 1)]

    def close(self) -> None:
        """Stop the threads."""
        if self._executor is not None:
            self._executor.shutdown()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _count_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkMeter:
    """Measures how long a row takes, to tell how long others will; only how work is divided depends on it."""

    def __init__(self) -> None:
        self._row_s = _FIRST_ROW_S

    def estimate(self, n_rows: int) -> float:
        """Return the seconds that rows will take one thread."""
        return n_rows * self._row_s

    @contextmanager
    def measure(self, n_rows: int, n_threads: int) -> Iterator[None]:
        """Measure work on some rows by several threads."""
        began = perf_counter()
        yield
        if n_rows:
            self._row_s = (self._row_s + (perf_counter() - began) * n_threads / n_rows) / 2


SERIAL = WorkerPool(1)
"""The calling thread alone."""


def apart(length: int, dtype: DTypeLike) -> NDArray[Any]:
    """Return an array of zeros that shares no cache line with another one, for counters of one thread of several.

    Two threads that write to one cache line wait for each other at every write.

    >>> apart(3, np.int64)
    array([0, 0, 0])
    """
    margin = _LINES // np.dtype(dtype).itemsize
    return np.zeros(length + 2 * margin, dtype)[margin : margin + length]
