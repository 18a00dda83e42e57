"""Committed files of a Spark file sink, in order, each once.

    sink/part-00000-....json             rows; a file may exist that was never committed
    sink/_spark_metadata/7               the files of batch 7
    sink/_spark_metadata/9.compact       the files of all batches up to 9

Spark's file sinks are exactly-once only for readers of this log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote, urlparse

from pyarrow import fs

from nearcast.jobs.folder import Folder

_LOG = "_spark_metadata"
_COMPACT = ".compact"


class SinkFiles:
    """Reads a folder of JSON lines that a query writes."""

    def __init__(self, folder: str, seen: Iterable[str] = ()) -> None:
        """Read a folder, skipping files in `seen`."""
        self._folder = Folder(folder)
        self._seen = set(seen)
        self._last = -1

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows committed since the last call."""
        for name in self.files():
            yield from self.rows_of(name)

    def rows_of(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of a file."""
        for line in self._folder.read(name).splitlines():
            yield json.loads(line)

    def files(self) -> Iterator[str]:
        """Yield the names of files committed since the last call."""
        for batch, name in self._batches():
            for line in self._folder.read(f"{_LOG}/{name}").decode().splitlines()[1:]:  # the first line is a version
                path = unquote(urlparse(json.loads(line)["path"]).path)
                file = path.rpartition("/")[2]
                if file not in self._seen:
                    self._seen.add(file)
                    yield file
            self._last = batch

    def _batches(self) -> list[tuple[int, str]]:
        """Return the log entries of new batches, oldest first."""
        where = fs.FileSelector(f"{self._folder.path}/{_LOG}", allow_not_found=True)
        names = [info.base_name for info in self._folder.files.get_file_info(where)]
        numbered = [(int(name.removesuffix(_COMPACT)), name) for name in names if name[0].isdigit()]
        return sorted((batch, name) for batch, name in numbered if batch > self._last)
