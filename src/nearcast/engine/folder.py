"""Where does an engine live that several processes take turns with? In a folder of arenas, under a seal.

    folder/
      0.boolean/ ...     the arena of each shard and kind, mapped by whoever has the engine
      0.window/ ...      that of the messages of the window
      results.arrow      results that lie in no arena, written when it is sealed
      seal.json          the mark, counters, and which start of the machine this was

An engine is sealed with a mark when nobody is about to change it, and the seal is broken by the first change. So a
folder that carries a seal is whole, and says by its mark which moment it is; one without was left in the middle of
something, and is of no use. Bytes are handed over in memory, not through the disk: a seal from before the machine was
started again counts for nothing.
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
    """What a seal vouches for, arenas apart."""

    counters: dict[str, Any]
    tables: dict[str, pa.Table]


class EngineFolder:
    """A folder for the state of one engine."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = Path(path)
        self._token: str | None = None  # of the seal that is ours

    def clear(self) -> None:
        """Make the folder, empty."""
        shutil.rmtree(self._path, ignore_errors=True)
        self._path.mkdir(parents=True)

    def arena(self, shard: int, kind: str) -> Arena:
        """Return the arena of a shard and kind; a new one, if there is none."""
        folder = self._path / f"{shard}.{kind}"
        return Arena.attach(folder) if folder.exists() else Arena(folder)

    def kinds(self, shard: int) -> list[str]:
        """Return the kinds of which a shard has an arena."""
        named = (folder.name.partition(".")[2] for folder in self._path.glob(f"{shard}.*") if folder.is_dir())
        return sorted(set(named) - {"window"})

    def seal(self, mark: str, sealed: Sealed) -> None:
        """Say that everything is as it should be, under a mark."""
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

    def holds(self, mark: str) -> bool:
        """Tell whether the seal is the one that was put on or found here, and bears a mark."""
        try:
            content = json.loads((self._path / _SEAL).read_text())
        except (OSError, ValueError):
            return False
        return bool(content["token"] == self._token and content["mark"] == mark)

    def break_seal(self) -> None:
        """Take the seal off before the first change."""
        if self._token is not None:
            (self._path / _SEAL).unlink(missing_ok=True)
            self._token = None

    def open(self, mark: str) -> Sealed:
        """Return what is sealed with a mark; raise `StateError` if that is not what is here."""
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
    """Return what tells one start of the machine from another; where the system does not say, the process."""
    return _BOOT.read_text().strip() if _BOOT.exists() else str(os.getpid())
