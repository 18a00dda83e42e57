"""Seeded streams: random numbers of row i depend on its block only, not on where reading starts.

A stream has a seed and a name. It is made in fixed blocks, each from its own generator, and then cut to the requested
tables, so neither the start nor the size of the tables changes a single byte:

    made      |0 ....... 8191|8192 ..... 16383|16384 ...
    requested      start |--- block ---|--- block ---|-- rest --|

Streams of different names are independent. Cost: at most one extra block at either end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from zlib import crc32

import numpy as np
import pyarrow as pa

from nearcast.errors import require

BLOCK = 8192


def generator(seed: int, stream: str, block: int = 0) -> np.random.Generator:
    """Return the generator of one block of a named stream.

    >>> draws = [generator(7, name, block).random() for name, block in [("a", 0), ("a", 0), ("a", 1), ("b", 0)]]
    >>> draws[0] == draws[1], len(set(draws))
    (True, 3)
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(crc32(stream.encode()), block)))


def cut(make: Callable[[int], pa.Table], n: int, *, start: int = 0, block: int = BLOCK) -> Iterator[pa.Table]:
    """Yield rows start to start + n of an endless table, `block` rows at a time; `make(b)` is its b-th `BLOCK` rows.

    >>> endless = lambda b: pa.table({"row": np.arange(b * BLOCK, (b + 1) * BLOCK)})
    >>> [(t["row"][0].as_py(), t.num_rows) for t in cut(endless, 10_000, start=8_000, block=6_000)]
    [(8000, 6000), (14000, 4000)]
    """
    for name, value, least in (("n", n, 0), ("start", start, 0), ("block", block, 1)):
        ok = isinstance(value, int) and not isinstance(value, bool) and value >= least
        require(ok, name, f"must be an integer of {least} or more", value)
    return _cut(make, start, start + n, block)


def _cut(make: Callable[[int], pa.Table], row: int, end: int, block: int) -> Iterator[pa.Table]:
    parts: list[pa.Table] = []
    held = 0
    while row < end:
        number, skip = divmod(row, BLOCK)
        table = make(number).slice(skip, end - row)
        row += table.num_rows
        while table.num_rows:
            part = table.slice(0, block - held)
            table = table.slice(part.num_rows)
            parts.append(part)
            held += part.num_rows
            if held == block:
                yield _join(parts)
                parts, held = [], 0
    if parts:
        yield _join(parts)


def _join(parts: list[pa.Table]) -> pa.Table:
    return parts[0] if len(parts) == 1 else pa.concat_tables(parts).combine_chunks()
