"""`nearcast demo`: a made-up city that talks, people who ask for something, and a map to watch it all on.

    the city ── HTTP ──► nearcast serve ──► files ──► Spark ──► files ──► nearcast serve ──► the map
    --embedded           nearcast serve, with an engine of its own ────────────────────────► the map

Everything is what a user would run: the service is the command `nearcast serve`, the pipeline a job as `nearcast run`
runs it, and the city talks to them as any program would.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Self

from nearcast.cli.arguments import amount, count, positive
from nearcast.cli.sparklog import interrupts, require_spark, spark_session
from nearcast.errors import StateError, require

if TYPE_CHECKING:
    import httpx

    from nearcast.model import Message
    from nearcast.workload.city import City

NAME = "demo"
HELP = "watch a generated city on a live map: subscriptions of all five kinds, messages streaming past, until Ctrl-C"

_PORT = 8080
_TICK_S = 0.1
_SAID_EVERY_S = 10.0
_AT_ONCE = 500  # messages of a request
_CLEARED = "\r\033[K"  # what a terminal takes for an empty line


def add_options(parser: argparse.ArgumentParser) -> None:
    """Say what the demo can be told."""
    parser.add_argument("--subscriptions", type=positive, default=100, help="how many people ask for something")
    parser.add_argument("--messages", type=positive, help="end after so many; without it, Ctrl-C ends")
    parser.add_argument("--rate", type=amount, default=20.0, help="messages a second; 0 means as fast as it goes")
    parser.add_argument("--window", type=positive, default=300, help="seconds that topk and social see")
    parser.add_argument("--seed", type=count, default=0, help="another seed is another city")
    parser.add_argument("--port", type=count, help=f"of the map; {_PORT} unless that is taken, then any")
    parser.add_argument("--embedded", action="store_true", help="with an engine in the service, without Spark")
    parser.add_argument("--master", default="local[*]", help="which Spark")
    parser.add_argument("--folder", type=Path, help="keep everything here; a passing one if not given")


def run(options: argparse.Namespace) -> int:
    """Run the demo until the messages end, or someone ends it."""
    from nearcast.cli.city_job import write_job
    from nearcast.workload.city import City

    if not options.embedded:
        require_spark()
    city = City(seed=options.seed)
    with _folder(options.folder) as folder, interrupts() as check:
        words = ["--city", str(options.seed), "--window", f"{options.window}s"]
        job = None if options.embedded else write_job(folder / "job", city, window_s=options.window)
        with _served(folder / "data", words if job is None else ["--spark", str(job)], options.port) as client:
            asked = [one.to_json() for one in city.subscriptions(options.subscriptions)]
            client.post("/v1/subscriptions", json=asked).raise_for_status()
            print(f"\n  The city is on the map at {client.base_url} . Ctrl-C ends it.\n", flush=True)
            with _Talk(client, city, options) as talk:
                with suppress(KeyboardInterrupt):
                    if job is None:
                        while not talk.is_over:
                            talk.wait(check)
                    else:
                        _run_job(job, talk, options, check)
                talk.end_line()
        if options.folder is not None:
            print(f"nearcast: everything is in {folder}; `nearcast serve --data {folder / 'data'}` goes on with it")
    return 0


def _run_job(job: Path, talk: _Talk, options: argparse.Namespace, check: Callable[[], None]) -> None:
    """Run the job while the city talks; if that ends, until everything was told."""
    from nearcast.spark.plan import read_plan
    from nearcast.spark.progress import Tally
    from nearcast.spark.run import start_run

    plan, tally = read_plan(job), Tally()
    with spark_session(job.with_suffix(".log"), shards=plan.match.shards, master=options.master) as spark:
        started = start_run(spark, plan)
        try:
            # What the job has committed is taken in a moment later.
            while not talk.is_over or tally.messages < talk.messages or talk.updates() < tally.updates:
                talk.wait(check)
                try:
                    started.wait(0.0)
                except StateError:
                    check()  # Ctrl-C reaches the workers too, whose batch fails then: that is no news
                    raise
                if tally.take(started.batches(after=tally.last_batch)):
                    talk.facts = f", batch {tally.last_batch} took {tally.last_seconds:.1f} s"
        finally:
            started.stop()


class _Talk:
    """What the city says, published no faster than it should, while others do their part; and how that goes."""

    def __init__(self, client: httpx.Client, city: City, options: argparse.Namespace) -> None:
        self.messages = 0
        self.facts = ""
        """What else there is to say."""
        self._client, self._rate, self._most = client, options.rate, options.messages
        self._city, self._shown = city, time.monotonic()
        self._stop, self._thread = Event(), Thread(target=self._run, name="city", daemon=True)
        self._error: Exception | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def is_over(self) -> bool:
        """True once everything was said."""
        return not self._thread.is_alive()

    def wait(self, check: Callable[[], None]) -> None:
        """Let it go on for a moment, and say how it goes; `check` raises if it is to end."""
        self._thread.join(_TICK_S)
        check()
        if self._error is not None:
            raise StateError(f"the service must take what the city says: {self._error}")
        is_terminal, now = sys.stdout.isatty(), time.monotonic()
        if now - self._shown >= (1.0 if is_terminal else _SAID_EVERY_S):
            self._shown = now
            print(f"{_CLEARED}  {self._line()}" if is_terminal else f"nearcast: {self._line()}",
                  end="" if is_terminal else "\n", flush=True)  # fmt: skip

    def end_line(self) -> None:
        """Say how it went."""
        print(f"{_CLEARED if sys.stdout.isatty() else ''}nearcast: {self._line()}", flush=True)

    def updates(self) -> int:
        """Return how many updates the service has told."""
        text, name = self._client.get("/metrics").text, "nearcast_updates_total "
        return int(next(float(line.removeprefix(name)) for line in text.splitlines() if line.startswith(name)))

    def _line(self) -> str:
        return f"{self.messages:,} messages said, {self.updates():,} updates told{self.facts}"

    def _run(self) -> None:
        said, start = self._city.messages(self._most or sys.maxsize), time.monotonic()
        try:
            while not self._stop.is_set() and self.messages != self._most:
                due = int((time.monotonic() - start) * self._rate) - self.messages if self._rate else _AT_ONCE
                now = [_sent(message) for message in islice(said, min(due, _AT_ONCE))]
                if now:
                    self._client.post("/v1/messages", json=now).raise_for_status()
                    self.messages += len(now)
                if self._rate:
                    self._stop.wait(_TICK_S)
        except Exception as error:
            self._error = error


def _sent(message: Message) -> dict[str, Any]:
    """Return a message as it is sent; it is of the moment it comes."""
    return {"id": message.id, "location": message.location, "text": message.text, "place": message.place}


# -- what it stands on ------------------------------------------------------------------------------------------


@contextmanager
def _served(data: Path, words: list[str], port: int | None) -> Iterator[httpx.Client]:
    """Run the service, and lend a client of it; it gets no Ctrl-C of its own, and ends after everyone else."""
    import httpx

    command = [sys.executable, "-m", "nearcast.cli", "serve", "--data", str(data), *words]
    chosen = str(_free(_PORT) if port is None else port)
    with subprocess.Popen(
        [*command, "--port", chosen], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as serving:
        try:
            assert serving.stdout is not None
            line = serving.stdout.readline()
            if not line:
                raise StateError(f"the service must start; it ended with {serving.wait()}")
            with httpx.Client(base_url=line.partition(" on ")[2].partition(",")[0], timeout=60.0) as client:
                while client.get("/health/ready").status_code != 200:
                    time.sleep(_TICK_S)
                yield client
        finally:
            serving.terminate()
            serving.wait()


def _free(port: int) -> int:
    """Return a port if nobody has it; else 0, which takes any."""
    with socket.socket() as probe:
        return port if probe.connect_ex(("127.0.0.1", port)) else 0


@contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    """Lend a folder: one that stays, if it was given."""
    if given is None:
        with tempfile.TemporaryDirectory(prefix="nearcast-") as passing:
            yield Path(passing)
        return
    is_free = not given.exists() or (given.is_dir() and not any(given.iterdir()))
    require(is_free, "folder", "must be empty, or not there yet", str(given))
    yield given
