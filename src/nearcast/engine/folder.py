"""The folder of an engine: one arena per shard and kind, under a seal.

    folder/
      0.boolean/ ...     the arena of each shard and kind, mapped by the process that has the engine
      0.window/ ...      the arena of the window's messages
      results.arrow      results outside the arenas, written by `seal`
      graph.arrow        the social graph, once its edges have changed
      routing.arrow      the routing of the shards, if there is one
      seal.json          the mark, the counters, and the id of the machine's boot

A process seals an engine with a mark when no change is under way; the first change breaks the seal. A folder with a
seal is therefore complete, and the mark names its version. A folder without one was left in the middle of a change
and is useless. Processes exchange bytes through memory, not through the disk: a seal from an earlier boot does not
count.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from nearcast._jit.arena import Arena
from nearcast.errors import StateError

_SEAL = "seal.json"
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Sealed(NamedTuple):
    """What a seal covers besides the arenas."""

    counters: dict[str, Any]
    tables: dict[str, pa.Table]


class EngineFolder:
    """The folder of one engine."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = Path(path)
        self._token: str | None = None  # of the seal that this object wrote or opened

    def clear(self) -> None:
        """Create the folder, or empty it."""
        shutil.rmtree(self._path, ignore_errors=True)
        self._path.mkdir(parents=True)

    def arena(self, shard: int, kind: str) -> Arena:
        """Return the arena of a shard and kind; create it if there is none."""
        folder = self._path / f"{shard}.{kind}"
        return Arena.attach(folder) if folder.exists() else Arena(folder)

    def kinds(self, shard: int) -> list[str]:
        """Return the kinds that have an arena in a shard."""
        named = (folder.name.partition(".")[2] for folder in self._path.glob(f"{shard}.*") if folder.is_dir())
        return sorted(set(named) - {"window"})

    def seal(self, mark: str, sealed: Sealed) -> None:
        """Mark the folder as complete."""
        for name, table in sealed.tables.items():
            file = str(self._path / f"{name}.arrow")
            with pa.OSFile(file, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
        token = secrets.token_hex(8)
        content = {"mark": mark, "token": token, "boot": _boot(), "counters": sealed.counters}
        content["tables"] = list(sealed.tables)
        beside = self._path / f".seal-{token}"
        beside.write_text(json.dumps(content))
        beside.replace(self._path / _SEAL)
        self._token = token

    def is_sealed(self, mark: str) -> bool:
        """Return whether the seal is the one that this object wrote or opened, and bears a mark."""
        try:
            content = json.loads((self._path / _SEAL).read_text())
        except (OSError, ValueError):
            return False
        return bool(content["token"] == self._token and content["mark"] == mark)

    def break_seal(self) -> None:
        """Remove the seal before the first change."""
        if self._token is not None:
            (self._path / _SEAL).unlink(missing_ok=True)
            self._token = None

    def open(self, mark: str) -> Sealed:
        """Return what is sealed with a mark; raise `StateError` if the folder holds anything else."""
        try:
            content = json.loads((self._path / _SEAL).read_text())
        except (OSError, ValueError) as error:
            raise StateError(f"{self._path} must hold a sealed engine; {error}") from None
        if content["mark"] != mark or content["boot"] != _boot():
            raise StateError(f"{self._path} must be sealed with {mark!r} on this machine; got {content['mark']!r}")
        tables = {}
        for name in content["tables"]:
            with pa.OSFile(str(self._path / f"{name}.arrow"), "rb") as source:
                tables[name] = pa.ipc.open_file(source).read_all()
        self._token = content["token"]
        return Sealed(content["counters"], tables)


def _boot() -> str:
    """Return the id of the machine's boot, or of this process where the system has none."""
    return _BOOT.read_text().strip() if _BOOT.exists() else str(os.getpid())
