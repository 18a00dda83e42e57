"""Runs of `nearcast bench`, each in a process of its own, so that neither memory nor caches of one help the next."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from experiments.environment import ROOT
from experiments.question import Row, report_progress, scaled

SIZES = ("subscriptions", "messages", "window", "spark_batch")
"""Options that a scale multiplies."""


def bench(kind: str, *, scale: float = 1.0, checkout: Path = ROOT, **options: Any) -> Row:
    """Run `nearcast bench` of a checkout and return its figures, with the command that gave them.

    Options are those of the command line; True stands for an option without a value.
    """
    sizes = {name: scaled(options[name], scale) for name in SIZES if name in options}
    words = _arguments(kind, options | sizes)
    command = f"nearcast bench {' '.join(words)}"
    report_progress(command)
    environment = os.environ | {"PYTHONPATH": str(checkout / "src"), "NEARCAST_QUIET": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "nearcast.cli", "bench", *words, "--json"],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{command} failed in {checkout}:\n{done.stderr}")
    return {"command": command, **json.loads(done.stdout)}


def _arguments(kind: str, options: dict[str, Any]) -> list[str]:
    words = [kind]
    for name, value in options.items():
        words.append(f"--{name.replace('_', '-')}")
        if value is not True:
            words.append(_short(value) if name in SIZES else str(value))
    return words


def _short(n: int) -> str:
    """Return a size as people write it.

    >>> _short(1_000_000), _short(50_000), _short(5_000), _short(1_234_567)
    ('1M', '50k', '5000', '1234567')
    """
    if n >= 1_000_000 and n % 1_000_000 == 0:
        return f"{n // 1_000_000}M"
    return f"{n // 1_000}k" if n >= 10_000 and n % 1_000 == 0 else str(n)
