"""`nearcast demo`: a generated city that publishes, subscriptions of all kinds, and a live map.

    the city ── HTTP ──► nearcast serve ──► files ──► Spark ──► files ──► nearcast serve ──► the map
    --embedded           nearcast serve, with its own engine ──────────────────────────────► the map

Every part is what a user would run: the service is the command `nearcast serve`, the pipeline is a job as `nearcast
run` runs it, and the city is an HTTP client.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Self

from nearcast.cli.arguments import amount, count, positive
from nearcast.cli.spark_session import interrupts, require_spark, spark_session
from nearcast.errors import StateError, require
from nearcast.jobs.temporary_folder import temporary_folder

if TYPE_CHECKING:
    import httpx

    from nearcast.jobs.progress import Tally
    from nearcast.model import Message
    from nearcast.spark.run import Run
    from nearcast.workload.city import City

NAME = "demo"
HELP = "show a generated city on a live map, with subscriptions of all five kinds, until Ctrl-C"

_PORT = 8080
_TICK_S = 0.1
_LINE_EVERY_S = 10.0
_PER_REQUEST = 500  # messages per request
_CLEAR_LINE = "\r\033[K"  # clears a line of the terminal


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--subscriptions", type=positive, default=100, help="number of subscriptions")
    parser.add_argument("--messages", type=positive, help="stop after this many messages; by default on Ctrl-C")
    parser.add_argument("--rate", type=amount, default=20.0, help="messages per second; 0 means as fast as possible")
    parser.add_argument("--window", type=positive, default=300, help="length of the window in seconds")
    parser.add_argument("--seed", type=count, default=0, help="seed of the city")
    parser.add_argument("--port", type=count, help=f"port of the map; by default {_PORT}, or any free one")
    parser.add_argument("--embedded", action="store_true", help="use an engine inside the service, without Spark")
    parser.add_argument("--master", default="local[*]", help="Spark master")
    parser.add_argument("--folder", type=Path, help="folder for all data; by default a temporary one")


def run(options: argparse.Namespace) -> int:
    """Run the demo until the messages end, or until Ctrl-C."""
    from nearcast.cli.city_job import write_job
    from nearcast.workload.city import City

    if not options.embedded:
        require_spark()
    city = City(seed=options.seed)
    with _folder(options.folder) as folder, interrupts() as raise_if_interrupted:
        check = _InterruptCheck(raise_if_interrupted)
        words = ["--city", str(options.seed), "--window", f"{options.window}s"]
        job = None if options.embedded else write_job(folder / "job", city, window_s=options.window)
        arguments = words if job is None else ["--spark", str(job)]
        with suppress(KeyboardInterrupt), _served(folder / "data", arguments, options.port) as client:
            print(f"\n  The live map is at {client.base_url} . Press Ctrl-C to stop.\n", flush=True)
            _wait_ready(client, check)
            subscriptions = [one.to_json() for one in city.subscriptions(options.subscriptions)]
            client.post("/v1/subscriptions", json=subscriptions).raise_for_status()
            with _CityPublisher(client, city, options) as publisher:
                if job is None:
                    while not publisher.is_done:
                        publisher.wait(check)
                else:
                    _run_job(job, publisher, options, check)
        if options.folder is not None:
            print(f"nearcast: all data is in {folder}; `nearcast serve --data {folder / 'data'}` continues with it")
    return 0


def _run_job(job: Path, publisher: _CityPublisher, options: argparse.Namespace, check: Callable[[], None]) -> None:
    """Run the job while the city publishes, and after that until all updates have arrived."""
    from nearcast.cli.warmup import KindCompiler
    from nearcast.jobs.job_file import read_job_file
    from nearcast.jobs.progress import Tally
    from nearcast.spark.run import start_run

    job_file, tally = read_job_file(job), Tally()
    with KindCompiler() as compiler, ExitStack() as until_the_end:

        def show_start() -> None:
            publisher.report(compiler.poll())
            publisher.facts = "; starting Spark" if compiler.is_done else f"; starting Spark and {compiler.line}"
            publisher.show()
            check()

        publisher.report(compiler.poll())  # its processes run beside the start of Spark
        log, shards = job.with_suffix(".log"), job_file.tasks
        with _repeated(show_start):
            spark = until_the_end.enter_context(spark_session(log, shards=shards, master=options.master))
        while not compiler.is_done:
            publisher.report(compiler.poll())
            publisher.facts = f"; {compiler.line}"
            publisher.wait(check)
        publisher.report("starting the job; updates arrive with its first batch")
        publisher.facts = "; the first batch runs"
        with _repeated(publisher.show):
            started = start_run(spark, job_file)
        try:
            while not publisher.is_done or not publisher.has_all(tally):
                publisher.wait(check)
                _check_job(started, check)
                if tally.take(started.batches(after=tally.last_batch)):
                    publisher.facts = f", batch {tally.last_batch} took {tally.last_seconds:.1f} s"
        finally:
            started.stop()


@contextmanager
def _repeated(work: Callable[[], None]) -> Iterator[None]:
    """Do something again and again in a thread, until the block ends or Ctrl-C was pressed."""
    from httpx import HTTPError

    is_over = Event()

    def run() -> None:
        with suppress(KeyboardInterrupt, HTTPError):  # a service that does not answer ends the demo elsewhere
            while not is_over.wait(_TICK_S):
                work()

    thread = Thread(target=run, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


class _InterruptCheck:
    """Raises `KeyboardInterrupt` once Ctrl-C was pressed, and says so, as ending Spark takes a moment."""

    def __init__(self, raise_if_interrupted: Callable[[], None]) -> None:
        self._raise_if_interrupted, self._is_announced = raise_if_interrupted, False

    def __call__(self) -> None:
        try:
            self._raise_if_interrupted()
        except KeyboardInterrupt:
            if not self._is_announced:
                self._is_announced = True
                _print("stopping")
            raise


def _check_job(started: Run, check: Callable[[], None]) -> None:
    """Raise the error of a job that has failed."""
    try:
        started.wait(0.0)
    except StateError:
        check()  # Ctrl-C reaches the workers too, and fails their batch: that is no error
        raise


class _CityPublisher:
    """Publishes the messages of a city in a thread, at a given rate, and reports progress."""

    def __init__(self, client: httpx.Client, city: City, options: argparse.Namespace) -> None:
        self.messages = 0
        self.facts = ""
        """Further facts for the progress line."""
        self._client, self._rate, self._most = client, options.rate, options.messages
        self._city, self._shown = city, time.monotonic()
        self._stop, self._thread = Event(), Thread(target=self._run, name="city", daemon=True)
        self._error: Exception | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if error in (None, KeyboardInterrupt):
            self.report(self._line())

    @property
    def is_done(self) -> bool:
        """True once all messages are published."""
        return not self._thread.is_alive()

    def wait(self, check: Callable[[], None]) -> None:
        """Wait for a moment and report progress; `check` raises if the demo is to end."""
        self._thread.join(_TICK_S)
        check()
        if self._error is not None:
            raise StateError(f"the service must accept the messages of the city: {self._error}")
        self.show()

    def show(self) -> None:
        """Print the progress line, if the last one was printed a while ago."""
        is_terminal, now = sys.stdout.isatty(), time.monotonic()
        if now - self._shown >= (1.0 if is_terminal else _LINE_EVERY_S):
            self._shown = now
            print(f"{_CLEAR_LINE}  {self._line()}" if is_terminal else f"nearcast: {self._line()}",
                  end="" if is_terminal else "\n", flush=True)  # fmt: skip

    def report(self, line: str | None) -> None:
        """Print a line about the start or the end, if there is one."""
        if line is not None:
            _print(line)

    def updates(self) -> int:
        """Return the number of updates that the service has counted."""
        text, name = self._client.get("/metrics").text, "nearcast_updates_total "
        return int(next(float(line.removeprefix(name)) for line in text.splitlines() if line.startswith(name)))

    def has_all(self, tally: Tally) -> bool:
        """Return whether the job has read all messages, and the service, a moment later, all of its updates."""
        return tally.messages >= self.messages and self.updates() >= tally.updates

    def _line(self) -> str:
        return f"{self.messages:,} messages published, {self.updates():,} updates{self.facts}"

    def _run(self) -> None:
        messages, start = self._city.messages(self._most or sys.maxsize), time.monotonic()
        try:
            while not self._stop.is_set() and self.messages != self._most:
                due = int((time.monotonic() - start) * self._rate) - self.messages if self._rate else _PER_REQUEST
                due_now = [_to_json(message) for message in islice(messages, min(due, _PER_REQUEST))]
                if due_now:
                    self._client.post("/v1/messages", json=due_now).raise_for_status()
                    self.messages += len(due_now)
                if self._rate:
                    self._stop.wait(_TICK_S)
        except Exception as error:
            self._error = error


def _print(line: str) -> None:
    """Print a line in place of the progress line."""
    print(f"{_CLEAR_LINE if sys.stdout.isatty() else ''}nearcast: {line}", flush=True)


def _to_json(message: Message) -> dict[str, Any]:
    """Return a message as JSON, without a time: the service sets it."""
    return {"id": message.id, "location": message.location, "text": message.text, "place": message.place}


# -- service and folder ------------------------------------------------------------------------------------------


@contextmanager
def _served(data: Path, words: list[str], port: int | None) -> Iterator[httpx.Client]:
    """Run the service and yield a client; Ctrl-C does not reach it, and it ends after everything else."""
    import httpx

    command = [sys.executable, "-m", "nearcast.cli", "serve", "--data", str(data), *words]
    chosen = str(_free(_PORT) if port is None else port)
    _print("starting the service")
    with subprocess.Popen(
        [*command, "--port", chosen], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as serving:
        try:
            assert serving.stdout is not None
            line = serving.stdout.readline()
            if not line:
                raise StateError(f"the service must start; it exited with {serving.wait()}")
            with httpx.Client(base_url=line.partition(" on ")[2].partition(",")[0], timeout=60.0) as client:
                yield client
        finally:
            serving.terminate()
            serving.wait()


def _wait_ready(client: httpx.Client, check: Callable[[], None]) -> None:
    """Wait until the service has compiled what it needs; it prints its progress, and the map shows it."""
    while client.get("/health/ready").status_code != 200:
        check()
        time.sleep(_TICK_S)


def _free(port: int) -> int:
    """Return the port if it is free, else 0, which takes any."""
    with socket.socket() as probe:
        return port if probe.connect_ex(("127.0.0.1", port)) else 0


@contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    """Yield the given folder, or a temporary one."""
    if given is None:
        with temporary_folder() as temporary:
            yield temporary
        return
    is_free = not given.exists() or (given.is_dir() and not any(given.iterdir()))
    require(is_free, "folder", "must be empty or new", str(given))
    yield given
