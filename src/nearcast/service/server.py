"""The HTTP server: uvicorn on a prepared socket, which closes push connections before it waits for requests."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Callable

import uvicorn

from nearcast.errors import InvalidInput
from nearcast.service.api.app import make_app
from nearcast.service.api.context import Service

_STALLED_S = 60.0
_MAX_UNSENT = 128 * 1024
"""Bytes per connection. Without a limit the kernel buffers megabytes for a client that does not read, unnoticed."""


def bind(host: str, port: int, *, stalled_s: float = _STALLED_S) -> socket.socket:
    """Return a bound socket, or raise `InvalidInput`; port 0 is any free port.

    A client that acknowledges none of the data sent to it for `stalled_s` is disconnected, whatever it requested.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        # With an explicit protocol asyncio turns Nagle's algorithm off; otherwise answers take 40 ms longer.
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            for option, value in (("TCP_USER_TIMEOUT", int(1e3 * stalled_s)), ("TCP_NOTSENT_LOWAT", _MAX_UNSENT)):
                if hasattr(socket, option):  # connections inherit them; not every system has them
                    bound.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise InvalidInput("port", f"must be available on {host}: {error.strerror}", port) from None
    return bound


class Server(uvicorn.Server):
    """Serves on a socket until it is stopped."""

    def __init__(
        self, service: Service, bound: socket.socket, *, on_start: Callable[[str], None] = lambda address: None
    ) -> None:
        """Set up; `on_start` is called with the address when the server accepts requests."""
        config = uvicorn.Config(
            make_app(service), log_level="warning", lifespan="on", timeout_graceful_shutdown=10,
            ws_max_size=64 * 1024, ws_per_message_deflate=False, server_header=False,
        )  # fmt: skip
        super().__init__(config)
        self._service, self._bound, self._on_start = service, bound, on_start
        host, port = bound.getsockname()[:2]
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{port}"

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal arrives."""
        await super().serve(sockets or [self._bound])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept requests and report the address."""
        await super().startup(sockets)
        if self.started:
            self._on_start(self.address)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the hub, whose clients would otherwise keep their connections open, and then the server."""
        self._service.hub.close()
        await super().shutdown(sockets)


def freeze_gc() -> None:
    """Make garbage collection rare, and exempt all existing objects: every request waits for a collection.

    A full collection takes a third of a second, and updates that queue for a stalled client trigger collections.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


def serve(service: Service, bound: socket.socket, *, on_start: Callable[[str], None]) -> None:
    """Serve until a signal arrives."""
    server = Server(service, bound, on_start=on_start)
    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(server.serve())
