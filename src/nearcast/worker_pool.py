"""The threads of an engine, which take pieces of work as they become free."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Piece = TypeVar("Piece")
Done = TypeVar("Done")

_LEAST_ROWS = 64  # a piece with fewer rows costs more to hand over than to do
_PIECES_PER_THREAD = 2  # so that a thread that is done early takes one from another


class WorkerPool:
    """Some threads; the calling thread is one of them.

    >>> with WorkerPool(2) as pool:
    ...     pool.map(lambda n: n * n, range(4))
    [0, 1, 4, 9]
    """

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self._executor = ThreadPoolExecutor(n_threads - 1, "nearcast") if n_threads > 1 else None

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

        others = [self._executor.submit(run) for _ in range(min(self.n_threads, len(given)) - 1)]
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

    def for_rows(self, n_rows: int) -> WorkerPool:
        """Return the pool for work on some rows: this one, or the calling thread alone if they are few."""
        return self if n_rows >= _LEAST_ROWS else SERIAL

    def cuts(self, n_rows: int) -> list[int]:
        """Return where rows are cut into pieces: the first row of each, and the end.

        >>> WorkerPool(1).cuts(1000), WorkerPool(2).cuts(100), WorkerPool(2).cuts(1000)
        ([0, 1000], [0, 100], [0, 250, 500, 750, 1000])
        """
        n_pieces = 1
        if self.n_threads > 1:
            n_pieces = max(1, min(_PIECES_PER_THREAD * self.n_threads, n_rows // _LEAST_ROWS))
        return [n_rows * i // n_pieces for i in range(n_pieces + 1)]

    def close(self) -> None:
        """Stop the threads."""
        if self._executor is not None:
            self._executor.shutdown()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


SERIAL = WorkerPool(1)
"""The calling thread alone."""
