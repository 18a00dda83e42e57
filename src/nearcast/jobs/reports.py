"""Reports of shards: one small file per batch and shard, beside the state.

    <state>/<query>/reports/00000017.1.json      batch 17, shard 1

Rows could carry the reports, but Spark would then inspect every update for them. A replayed batch writes its report
again; old reports are removed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyarrow import fs

from nearcast.jobs.folder import Folder

_KEPT = 200  # batches; Spark itself remembers a hundred


def write_report(folder: Folder, batch: int, shard: int, report: Mapping[str, Any]) -> None:
    """Write the report of a shard, and remove an old one."""
    folder.write(_name(batch, shard), json.dumps(report).encode())
    folder.remove([_name(batch - _KEPT, shard)])


class Reports:
    """Reads the reports of a job that runs here or elsewhere."""

    def __init__(self, state: str) -> None:
        self._folder = Folder(state)
        self._seen: set[str] = set()

    def new(self) -> list[dict[str, Any]]:
        """Return the reports since the last call, oldest batch first; removed ones are skipped."""
        names = {
            f"{query}/reports/{name}"
            for query in _names(self._folder, "")
            for name in _names(self._folder, f"{query}/reports")
        }
        new = sorted(names - self._seen, key=lambda name: name.rpartition("/")[2])
        self._seen = names
        return [json.loads(report) for name in new if (report := self._read(name)) is not None]

    def _read(self, name: str) -> bytes | None:
        """Return a report; None if it was removed meanwhile."""
        try:
            return self._folder.read(name)
        except FileNotFoundError:
            return None


def read_batch(folder: Folder, batch: int) -> list[str]:
    """Return the reports of all shards for a batch, as JSON."""
    names = sorted(_names(folder, "reports"))
    return [folder.read(f"reports/{name}").decode() for name in names if name.startswith(f"{batch:08d}.")]


def _names(folder: Folder, within: str) -> list[str]:
    """Return the names in a folder, except for files that are being written."""
    where = fs.FileSelector(f"{folder.path}/{within}", allow_not_found=True)
    found = (info.base_name for info in folder.files.get_file_info(where))
    return [name for name in found if not name.startswith(".")]


def _name(batch: int, shard: int) -> str:
    return f"reports/{batch:08d}.{shard}.json"
