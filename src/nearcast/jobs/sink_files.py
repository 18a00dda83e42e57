"""Committed files of a Spark file sink, in order.

    sink/part-00000-....json             rows; a file may exist that was never committed
    sink/_spark_metadata/7               the files of batch 7
    sink/_spark_metadata/9.compact       the files of all batches up to 9, in the order of batches

Spark's file sinks are exactly-once only for readers of this log. The log grows with the sink, but a reader needs to
remember only the last files that it has ingested: whatever the log names up to them is ingested too.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any
from urllib.parse import unquote, urlparse

from nearcast.jobs.folder import Folder

_LOG = "_spark_metadata"
_COMPACT = ".compact"


class SinkFiles:
    """Reads a folder of JSON lines that a query writes."""

    def __init__(self, folder: str) -> None:
        self._folder = Folder(folder)
        self._ingested = -1  # the last batch whose files are all ingested
        self._batch, self._files = -1, list[str]()  # what was returned last: up to which batch, which files

    def new(self, *, ingested: Collection[str]) -> list[str]:
        """Return the committed files after those that were ingested last, in order.

        The caller says which files are ingested, so one whose reading or ingesting failed is returned again.
        """
        if all(file in ingested for file in self._files):
            self._ingested = self._batch
        batches = self._batches()
        named = [file for _, name in batches for file in self._named(name)]
        first = max((i + 1 for i, file in enumerate(named) if file in ingested), default=0)
        self._batch, self._files = batches[-1][0] if batches else self._ingested, named[first:]
        return self._files

    def rows_of(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of a file."""
        for line in self._folder.read(name).splitlines():
            yield json.loads(line)

    def _named(self, name: str) -> list[str]:
        """Return the files that an entry of the log names."""
        lines = self._folder.read(f"{_LOG}/{name}").decode().splitlines()[1:]  # the first line is a version
        return [unquote(urlparse(json.loads(line)["path"]).path).rpartition("/")[2] for line in lines]

    def _batches(self) -> list[tuple[int, str]]:
        """Return the entries of the log that are needed for new batches, oldest first."""
        names = [name for name in self._folder.names(_LOG) if name[0].isdigit()]
        numbered = sorted((int(name.removesuffix(_COMPACT)), name) for name in names)
        compacted = max((batch for batch, name in numbered if name.endswith(_COMPACT)), default=-1)
        new = [(batch, name) for batch, name in numbered if batch > self._ingested and batch >= compacted]
        known = max(self._ingested + 1, compacted)  # 0 if nothing is known: then the log may begin anywhere
        first = known or (new[0][0] if new else 0)
        # A listing that is made while entries are added may show one without its predecessor: stop before it.
        return [entry for i, entry in enumerate(new) if entry[0] == first + i]
