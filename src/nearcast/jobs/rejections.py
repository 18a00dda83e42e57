"""Rows that shards reject, because only they know whether a row is good: files that the query of bad rows reads.

    a shard ── <state>/rejected/<query>-00000017-1.json ── the stream `rejected`       batch 17, shard 1

Most rows are checked before they reach a shard, in either query for itself. What depends on the time of the batch, or
on the order across sources, is decided once, here. A replayed batch writes the same file under the same name, and
Spark reads a file once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from nearcast.jobs.folder import Folder

REJECTED = "rejected"
"""The folder of these files, in the folder of the state."""


class Rejection(NamedTuple):
    """A rejected row."""

    source: str
    row: str
    """The row as JSON."""
    reason: str


def write_rejections(state: str, query: str, batch: int, shard: int, rejections: Sequence[Rejection]) -> None:
    """Write the rows that a shard has rejected in a batch."""
    if rejections:
        lines = "".join(f"{json.dumps(rejection._asdict())}\n" for rejection in rejections)
        Folder(state).write(f"{REJECTED}/{query}-{batch:08d}-{shard}.json", lines.encode())


def rejections_folder(state: str) -> str:
    """Return the folder of these files, which exists from now on."""
    folder = Folder(state)
    folder.files.create_dir(f"{folder.path}/{REJECTED}", recursive=True)
    return f"{state}/{REJECTED}"
