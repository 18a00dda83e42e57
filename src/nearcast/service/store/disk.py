"""The space of the disk: below a minimum the service only reads, so that no write fails halfway."""

from __future__ import annotations

import shutil
from pathlib import Path

from nearcast.errors import NearcastError


class DiskFull(NearcastError):
    """The service only reads until the disk has space again."""


def free_bytes(folder: Path) -> int:
    """Return the free space of the disk that holds a folder."""
    return shutil.disk_usage(folder).free
