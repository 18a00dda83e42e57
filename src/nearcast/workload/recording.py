"""Recorded messages: Parquet files, streamed as messages.

    file      id int64   ts timestamp   lat double   lon double   text string   place string     others are ignored
    message   id string  at             y            x            text          place

A path is a file or a folder, whose Parquet files are read in the order of their names, subfolders included. A path
that does not exist is looked up under the folder that the environment variable `NEARCAST_DATA` names; without a path,
that folder is read. A time without a zone is UTC.

Rows without an id, and rows whose coordinates are null, not finite or not on the earth, are skipped and counted. A
null text is empty.

A recording also yields subscriptions made from its messages, as the generated workloads do. They are drawn from a
pool of random rows, so memory is bounded by the pool and not by the files.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nearcast.errors import FormatError, InvalidInput, require
from nearcast.space import Box, Space
from nearcast.text import Vocabulary, tokenize
from nearcast.workload.columns import TEXT_MESSAGES
from nearcast.workload.community import Community
from nearcast.workload.sample import MessageSample, TermRanks, start_of
from nearcast.workload.streams import BLOCK, generator
from nearcast.workload.subscriptions import subscribe

Floats = npt.NDArray[np.float64]

ENVIRONMENT = "NEARCAST_DATA"

_COLUMNS = {"id": "id", "x": "lon", "y": "lat", "text": "text", "at": "ts", "place": "place"}
_SCAN_ROWS = 65_536
_OPERATORS = {"and", "or", "not"}  # as keywords they would be operators of a boolean expression


def load(path: str | Path | None = None, *, seed: int = 0, pool: int = 100_000) -> Recording:
    """Open a file or a folder; nothing is read yet.

    `seed` and `pool`, the number of rows to draw from, are for subscriptions.
    """
    require(pool >= 1, "pool", "must be 1 or more", pool)
    found = _find(path)
    files = sorted(found.rglob("*.parquet")) if found.is_dir() else [found]
    require(len(files) > 0, "path", "must be a Parquet file or hold one", str(found))
    return Recording(found.name, files, seed=seed, pool=pool)


class Recording:
    """Messages in files. Iteration streams them; `skipped` counts the rows that the last pass left out."""

    def __init__(self, name: str, files: list[Path], *, seed: int, pool: int) -> None:
        self.name, self.files, self.seed, self.pool = name, files, seed, pool
        self.skipped = 0

    def __iter__(self) -> Iterator[pa.Table]:
        return self.messages()

    def messages(self, n: int | None = None, *, start: int = 0, block: int = BLOCK) -> Iterator[pa.Table]:
        """Yield messages start to start + n, or to the last, at most `block` rows per table; no table is empty."""
        require(n is None or n >= 0, "n", "must be 0 or more", n)
        require(start >= 0, "start", "must be 0 or more", start)
        require(block >= 1, "block", "must be 1 or more", block)
        return self._counted(n, start, block)

    @cached_property
    def bounds(self) -> Box:
        """Return the smallest box around the messages; the first use reads all coordinates."""
        lows, highs = np.full(2, np.inf), np.full(2, -np.inf)
        for table, _ in self._stream(_SCAN_ROWS, ["id", "x", "y"]):
            points = np.stack([table["x"].to_numpy(), table["y"].to_numpy()])
            lows = np.minimum(lows, points.min(axis=1, initial=np.inf))
            highs = np.maximum(highs, points.max(axis=1, initial=-np.inf))
        require(bool(np.all(lows <= highs)), "path", "must hold at least one message", self.name)
        return Box(*lows.tolist(), *highs.tolist())

    def space(self, *, max_distance: float | None = None) -> Space:
        """Return the space of the messages: the earth, within their bounds."""
        return Space(self.bounds, metric="haversine", max_distance=max_distance)  # type: ignore[arg-type]

    def vocabulary(self) -> Vocabulary:
        """Return the document frequencies of the pool."""
        return self._pool.vocabulary

    def terms(self) -> pa.StringArray:
        """Return the terms of the pool, the most frequent first."""
        return self._pool.terms

    def sample(self, rng: np.random.Generator, n: int) -> MessageSample:
        """Draw messages of the pool."""
        pool = self._pool.messages
        rows = (rng.random(n) * len(pool.texts)).astype(np.int64)
        return MessageSample(pool.xs[rows], pool.ys[rows], pool.texts.take(rows))

    def subscriptions(
        self,
        kind: str,
        n: int,
        *,
        start: int = 0,
        k: int | None = None,
        queries: str = "q1",
        block: int = BLOCK,
        community: Community | None = None,
    ) -> Iterator[pa.Table]:
        """Yield subscriptions start to start + n of a kind; see `nearcast.workload.subscriptions`."""
        return subscribe(self, kind, n, start=start, k=k, queries=queries, block=block, community=community)

    @cached_property
    def _pool(self) -> _Pool:
        """Keep each row with the same probability, so that about `pool` remain."""
        chance = min(1.0, self.pool / max(1, sum(_rows_of(file) for file in self.files)))
        rng = generator(self.seed, f"{self.name}/pool")
        tables = []
        for table, _ in self._stream(_SCAN_ROWS, ["id", "x", "y", "text"]):
            tables.append(table.filter(pa.array(rng.random(table.num_rows) < chance)))
        rows = pa.concat_tables(tables) if tables else TEXT_MESSAGES.empty_table()
        return _count(rows["x"].to_numpy(), rows["y"].to_numpy(), rows["text"].to_pylist(), self.name)

    def _counted(self, n: int | None, start: int, block: int) -> Iterator[pa.Table]:
        self.skipped = 0
        wanted = float("inf") if n is None else n
        if not wanted:
            return
        for table, skipped in self._stream(block, list(_COLUMNS)):
            self.skipped += skipped
            part = table.slice(start)
            start -= table.num_rows - part.num_rows
            part = part.slice(0, int(min(wanted, part.num_rows)))
            wanted -= part.num_rows
            if part.num_rows:
                yield part
            if not wanted:
                return

    def _stream(self, block: int, columns: list[str]) -> Iterator[tuple[pa.Table, int]]:
        """Yield some columns of the usable rows, and the number of skipped rows."""
        for file in self.files:
            for batch in _batches(file, block, [_COLUMNS[column] for column in columns]):
                table = _convert(batch, columns, file)
                rows = table.filter(_usable(table))
                yield rows, table.num_rows - rows.num_rows


class _Pool(NamedTuple):
    """Messages to draw from."""

    messages: MessageSample
    terms: pa.StringArray
    vocabulary: Vocabulary


def _count(xs: Floats, ys: Floats, texts: list[str], name: str) -> _Pool:
    """Rank the terms of some messages by their document frequency; messages without a term are left out."""
    rows = [sorted(set(tokenize(text)) - _OPERATORS) for text in texts]
    frequencies = Counter(term for row in rows for term in row)
    require(len(frequencies) > 0, "path", "must hold a message with a term", name)
    ranking = sorted(frequencies, key=lambda term: (-frequencies[term], term))
    rank_of = {term: rank for rank, term in enumerate(ranking)}
    ranks = np.fromiter((rank_of[term] for row in rows for term in row), dtype=np.int64)
    sizes = np.fromiter((len(row) for row in rows), dtype=np.int64, count=len(rows))
    full = sizes > 0
    return _Pool(
        messages=MessageSample(xs[full], ys[full], TermRanks(start_of(sizes[full]), ranks)),
        terms=pa.array(ranking, pa.string()),
        vocabulary=Vocabulary(documents=len(rows), frequencies=frequencies),
    )


def _find(path: str | Path | None) -> Path:
    """Return the location of a path, as given or under the folder of the environment."""
    folder = os.environ.get(ENVIRONMENT)
    hint = f"Give a path, or set {ENVIRONMENT} to a folder"
    if path is None:
        if not folder:
            raise InvalidInput("path", f"must be given where {ENVIRONMENT} is not set", None, hint=hint)
        path = folder
    tried = [Path(path)] + ([Path(folder) / path] if folder else [])
    for candidate in tried:
        if candidate.exists():
            return candidate.resolve()
    raise InvalidInput("path", "must exist", str(path), hint=hint)


def _open(file: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as error:
        raise FormatError(f"{file} is not a Parquet file that can be read: {error}") from error


def _rows_of(file: Path) -> int:
    with _open(file) as opened:
        return int(opened.metadata.num_rows)


def _batches(file: Path, block: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
    with _open(file) as opened:
        present = opened.schema_arrow.names
        missing = [column for column in _COLUMNS.values() if column not in present]
        if missing:
            raise FormatError(f"{file} lacks the columns {', '.join(missing)}; it has {', '.join(present)}")
        try:
            yield from opened.iter_batches(batch_size=block, columns=columns)
        except (pa.ArrowException, OSError) as error:
            raise FormatError(f"{file} cannot be read: {error}") from error


def _convert(batch: pa.RecordBatch, columns: list[str], file: Path) -> pa.Table:
    """Rename and cast the columns of a file to those of a message."""
    arrays = []
    for column in columns:
        source, wanted = batch.column(_COLUMNS[column]), TEXT_MESSAGES.field(column).type
        try:
            arrays.append(source.cast(wanted))
        except pa.ArrowException as error:
            was = f"{source.type}, which does not become {wanted}: {error}"
            raise FormatError(f"{file}, column {_COLUMNS[column]}, is {was}") from error
        if column == "text":
            arrays[-1] = pc.fill_null(arrays[-1], "")
    return pa.Table.from_arrays(arrays, schema=pa.schema([TEXT_MESSAGES.field(column) for column in columns]))


def _usable(table: pa.Table) -> pa.ChunkedArray:
    """Return which rows have an id and lie on the earth; a comparison with NaN is false, one with null is null."""
    on_earth = pc.and_(
        pc.less_equal(pc.abs(table["x"]), 180.0),
        pc.less_equal(pc.abs(table["y"]), 90.0),
    )
    return pc.and_(pc.is_valid(table["id"]), pc.fill_null(on_earth, False))
