"""`nearcast serve`: the engine behind HTTP and WebSocket, durable; started again, it goes on where it stopped."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearcast.cli.arguments import amount, count, positive
from nearcast.errors import InvalidInput, StateError, require

if TYPE_CHECKING:
    from nearcast.service.access import Access
    from nearcast.service.config import ServiceConfig

NAME = "serve"
HELP = "serve subscriptions and messages over HTTP and WebSocket; what was answered survives a crash"

_SCOPES = ("publish", "subscribe", "admin")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Say what the service can be told."""
    parser.add_argument("--data", type=Path, metavar="DIR", help="where everything is kept; a new one needs a world")
    world = parser.add_argument_group("the world of a new folder; later it is known")
    world.add_argument("--bounds", metavar="XMIN,YMIN,XMAX,YMAX", help="where things may lie")
    world.add_argument("--metric", default="euclidean", help="euclidean, or haversine for longitude and latitude")
    world.add_argument("--max-distance", type=amount, help="where nearness reaches zero; the diagonal if not given")
    world.add_argument(
        "--city",
        type=count,
        nargs="?",
        const=0,
        metavar="SEED",
        help="instead: the space and words of a made-up city",
    )
    world.add_argument(
        "--spark", type=Path, metavar="JOB.toml",
        help="instead: the world of a job, which `nearcast run` runs, and which keeps the answers",
    )  # fmt: skip
    world.add_argument(
        "--window", default="100000", metavar="N|SECONDSs", help="how long messages stay: so many, or `3600s`"
    )
    world.add_argument("--workers", type=positive, default=1, help="threads")
    world.add_argument("--partitioner", default="hash", help="how work is shared among them")
    network = parser.add_argument_group("network and access")
    network.add_argument("--host", default="127.0.0.1", help="address to bind")
    network.add_argument("--port", type=count, default=8080, help="0 takes any that is free")
    network.add_argument("--tokens", type=Path, metavar="FILE", help="who may do what, see docs/service.md")
    network.add_argument("--new-token", metavar="SUBSCRIBER", help="make a token, add it to --tokens, and end")
    network.add_argument("--scopes", nargs="+", choices=_SCOPES, default=["publish", "subscribe"], help="of it")
    network.add_argument(
        "--webhook-networks", nargs="+", default=[], metavar="NETWORK",
        help="that webhooks may reach besides the public internet, such as 10.0.0.0/8",
    )  # fmt: skip
    limits = parser.add_argument_group("limits")
    limits.add_argument("--max-body", type=positive, default=8_000_000, metavar="BYTES", help="of a request")
    limits.add_argument("--max-waiting", type=positive, default=1_000, help="requests; more are answered with 429")
    limits.add_argument("--max-queued", type=positive, default=10_000, help="updates for a client; then it is closed")
    limits.add_argument("--max-webhooks", type=positive, default=100, help="of a subscriber")
    limits.add_argument("--snapshot-every", type=positive, default=10_000, metavar="COMMANDS", help="save the engine")
    limits.add_argument("--keep-hours", type=amount, default=168.0, help="how long updates can be asked for again")
    limits.add_argument("--keep-updates", type=positive, default=10_000_000, help="how many of them at most")


def run(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise StateError("fastapi and uvicorn must be installed for this; try pip install 'nearcast[service]'")
    if options.new_token is not None:
        return _make_token(options)
    require(options.data is not None, "data", "must be given", None)
    require(options.port < 65536, "port", "must be below 65536", options.port)
    access = _access(options)
    from nearcast.cli.rehearsal import rehearse
    from nearcast.service.command_loop import CommandLoop
    from nearcast.service.context import Service
    from nearcast.service.durable_store import RetentionConfig
    from nearcast.service.hub import Hub
    from nearcast.service.meters import Meters
    from nearcast.service.server import bind, serve
    from nearcast.service.webhooks.client import WebhookClient
    from nearcast.service.webhooks.dispatcher import WebhookDispatcher
    from nearcast.service.webhooks.guard import Guard, read_networks
    from nearcast.service.webhooks.store import WebhookStore

    guard = Guard(read_networks(options.webhook_networks))
    retention = RetentionConfig(
        most_waiting=options.max_waiting,
        snapshot_every=options.snapshot_every,
        seconds=options.keep_hours * 3600,
        updates=options.keep_updates,
    )

    def started(address: str) -> None:
        print(f"nearcast: serving {options.data} on {address}, described at {address}/openapi.json", flush=True)

    with bind(options.host, options.port) as listening:
        meters = Meters()
        hub = Hub(meters, most=options.max_queued)
        command_loop = CommandLoop(options.data, _world(options), hub=hub, meters=meters, retention=retention)
        dispatcher = WebhookDispatcher(
            WebhookStore(options.data / "webhooks.sqlite", most=options.max_webhooks), WebhookClient(guard)
        )
        rehearse(_small_city)
        if access.is_open:
            print("nearcast: no tokens: whoever reaches this address may do everything", file=sys.stderr)
        serve(Service(command_loop, hub, meters, access, options.max_body, dispatcher), listening, on_start=started)
    return 0


def _small_city() -> None:
    from nearcast.service.config import ServiceConfig
    from nearcast.workload.city import City

    city = City()
    with ServiceConfig(city=city.seed, window_count=100).engine() as engine:
        engine.subscribe(city.subscriptions(10))
        engine.publish(city.messages(3))


def _access(options: argparse.Namespace) -> Access:
    from nearcast.service.access import Access, is_loopback, read_tokens

    if options.tokens is not None:
        return read_tokens(options.tokens)
    rule = f"must be given where the host is not this machine alone, as {options.host!r} is not"
    hint = "Make one with `nearcast serve --new-token NAME --tokens FILE`"
    require(is_loopback(options.host), "tokens", rule, None, hint=hint)
    return Access(None)


def _make_token(options: argparse.Namespace) -> int:
    from nearcast.service.access import new_token, read_tokens

    token, entry = new_token(options.new_token, options.scopes)
    if options.tokens is None:
        print(entry, file=sys.stderr)
    else:
        if options.tokens.exists():
            read_tokens(options.tokens)  # or say what is wrong with it
        with options.tokens.open("a") as file:
            file.write(f"{entry}\n")
        options.tokens.chmod(0o600)
    print(token)
    return 0


def _world(options: argparse.Namespace) -> ServiceConfig | None:
    """Return the world that was described; None if none was."""
    from nearcast.service.config import ServiceConfig

    given = [name for name in ("bounds", "city", "spark") if getattr(options, name) is not None]
    if not given:
        return None
    require(len(given) == 1, given[0], f"must be left out where --{given[-1]} is given", getattr(options, given[0]))
    if options.spark is not None:
        return ServiceConfig.of_job(options.spark)
    return ServiceConfig(
        bounds=None if options.bounds is None else _bounds(options.bounds),
        metric=options.metric,
        max_distance=options.max_distance,
        city=options.city,
        **_window(options.window),
        workers=options.workers,
        partitioner=options.partitioner,
    )


def _bounds(text: str) -> tuple[float, float, float, float]:
    """Read four numbers.

    >>> _bounds("0,0,1,2.5")
    (0.0, 0.0, 1.0, 2.5)
    """
    try:
        xmin, ymin, xmax, ymax = map(float, text.split(","))
    except ValueError:
        raise InvalidInput("bounds", "must be XMIN,YMIN,XMAX,YMAX", text) from None
    return xmin, ymin, xmax, ymax


def _window(text: str) -> dict[str, Any]:
    """Read a window.

    >>> _window("5000"), _window("60s")
    ({'window_count': 5000}, {'window_seconds': 60.0})
    """
    try:
        return {"window_seconds": amount(text[:-1])} if text.endswith("s") else {"window_count": positive(text)}
    except argparse.ArgumentTypeError:
        raise InvalidInput("window", "must be a number of messages, or of seconds as in 60s", text) from None
