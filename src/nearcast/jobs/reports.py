"""Reports of shards: one small file per batch and shard, beside the state.

    <state>/<query>/reports/00000017.1.json      batch 17, shard 1

Rows could carry the reports, but Spark would then inspect every update for them. A replayed batch writes its report
again; old reports are removed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from nearcast.jobs.folder import Folder

_log = logging.getLogger(__name__)
_KEPT = 200  # batches; Spark itself remembers a hundred


def write_report(folder: Folder, batch: int, shard: int, report: Mapping[str, Any]) -> None:
    """Write the report of a shard, and remove an old one."""
    folder.write(_name(batch, shard), json.dumps(report).encode())
    folder.remove([_name(batch - _KEPT, shard)])


def write_merge_report(folder: Folder, batch: int, partition: int, report: Mapping[str, Any]) -> None:
    """Do the same with the report of a partition of the merge stage, which has the key "merge" instead of "shard"."""
    folder.write(_merge_name(batch, partition), json.dumps(report).encode())
    folder.remove([_merge_name(batch - _KEPT, partition)])


class Reports:
    """Reads the reports of a job that runs here or elsewhere."""

    def __init__(self, state: str) -> None:
        self._folder = Folder(state)
        self._seen: set[str] = set()

    def new(self) -> list[dict[str, Any]]:
        """Return the reports since the last call that succeeded, oldest batch first; removed ones are skipped."""
        names = {
            f"{query}/reports/{name}"
            for query in _names(self._folder, "")
            for name in _names(self._folder, f"{query}/reports")
        }
        new = sorted(names - self._seen, key=lambda name: name.rpartition("/")[2])
        reports = [json.loads(report) for name in new if (report := _read(self._folder, name)) is not None]
        self._seen = names  # not before all are read
        return reports


def read_batch(folder: Folder, batch: int) -> list[str]:
    """Return the reports of all shards for a batch, as JSON."""
    names = sorted(name for name in _names(folder, "reports") if name.startswith(f"{batch:08d}."))
    return [report for name in names if (report := _read(folder, f"reports/{name}")) is not None]


def _read(folder: Folder, name: str) -> str | None:
    """Return a report; None if it was removed since it was listed, or is damaged: others still count."""
    try:
        report = folder.read(name)
        json.loads(report)
        return report.decode()
    except FileNotFoundError:
        return None
    except ValueError as error:
        _log.warning("%s is not a report: %s", name, error)
        return None


def _names(folder: Folder, within: str) -> list[str]:
    """Return the names in a folder, except for files that are being written."""
    return [name for name in folder.names(within) if not name.startswith(".")]


def _name(batch: int, shard: int) -> str:
    return f"reports/{batch:08d}.{shard}.json"


def _merge_name(batch: int, partition: int) -> str:
    return f"reports/{batch:08d}.merge-{partition}.json"
