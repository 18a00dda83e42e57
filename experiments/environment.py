"""Where an experiment ran: the machine and the commit, for data files."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The checkout."""


def describe_machine() -> str:
    """Return the number of cores, the processor and the version of Python."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    processor = names[0] if names else platform.machine()
    return f"{os.cpu_count()} cores, {processor}, Python {platform.python_version()}"


def repository_commit() -> str:
    """Return the short hash of the current commit, with `-dirty` if code differs from it; data files may differ."""
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", "src", ":(glob)experiments/*.py")
    return _git("rev-parse", "--short", "HEAD") + ("-dirty" if changed else "")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
