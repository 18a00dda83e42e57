"""`nearcast warmup`: compile kernels now, so that no command and no request waits for a compiler.

Compiling all kinds takes minutes of CPU time, once per machine and version of the kernels. Kinds share few kernels,
so processes that compile one kind each hardly wait for each other. A marker in the folder of compiled code says that
everything was compiled.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import Any

NAME = "warmup"
HELP = "compile the kernels of all kinds now, in parallel, once per machine"

_LONGEST_FIRST = ("social", "topk", "similarity", "boolean", "nearest")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "kind", nargs="?", choices=_LONGEST_FIRST, metavar="KIND", help="one kind only, in one process"
    )


def run(options: argparse.Namespace) -> int:
    """Compile all kinds, or one."""
    if options.kind is None:
        warm_kinds()
    else:
        run_small_city(options.kind)
    return 0


def warm_up(call: Callable[[], Any]) -> None:
    """Run a small sample of the work; if that compiles kernels, print one line."""
    from nearcast._jit import warm

    warm([call], progress=_print)


def warm_kinds(progress: Callable[[str], Any] | None = None) -> None:
    """Compile the kernels of all built-in kinds in parallel, unless that was done before; report each kind."""
    progress = progress or _print
    marker = _marker()
    if marker.exists():
        with suppress(OSError):  # a read-only folder
            os.utime(marker)
        return
    n, done, command = len(_LONGEST_FIRST), 0, [sys.executable, "-m", "nearcast.cli", "warmup"]
    progress(f"compiling kernels, once per machine: 0 of {n} kinds done")
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        runs = {
            pool.submit(subprocess.run, [*command, kind], capture_output=True, text=True): kind
            for kind in _LONGEST_FIRST
        }
        for run in as_completed(runs):
            done += run.result().returncode == 0
            progress(f"compiling kernels: {done} of {n} kinds done ({runs[run]})")
    if done == n:
        with suppress(OSError):
            marker.touch()


def run_small_city(kind: str | None = None) -> None:
    """Use a small engine with subscriptions of all kinds, or of one."""
    from nearcast.service.config import ServiceConfig
    from nearcast.workload.city import City

    city = City()
    with ServiceConfig(city=city.seed, window_count=100).engine() as engine:
        engine.subscribe([one for one in city.subscriptions(50) if kind in (None, one.kind)])
        engine.publish(city.messages(3))


def _marker() -> Path:
    from nearcast._jit import cache_folder, kernel_sources

    sources = hashlib.sha256()
    for path in kernel_sources():
        sources.update(path.read_bytes())
    return cache_folder() / f"warm-{sources.hexdigest()[:24]}"


def _print(line: str) -> None:
    print(f"nearcast: {line}", file=sys.stderr, flush=True)
