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
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

NAME = "warmup"
HELP = "compile the kernels of all kinds now, in parallel, once per machine"

_LOOK_EVERY_S = 0.05
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


def warm_kinds(
    report: Callable[[str], Any] = lambda line: None, is_stopping: Callable[[], bool] = lambda: False
) -> None:
    """Compile the kernels of all built-in kinds in parallel, unless that was done before; print each kind."""
    with KindCompiler() as compiler:
        while not compiler.is_done and not is_stopping():
            line = compiler.poll()
            if line is not None:
                print(f"nearcast: {line}", file=sys.stderr, flush=True)
                report(line)
            time.sleep(_LOOK_EVERY_S)


class KindCompiler:
    """Compiles the kernels of each kind in a process of its own, as many at a time as there are cores.

    Processes that still run at the end of the block are killed: what they have compiled is kept.
    """

    def __init__(self) -> None:
        self._marker, self._n_done = _marker(), 0
        is_compiled = self._marker.exists()
        if is_compiled:
            with suppress(OSError):  # a read-only folder
                os.utime(self._marker)
        self._waiting = [] if is_compiled else list(_LONGEST_FIRST)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._reported = self.line

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()

    @property
    def is_done(self) -> bool:
        """True if nothing is left to compile."""
        return not self._waiting and not self._running

    @property
    def line(self) -> str:
        """The progress in words."""
        return f"compiling kernels, once per machine: {self._n_done} of {len(_LONGEST_FIRST)} kinds done"

    def poll(self) -> str | None:
        """Start and end processes; return the progress if it has changed since the last call."""
        if self.is_done:
            return None
        is_first = not self._running and self._n_done == 0
        for kind, process in list(self._running.items()):
            if process.poll() is not None:
                del self._running[kind]
                self._n_done += process.returncode == 0
        while self._waiting and len(self._running) < (os.cpu_count() or 1):
            kind = self._waiting.pop(0)
            command = [sys.executable, "-m", "nearcast.cli", "warmup", kind]
            self._running[kind] = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if self.is_done and self._n_done == len(_LONGEST_FIRST):
            with suppress(OSError):
                self._marker.touch()
        before, self._reported = self._reported, self.line
        return self.line if is_first or self.line != before else None


def run_small_city(kind: str | None = None) -> None:
    """Use small engines with subscriptions of all kinds, or of one, for everything that calls a kernel."""
    from tempfile import TemporaryDirectory

    from nearcast.engine import Engine
    from nearcast.service.config import ServiceConfig
    from nearcast.workload.city import City

    city = City()
    chosen = [one for one in city.subscriptions(100) if kind in (None, one.kind)]
    half = len(chosen) // 2
    with ServiceConfig(city=city.seed, window_count=50).engine() as engine, TemporaryDirectory() as folder:
        engine.subscribe(chosen[:half])
        for _ in range(4):  # more than the window holds
            engine.publish(city.messages(20))
        engine.subscribe(chosen)  # some are replaced
        engine.publish(city.messages(20))
        engine.unsubscribe([one.id for one in chosen[half:]])
        engine.results(chosen[0].id)
        engine.save(Path(folder, "engine"))
        with Engine.load(Path(folder, "engine")) as loaded:
            loaded.publish(city.messages(20))


def publish_small_city() -> None:
    """Publish some messages to an engine without subscriptions."""
    from nearcast.service.config import ServiceConfig
    from nearcast.workload.city import City

    city = City()
    with ServiceConfig(city=city.seed, window_seconds=60).engine() as engine:
        engine.publish(city.messages(20))


def _marker() -> Path:
    from nearcast._jit import cache_folder, kernel_sources

    sources = hashlib.sha256()
    for path in kernel_sources():
        sources.update(path.read_bytes())
    return cache_folder() / f"warm-{sources.hexdigest()[:24]}"
