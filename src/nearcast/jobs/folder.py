"""Folders of state, reports and input files, on any file system that Arrow or `fsspec` knows.

    <state>/<query>/settings.json                        the settings that the query was started with
    <state>/<query>/<shard>/00000007-<token>.frames      the frames of the batch that made version 7
    <state>/<query>/<shard>/00000006-<token>.engine      the engine at version 6, a tar of its folder

A file is written under another name and moved into place, so an existing file is complete. Every attempt at a batch
writes files of its own; the manifest of the shard names those that count.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import tarfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyarrow import fs

from nearcast.errors import InvalidInput, StateError

SETTINGS = "settings.json"
_AS_ARROW_NAMES_IT = re.compile(r"^s3[an]://")
"""Hadoop's names of the scheme that Arrow calls s3."""


class Folder:
    """A folder.

    >>> from tempfile import mkdtemp
    >>> folder = Folder(mkdtemp())
    >>> folder.write("a/b", b"seven"), folder.read("a/b"), folder.size("a/b")
    (5, b'seven', 5)
    >>> folder.remove(["a/b", "never there"]), folder.size("a/b")
    (None, None)
    """

    def __init__(self, uri: str) -> None:
        self.files, self.path = _open(uri)

    @property
    def is_local(self) -> bool:
        """True if files lie in the file system of this machine."""
        return isinstance(self.files, fs.LocalFileSystem)

    def read(self, name: str) -> bytes:
        """Return a whole file."""
        with self.files.open_input_stream(self._at(name)) as source:
            return source.read()  # type: ignore[no-any-return]

    def write(self, name: str, data: bytes) -> int:
        """Write a whole file; return its size."""
        with self._writing(name) as sink:
            sink.write(data)
        return len(data)

    def write_tree(self, name: str, tree: Path) -> int:
        """Write a local folder as one file; return its size."""
        with self._writing(name) as sink, tarfile.open(fileobj=sink, mode="w|") as tar:
            tar.add(tree, arcname=".")
        return self.size(name) or 0

    def read_tree(self, name: str, tree: Path) -> None:
        """Unpack a file of `write_tree` into a local folder."""
        with (
            self.files.open_input_stream(self._at(name)) as source,
            tarfile.open(fileobj=source, mode="r|") as tar,
        ):
            tar.extractall(tree, filter="data")

    def size(self, name: str) -> int | None:
        """Return the size of a file, or None."""
        info = self.files.get_file_info(self._at(name))
        return info.size if info.type == fs.FileType.File else None

    def names(self, within: str) -> list[str]:
        """Return the names in a folder, unordered; those of unfinished files begin with a dot."""
        where = fs.FileSelector(self._at(within).rstrip("/"), allow_not_found=True)
        return [info.base_name for info in self.files.get_file_info(where)]

    def remove(self, names: list[str]) -> None:
        """Remove files; missing ones are ignored."""
        for name in names:
            with suppress(FileNotFoundError):
                self.files.delete_file(self._at(name))

    def remove_folder(self, name: str) -> None:
        """Remove a folder with all that is in it; a missing one is ignored."""
        with suppress(FileNotFoundError):
            self.files.delete_dir(self._at(name))

    def claim(self, settings: dict[str, Any]) -> None:
        """Record the settings that a query is started with; raise `StateError` if it was started with others."""
        if self.size(SETTINGS) is None:
            self.write(SETTINGS, json.dumps(settings, indent=1).encode())
        before = json.loads(self.read(SETTINGS))
        for name, value in settings.items():
            if before.get(name) != value:
                rule = f"{name} must be {before.get(name)!r}, as when the query was first started"
                raise StateError(f"{rule}; got {value!r} (state in {self.path})")

    def _at(self, name: str) -> str:
        return posixpath.join(self.path, name)

    def _writing(self, name: str) -> _Writing:
        return _Writing(self.files, self._at(name))


class _Writing:
    """A file that gets its name once it is complete."""

    def __init__(self, files: fs.FileSystem, target: str) -> None:
        self._files, self._target = files, target
        folder, name = posixpath.split(target)
        self._beside = posixpath.join(folder, f".{name}.{os.uname().nodename}-{os.getpid()}")
        files.create_dir(folder, recursive=True)

    def __enter__(self) -> Any:
        self._sink = self._files.open_output_stream(self._beside)
        return self._sink

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._sink.close()
        if kind is None:
            self._files.move(self._beside, self._target)
        else:
            self._files.delete_file(self._beside)


def _open(uri: str) -> tuple[fs.FileSystem, str]:
    if "://" not in uri and not uri.startswith("file:"):
        return fs.LocalFileSystem(), str(Path(uri).absolute())
    try:
        files, path = fs.FileSystem.from_uri(_AS_ARROW_NAMES_IT.sub("s3://", uri))
    except (ValueError, OSError) as error:
        return _open_by_fsspec(uri, error)
    return files, path


def _open_by_fsspec(uri: str, error: Exception) -> tuple[fs.FileSystem, str]:
    try:
        import fsspec

        files, path = fsspec.core.url_to_fs(uri)
    except (ImportError, ValueError):
        hint = "Install fsspec and what it needs for this scheme."
        raise InvalidInput("state", f"must be a folder that Arrow can open ({error})", uri, hint=hint) from None
    return fs.PyFileSystem(fs.FSSpecHandler(files)), path
