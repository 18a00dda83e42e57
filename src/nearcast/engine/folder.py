"""The folder of an engine: one arena per shard and kind, under a seal.

    folder/
      0.boolean/ ...     the arena of each shard and kind, mapped by the process that has the engine
      0.window/ ...      the arena of the window's messages
      0.messages/ ...    the arena of bodies and pending expiries
      results.arrow      results outside the arenas, written by `seal`
      graph.arrow        the social graph, once its edges have changed
      routing.arrow      the routing of the shards, if there is one
      seal.json          the mark, the counters, the package, the id of the machine's boot, checksums

A process seals an engine with a mark when no change is under way; the first change breaks the seal. A folder with a
seal is therefore complete, and the mark names its version. A folder without one was left in the middle of a change
and is useless. Processes exchange bytes through memory, not through the disk: a seal from an earlier boot does not
count. Neither does a seal of another package: its version and a digest of its sources stand for the arrays that there
are and what they hold.

The seal has a checksum over the names and sizes of all files, and over the contents of all but large arrays. A large
array is mapped and not read: summing it up would take longer than most batches. Its contents are trusted like memory.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import xxhash

import nearcast
from nearcast._jit.arena import Arena
from nearcast._jit.fingerprint import PACKAGE, folder_digest
from nearcast.engine.archive import digest_of
from nearcast.errors import FormatError, StateError

_SEAL = "seal.json"
_LARGE = 1 << 16  # bytes from which on the contents of an array are not part of the checksum
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

    def message_arena(self) -> Arena:
        """Return the arena of what the engine knows of messages beside the windows of its shards."""
        return self.arena(0, "messages")

    def has_message_arena(self) -> bool:
        """Return whether that arena exists."""
        return (self._path / "0.messages").exists()

    def kinds(self, shard: int) -> list[str]:
        """Return the kinds that have an arena in a shard."""
        named = (folder.name.partition(".")[2] for folder in self._path.glob(f"{shard}.*") if folder.is_dir())
        return sorted(set(named) - {"window", "messages"})

    def seal(self, mark: str, sealed: Sealed) -> None:
        """Mark the folder as complete."""
        for name, table in sealed.tables.items():
            file = str(self._path / f"{name}.arrow")
            with pa.OSFile(file, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
        token = secrets.token_hex(8)
        content = {
            "mark": mark,
            "token": token,
            "package": _package(),
            "boot": _boot(),
            "counters": sealed.counters,
            "tables": list(sealed.tables),
            "files": self._checksum(),
        }
        beside = self._path / f".seal-{token}"
        beside.write_text(json.dumps(content | {"sha256": digest_of(content)}))
        beside.replace(self._path / _SEAL)
        self._token = token

    def is_sealed(self, mark: str) -> bool:
        """Return whether the seal is the one that this object wrote or opened, and bears a mark."""
        try:
            content = self._read_seal()
        except (FormatError, StateError):
            return False
        return bool(content["token"] == self._token and content["mark"] == mark)

    def break_seal(self) -> None:
        """Remove the seal before the first change."""
        if self._token is not None:
            (self._path / _SEAL).unlink(missing_ok=True)
            self._token = None

    def open(self, mark: str) -> Sealed:
        """Return what is sealed with a mark.

        Raise `StateError` if the folder holds no engine or another one, `FormatError` if its files have changed.
        """
        content = self._read_seal()
        for name, value in (("mark", mark), ("package", _package()), ("boot", _boot())):
            if content[name] != value:
                raise StateError(f"{self._path} must be sealed with {name} {value!r}; got {content[name]!r}")
        if content["files"] != self._checksum():
            raise FormatError(f"{self._path} is not as it was sealed: its files differ")
        tables = {}
        for name in content["tables"]:
            with pa.OSFile(str(self._path / f"{name}.arrow"), "rb") as source:
                tables[name] = pa.ipc.open_file(source).read_all()
        self._token = content["token"]
        return Sealed(content["counters"], tables)

    def _read_seal(self) -> dict[str, Any]:
        """Return the seal; raise `StateError` if there is none, and `FormatError` if it has changed."""
        file = self._path / _SEAL
        try:
            content = json.loads(file.read_bytes())
        except OSError as error:
            raise StateError(f"{self._path} must hold a sealed engine; {error}") from None
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{file} must be JSON: {error}") from None
        if not isinstance(content, dict) or content.get("sha256") != digest_of(content):
            raise FormatError(f"{file} is not as it was written: its checksum differs")
        return content

    def _checksum(self) -> str:
        """Return the checksum of all files but the seal; of large arrays, only names and sizes count."""
        digest = xxhash.xxh3_128()
        for file in sorted(path for path in self._path.rglob("*") if path.is_file()):
            if file.name == _SEAL or file.name.startswith("."):
                continue
            size = file.stat().st_size
            digest.update(f"{file.relative_to(self._path)} {size}\n".encode())
            if size < _LARGE or file.suffix != ".array":
                digest.update(file.read_bytes())
        return digest.hexdigest()


@cache
def _package() -> str:
    """Return the version of this package with a digest of its sources, and of what runs them."""
    digest = xxhash.xxh3_128(folder_digest().encode())
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(path.read_bytes())
    return f"{nearcast.__version__} {digest.hexdigest()}"


def _boot() -> str:
    """Return the id of the machine's boot, or of this process where the system has none."""
    return _BOOT.read_text().strip() if _BOOT.exists() else str(os.getpid())
