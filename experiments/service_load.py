"""The load that the service handles: requests per second, and delays from publish to WebSocket.

    python -m experiments.service_load [--clients 1000 --rate 1000 --seconds 14 --json]

It starts `nearcast serve` on a temporary folder (or takes `--url`) and generates the load in this process. Each
client has a subscription of its own and receives about one message in `--clients`; one more subscription, the
busiest, matches every message. In every second round the client of the busiest never reads, and the delays of the
others show its effect. Delays count from the moment a message was due, so that they include the delay of a generator
that falls behind. Unknown options are passed to `nearcast serve`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from experiments.question import report_progress
from experiments.service_wire import Listener, Requester, listener, request, requester

BUSIEST = "busiest"
_STALLED_BUFFER = 4096
_PUBLISHERS = 4  # connections
_HERTZ = os.sysconf("SC_CLK_TCK")


@contextmanager
def service(words: list[str], *, space: tuple[str, str] = ("--bounds", "0,0,1,1")) -> Iterator[tuple[str, int]]:
    """Run a service on a temporary folder; yield its address and its process."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "nearcast.cli", "serve", "--data", folder, *space]
        process = subprocess.Popen([*command, "--port", "0", *words], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            yield line.partition(" on ")[2].split(",")[0], process.pid
        finally:
            process.terminate()
            process.wait()


@dataclass(frozen=True)
class Effort:
    """Processor time and memory that a process has used so far."""

    cpu_s: float
    rss_mb: float
    peak_mb: float

    @classmethod
    def of(cls, pid: int | None) -> Effort:
        if pid is None:
            return cls(0.0, 0.0, 0.0)
        process = Path("/proc", str(pid))
        user, system = (process / "stat").read_text().rpartition(")")[2].split()[11:13]
        kb = dict(re.findall(r"(VmRSS|VmHWM):\s+(\d+) kB", (process / "status").read_text()))
        return cls((int(user) + int(system)) / _HERTZ, int(kb["VmRSS"]) / 1024, int(kb["VmHWM"]) / 1024)


@dataclass
class Watch:
    """Measures the share of a core that the service and this process use."""

    pid: int | None
    began: float = field(default_factory=time.monotonic)
    before: tuple[Effort, Effort] = field(init=False)

    def __post_init__(self) -> None:
        self.before = Effort.of(self.pid), Effort.of(os.getpid())

    def busy(self) -> dict[str, float]:
        seconds = time.monotonic() - self.began
        names = ("service_cpu", "generator_cpu")
        now = Effort.of(self.pid), Effort.of(os.getpid())
        shares = [(after.cpu_s - before.cpu_s) / seconds for before, after in zip(self.before, now, strict=True)]
        return {name: round(share, 2) for name, share in zip(names, shares, strict=True)}


def message(rng: random.Random, n_clients: int, due: float, number: int) -> dict[str, Any]:
    """Return a message for the busiest subscription and about one other."""
    words = f"all c{rng.randrange(n_clients)}"
    return {"id": f"m{int(due * 1e6)}-{number}", "location": [rng.random(), rng.random()], "text": words}


def spread(seconds: list[float]) -> dict[str, float]:
    """Return median and 99th percentile, in milliseconds."""
    ordered = sorted(seconds) or [float("nan")]
    at = {"p50_ms": 0.50, "p99_ms": 0.99}
    return {name: round(1e3 * ordered[int(share * (len(ordered) - 1))], 2) for name, share in at.items()}


# -- publishing -------------------------------------------------------------------------------------------------


async def publishing(
    url: str, pid: int | None, *, connections: int, at_once: int, seconds: float, n_clients: int
) -> dict[str, Any]:
    """Publish as fast as answers arrive, over some connections, with `at_once` messages per request."""
    rng, took, end = random.Random(1), list[float](), time.monotonic() + seconds
    watch = Watch(pid)

    async def talk(line: Requester) -> None:
        while (began := time.monotonic()) < end:
            messages = [message(rng, n_clients, began, number) for number in range(at_once)]
            await line.ask(
                request("POST", "/v1/messages", json.dumps(messages if at_once > 1 else messages[0]).encode())
            )
            took.append(time.monotonic() - began)

    await asyncio.gather(*[talk(await requester(url)) for _ in range(connections)])
    passed = time.monotonic() - watch.began
    return {
        "connections": connections,
        "messages_per_request": at_once,
        "requests_per_second": round(len(took) / passed),
        "messages_per_second": round(at_once * len(took) / passed),
        **spread(took),
        **watch.busy(),
    }


async def streaming(url: str, pid: int | None, *, n_messages: int, n_clients: int) -> dict[str, Any]:
    """Publish lines of JSON, all in one request."""
    rng, line = random.Random(2), await requester(url)
    messages = (json.dumps(message(rng, n_clients, 0.0, number)) for number in range(n_messages))
    sent = request("POST", "/v1/messages/stream", "\n".join(messages).encode(), kind="application/x-ndjson")
    watch = Watch(pid)
    answer = json.loads(await line.ask(sent))
    assert answer["messages"] == n_messages, answer
    return {"messages_per_second": round(n_messages / (time.monotonic() - watch.began)), **watch.busy()}


# -- pushing ----------------------------------------------------------------------------------------------------


@dataclass
class Round:
    """The updates that clients received in one round."""

    delays: list[float] = field(default_factory=list)
    of_busiest: int = 0

    def note(self, data: bytes, start: int, end: int) -> None:
        now = time.monotonic()
        place = data.find(b'"message": "m', start, end) + 13
        self.delays.append(now - int(data[place : data.index(b"-", place)]) / 1e6)

    def note_busiest(self, data: bytes, start: int, end: int) -> None:
        self.of_busiest += 1


async def pushing(url: str, pid: int | None, *, stalled: bool, options: argparse.Namespace) -> dict[str, Any]:
    """Publish at a rate while clients listen, of which one may never read."""
    received, before = Round(), Effort.of(pid)
    clients: list[Listener] = []
    for number in range(options.clients):
        clients.append(await listener(url, f"/v1/updates?subscription=c{number}", received.note))
    path = f"/v1/updates?subscription={BUSIEST}"
    busiest = await listener(url, path, received.note_busiest, buffer=_STALLED_BUFFER if stalled else None)
    if stalled:
        busiest.transport.pause_reading()
    gc.collect()
    gc.disable()
    watch = Watch(pid)
    closed = asyncio.ensure_future(_lagged(url, watch.began))  # also where none is stalled, as it costs something
    published = await _paced(url, options.seconds, options)
    passed = time.monotonic() - watch.began
    busy = watch.busy()
    await asyncio.sleep(1.0)
    gc.enable()
    after = Effort.of(pid)
    figures: dict[str, Any] = {
        "messages_per_second": round(published / passed),
        "updates": len(received.delays) + received.of_busiest,
        **spread(received.delays),
        **busy,
        "rss_mb": [round(before.rss_mb), round(after.rss_mb)],
        "peak_mb": round(after.peak_mb),
    }
    closed.cancel()
    if stalled:
        figures["closed_after_s"] = None if closed.cancelled() or not closed.done() else closed.result()
        busiest.transport.resume_reading()
        await asyncio.wait([busiest.closed], timeout=10)
        figures |= {"close_code": busiest.code, "received_by_stalled": received.of_busiest}
    for client in (*clients, busiest):
        client.transport.abort()
    await asyncio.gather(*(client.closed for client in (*clients, busiest)))
    return figures


async def _lagged(url: str, began: float) -> float:
    """Return after how many seconds the service closed a client that lags."""
    line, before = await requester(url), None
    while True:
        text = (await line.ask(request("GET", "/metrics"))).decode()
        (count,) = re.findall(r"^nearcast_lagged_clients_total (\S+)", text, re.MULTILINE)
        if count != (before := before or count):
            return round(time.monotonic() - began, 1)
        await asyncio.sleep(1.0)


async def _paced(url: str, seconds: float, options: argparse.Namespace) -> int:
    """Publish at a rate, some messages per request; return the number of messages."""
    rng, published, began = random.Random(3), 0, time.monotonic()
    idle: asyncio.Queue[Requester] = asyncio.Queue()
    for _ in range(_PUBLISHERS):
        idle.put_nowait(await requester(url))

    async def send(line: Requester, due: float) -> None:
        messages = [message(rng, options.clients, due, number) for number in range(options.at_once)]
        await line.ask(request("POST", "/v1/messages", json.dumps(messages).encode()))
        idle.put_nowait(line)

    async with asyncio.TaskGroup() as sending:
        while (due := began + published / options.rate) < began + seconds:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            sending.create_task(send(await idle.get(), due))
            published += options.at_once
    return published


# -- the whole --------------------------------------------------------------------------------------------------


async def measure(url: str, pid: int | None, options: argparse.Namespace) -> dict[str, Any]:
    """Measure everything."""
    line = await requester(url)
    while b"true" not in await _maybe(line, request("GET", "/health/ready")):
        await asyncio.sleep(0.1)
    everywhere = {"kind": "boolean", "region": [0, 0, 1, 1]}
    subscriptions = [{"id": f"c{n}", **everywhere, "keywords": f"c{n}"} for n in range(options.clients)]
    subscriptions.append({"id": BUSIEST, **everywhere, "keywords": "all"})
    await line.ask(request("POST", "/v1/subscriptions", json.dumps(subscriptions).encode()))
    found: dict[str, Any] = {"machine": {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 2)}}
    if "publish" in options.parts:
        found |= await _published(url, pid, options)
    if "push" in options.parts:
        found["push"] = await _pushed(url, pid, options)
    return found


async def _published(url: str, pid: int | None, options: argparse.Namespace) -> dict[str, Any]:
    runs = []
    for connections, at_once in ((1, 1), (64, 1), (1, 100), (4, 100)):
        report_progress(f"publishing, {connections} connections, {at_once} messages per request")
        how = {"connections": connections, "at_once": at_once, "n_clients": options.clients}
        runs.append(await publishing(url, pid, seconds=options.seconds / 4, **how))
    report_progress("publishing, one stream of lines")
    stream = await streaming(url, pid, n_messages=options.lines, n_clients=options.clients)
    return {"publish": runs, "stream": stream}


async def _pushed(url: str, pid: int | None, options: argparse.Namespace) -> dict[str, Any]:
    """Take turns with all clients reading and one stalled, and return the medians of the rounds."""
    rounds: dict[str, list[dict[str, Any]]] = {"all_read": [], "one_stalled": []}
    for name in list(rounds) * options.rounds:
        report_progress(f"pushing to {options.clients} clients, {name.replace('_', ' ')}")
        rounds[name].append(await pushing(url, pid, stalled=name == "one_stalled", options=options))
    pushed: dict[str, Any] = {"clients": options.clients, "messages_per_request": options.at_once}
    for name, figures in rounds.items():
        pushed[name] = {key: round(median(one[key] for one in figures), 2) for key in ("p50_ms", "p99_ms")}
        pushed[name]["rounds"] = figures
    for share in ("p50", "p99"):
        stalled_ms, ms = (pushed[name][f"{share}_ms"] for name in ("one_stalled", "all_read"))
        pushed[f"ratio_{share}"] = round(stalled_ms / ms, 3)
    return pushed


async def _maybe(line: Requester, sent: bytes) -> bytes:
    try:
        return await line.ask(sent)
    except RuntimeError:  # not yet
        return b""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.service_load", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--url", help="a running service with one subscriber; by default one is started")
    parser.add_argument("--pid", type=int, help="the process of that service, to measure its processor time")
    parser.add_argument("--parts", nargs="+", choices=("publish", "push"), default=["publish", "push"])
    parser.add_argument("--clients", type=int, default=1_000)
    parser.add_argument("--rate", type=float, default=1_000.0, help="messages per second while clients listen")
    parser.add_argument("--at-once", type=int, default=10, help="messages per request")
    parser.add_argument("--seconds", type=float, default=14.0, help="duration of a round")
    parser.add_argument(
        "--rounds", type=int, default=5, help="rounds with all clients reading, and as many with one stalled"
    )
    parser.add_argument("--lines", type=int, default=50_000, help="lines of the stream")
    parser.add_argument("--json", action="store_true", help="print one object")
    options, words = parser.parse_known_args()
    if options.url is not None:
        found = asyncio.run(measure(options.url, options.pid, options))
    else:
        with service(words) as (url, pid):
            found = asyncio.run(measure(url, pid, options))
    print(json.dumps(found, indent=None if options.json else 2))


if __name__ == "__main__":
    main()
