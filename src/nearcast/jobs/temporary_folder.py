"""Temporary folders that do not outlive their process by much: the next one that is made removes those left behind.

    <tmp>/nearcast-temporary-5f0c91aa/         the folder
    <tmp>/nearcast-temporary-5f0c91aa.lock     locked by the process that uses it, as long as it lives

A process that is killed cannot remove its folder, but the system releases its lock. A folder whose lock is free is
therefore abandoned, whatever its age. One whose lock is taken is never touched, nor is one without a lock file.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

_PREFIX = "nearcast-temporary-"
_LOCK = re.compile(rf"{_PREFIX}[0-9a-f]{{16}}\.lock")


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a new folder that is removed at the end; remove those of processes that were killed."""
    root = Path(tempfile.gettempdir())
    _remove_abandoned(root)
    folder = root / f"{_PREFIX}{secrets.token_hex(8)}"
    lock = FileLock(_lock_file(folder), mode=0o600)
    with lock:  # before the folder exists, so that a folder without a holder is an abandoned one
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            _remove(folder)


def _remove_abandoned(root: Path) -> None:
    """Remove the folders of this user whose lock is free."""
    for path in root.iterdir():
        if _LOCK.fullmatch(path.name) is None:
            continue
        with suppress(OSError, Timeout):
            if path.lstat().st_uid == os.getuid():
                with FileLock(path, blocking=False):
                    _remove(path.with_suffix(""))


def _remove(folder: Path) -> None:
    """Remove a folder and then its lock file; the caller holds the lock."""
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        _lock_file(folder).unlink(missing_ok=True)


def _lock_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")
