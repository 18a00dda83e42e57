"""`nearcast serve`: the engine behind HTTP and WebSocket, durable; a restart continues where it stopped."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearcast.cli.arguments import amount, attributes, count, duration, positive
from nearcast.errors import InvalidInput, StateError, require

if TYPE_CHECKING:
    from nearcast.service.api.access import AccessControl
    from nearcast.service.config import ServiceConfig

NAME = "serve"
HELP = "serve subscriptions and messages over HTTP and WebSocket; answered requests survive a crash"

_SCOPES = ("publish", "subscribe", "admin")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the service."""
    from nearcast.partition.balance.policy import SIGMA

    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="data folder; a new one needs --bounds, --city or --spark"
    )
    config = parser.add_argument_group("configuration of a new data folder, which records it")
    config.add_argument("--bounds", metavar="XMIN,YMIN,XMAX,YMAX", help="bounds of all locations")
    config.add_argument("--metric", default="euclidean", help="euclidean, or haversine for longitude and latitude")
    config.add_argument("--max-distance", type=amount, help="where nearness reaches zero; default: the diagonal")
    config.add_argument(
        "--city",
        type=count,
        nargs="?",
        const=0,
        metavar="SEED",
        help="instead of bounds: the space and vocabulary of a generated city",
    )
    config.add_argument(
        "--spark", type=Path, metavar="JOB.toml",
        help="instead of bounds: a job that `nearcast run` runs and that computes the results",
    )  # fmt: skip
    config.add_argument(
        "--window",
        default="100000",
        metavar="N|DURATION",
        help="window: a number of messages, such as 100k, or a duration, such as 90s, 5min, 1h or 7d",
    )
    config.add_argument(
        "--clock", choices=("wall", "event"),
        help="what moves time: the wall clock (default), or the times of messages",
    )  # fmt: skip
    config.add_argument(
        "--analyzer", default="simple", metavar="NAME",
        help="how text becomes terms: simple, unicode, or a language, such as english",
    )  # fmt: skip
    config.add_argument(
        "--attributes", type=attributes, default={}, metavar="NAME=TYPE,...",
        help="attributes of messages, such as price=float,category=str; types: float, int, str, bool",
    )  # fmt: skip
    config.add_argument("--workers", type=positive, default=1, help="number of threads")
    config.add_argument("--partitioner", default="hash", help="how subscriptions are distributed over threads")
    config.add_argument(
        "--balance", type=float, nargs="?", const=SIGMA, metavar="RATIO",
        help="move subscriptions when the busiest thread does more than RATIO times the work of the idlest, with a "
        f"partitioner such as hybrid or location; default: {SIGMA}",
    )  # fmt: skip
    network = parser.add_argument_group("network and access")
    network.add_argument("--host", default="127.0.0.1", help="address to bind")
    network.add_argument("--port", type=count, default=8080, help="0 takes any free port")
    network.add_argument("--tokens", type=Path, metavar="FILE", help="file of tokens, see docs/service.md")
    network.add_argument("--new-token", metavar="SUBSCRIBER", help="create a token, add it to --tokens, and exit")
    network.add_argument(
        "--scopes", nargs="+", choices=_SCOPES, default=["publish", "subscribe"], help="scopes of the new token"
    )
    network.add_argument(
        "--webhook-networks", nargs="+", default=[], metavar="NETWORK",
        help="networks that webhooks may reach besides the public internet, such as 10.0.0.0/8",
    )  # fmt: skip
    limits = parser.add_argument_group("limits")
    limits.add_argument("--max-body", type=positive, default=8_000_000, metavar="BYTES", help="largest request body")
    limits.add_argument(
        "--max-waiting", type=positive, default=1_000, help="waiting requests; more are answered with 429"
    )
    limits.add_argument(
        "--max-waiting-each", type=positive, default=500, help="waiting requests per subscriber; more get 429"
    )
    limits.add_argument("--max-subscriptions", type=positive, default=1_000_000, help="subscriptions per subscriber")
    limits.add_argument(
        "--max-results", type=positive, default=20_000_000, metavar="MESSAGES",
        help="messages that the results of a subscriber can hold: k of all its subscriptions together",
    )  # fmt: skip
    limits.add_argument(
        "--max-subscription-bytes", type=positive, default=1_000_000_000, metavar="BYTES",
        help="size of the subscriptions of a subscriber as JSON, which large regions add to",
    )  # fmt: skip
    limits.add_argument(
        "--max-ahead", type=amount, metavar="SECONDS",
        help="how far ahead of the clock messages may be; default: 300 with --clock wall, else no limit",
    )  # fmt: skip
    limits.add_argument(
        "--max-commit-updates", type=positive, default=100_000, metavar="UPDATES",
        help="updates that are written at once; a request with more is written in parts",
    )  # fmt: skip
    limits.add_argument(
        "--max-queued", type=positive, default=10_000, help="waiting updates per client; then it is closed"
    )
    limits.add_argument("--max-webhooks", type=positive, default=100, help="webhooks per subscriber")
    limits.add_argument(
        "--snapshot-every", type=positive, default=10_000, metavar="COMMANDS", help="commands per snapshot"
    )
    limits.add_argument("--keep-hours", type=amount, default=168.0, help="how long updates are retained")
    limits.add_argument("--keep-updates", type=positive, default=10_000_000, help="how many updates are retained")
    limits.add_argument(
        "--keep-bytes", type=positive, default=10_000_000_000, metavar="BYTES",
        help="size of the journal; the oldest updates and messages make room",
    )  # fmt: skip
    limits.add_argument(
        "--min-free", type=count, default=100_000_000, metavar="BYTES",
        help="free space of the disk below which the service only reads",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise StateError("fastapi and uvicorn must be installed for this; try pip install 'nearcast[service]'")
    if options.new_token is not None:
        return _make_token(options)
    require(options.data is not None, "data", "must be given", None)
    require(options.port < 65536, "port", "must be below 65536", options.port)
    access = _access(options)
    from nearcast.service.api.context import Service
    from nearcast.service.api.metrics import Metrics
    from nearcast.service.command_loop import CommandLoop
    from nearcast.service.push.hub import Hub
    from nearcast.service.push.webhooks.address_guard import AddressGuard, parse_networks
    from nearcast.service.push.webhooks.client import WebhookClient
    from nearcast.service.push.webhooks.dispatcher import WebhookDispatcher
    from nearcast.service.push.webhooks.store import WebhookStore
    from nearcast.service.server import bind, serve
    from nearcast.service.store.limits import ServiceLimits

    guard = AddressGuard(parse_networks(options.webhook_networks))
    limits = ServiceLimits(
        max_waiting=options.max_waiting,
        max_waiting_each=options.max_waiting_each,
        max_subscriptions=options.max_subscriptions,
        max_results=options.max_results,
        max_subscription_bytes=options.max_subscription_bytes,
        max_ahead_s=options.max_ahead,
        max_commit_updates=options.max_commit_updates,
        snapshot_every=options.snapshot_every,
        max_age_s=options.keep_hours * 3600,
        max_updates=options.keep_updates,
        max_bytes=options.keep_bytes,
        min_free_bytes=options.min_free,
    )

    def started(address: str) -> None:
        print(f"nearcast: serving {options.data} on {address}, described at {address}/openapi.json", flush=True)

    with bind(options.host, options.port) as bound:
        metrics = Metrics()
        hub = Hub(metrics, max_queued=options.max_queued)
        command_loop = CommandLoop(
            options.data, _config(options), hub=hub, metrics=metrics, limits=limits,
            prepare=_load_kernels,
        )  # fmt: skip
        webhooks = WebhookStore(options.data / "webhooks.sqlite", max_per_subscriber=options.max_webhooks)
        dispatcher = WebhookDispatcher(webhooks, WebhookClient(guard))
        if access.is_open:
            warning = "nearcast: no tokens are required: everyone who reaches this address has full access"
            print(warning, file=sys.stderr)
        service = Service(command_loop, hub, metrics, access, options.max_body, dispatcher)
        serve(service, bound, on_start=started)
    return 0


def _load_kernels(config: ServiceConfig, report: Callable[[str], None], is_stopping: Callable[[], bool]) -> None:
    """Compile kernels, once per machine, and load them, so that no request waits for them."""
    from nearcast.cli.warmup import publish_small_city, run_small_city, warm_kinds
    from nearcast.service.server import freeze_gc

    if config.job is not None:  # the job has the engines
        publish_small_city()
    else:
        warm_kinds(report, is_stopping)
        if not is_stopping():
            run_small_city()
    freeze_gc()


def _access(options: argparse.Namespace) -> AccessControl:
    from nearcast.service.api.access import AccessControl, TokenFile, is_loopback

    if options.tokens is not None:
        return TokenFile(options.tokens)
    rule = f"must be given for a host that others can reach, such as {options.host!r}"
    hint = "Create one with `nearcast serve --new-token NAME --tokens FILE`"
    require(is_loopback(options.host), "tokens", rule, None, hint=hint)
    return AccessControl(None)


def _make_token(options: argparse.Namespace) -> int:
    from nearcast.service.api.access import TokenFile, new_token

    token, entry = new_token(options.new_token, options.scopes)
    if options.tokens is None:
        print(entry, file=sys.stderr)
    else:
        if options.tokens.exists():
            TokenFile(options.tokens)  # raises if the file is invalid
        with options.tokens.open("a") as file:
            file.write(f"{entry}\n")
        options.tokens.chmod(0o600)
    print(token)
    return 0


def _config(options: argparse.Namespace) -> ServiceConfig | None:
    """Return the configuration that the options describe; None if they describe none."""
    from nearcast.service.config import ServiceConfig

    given = [name for name in ("bounds", "city", "spark") if getattr(options, name) is not None]
    if not given:
        return None
    require(len(given) == 1, given[0], f"must not be given together with --{given[-1]}", getattr(options, given[0]))
    if options.spark is not None:
        return ServiceConfig.of_job(options.spark, clock=options.clock)
    return ServiceConfig(
        bounds=None if options.bounds is None else _bounds(options.bounds),
        metric=options.metric,
        max_distance=options.max_distance,
        city=options.city,
        **_window(options.window),
        clock=options.clock,
        analyzer=options.analyzer,
        attributes=options.attributes,
        workers=options.workers,
        partitioner=options.partitioner,
        balance=options.balance,
    )


def _bounds(text: str) -> tuple[float, float, float, float]:
    """Parse four numbers.

    >>> _bounds("0,0,1,2.5")
    (0.0, 0.0, 1.0, 2.5)
    """
    try:
        xmin, ymin, xmax, ymax = map(float, text.split(","))
    except ValueError:
        raise InvalidInput("bounds", "must be XMIN,YMIN,XMAX,YMAX", text) from None
    return xmin, ymin, xmax, ymax


def _window(text: str) -> dict[str, Any]:
    """Parse a window.

    >>> _window("5000"), _window("1h")
    ({'window_count': 5000}, {'window_seconds': 3600.0})
    """
    parsers: dict[str, Callable[[str], float]] = {"window_count": positive, "window_seconds": duration}
    for name, parse in parsers.items():
        with suppress(argparse.ArgumentTypeError):
            return {name: parse(text)}
    raise InvalidInput("window", "must be a number of messages, or a duration such as 90s, 5min, 1h or 7d", text)
