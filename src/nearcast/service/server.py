"""How does the service meet the network? uvicorn, which lets go of listeners before it waits for them."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Callable

import uvicorn

from nearcast.errors import InvalidInput
from nearcast.service.app import make_app
from nearcast.service.context import Service

_STALLED_S = 60.0
_MOST_UNSENT = 128 * 1024
"""Bytes of a connection; else the kernel takes megabytes for a client that does not read, and nobody notices."""


def bind(host: str, port: int, *, stalled_s: float = _STALLED_S) -> socket.socket:
    """Return a bound socket, or raise `InvalidInput`; port 0 is any that is free.

    A client that takes nothing of what was sent to it for `stalled_s` is hung up on, whatever it had asked for.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        # The protocol is said, or asyncio leaves Nagle's algorithm on and answers wait for 40 ms.
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            for option, value in (("TCP_USER_TIMEOUT", int(1e3 * stalled_s)), ("TCP_NOTSENT_LOWAT", _MOST_UNSENT)):
                if hasattr(socket, option):  # connections have them from here; other systems know fewer
                    bound.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise InvalidInput("port", f"must be one that can be served on {host}: {error.strerror}", port) from None
    return bound


class Server(uvicorn.Server):
    """Serves on a socket until it is told to stop."""

    def __init__(
        self, service: Service, listening: socket.socket, *, on_start: Callable[[str], None] = lambda address: None
    ) -> None:
        """Set up; `on_start` hears the address once requests are taken."""
        config = uvicorn.Config(
            make_app(service), log_level="warning", lifespan="on", timeout_graceful_shutdown=10,
            ws_max_size=64 * 1024, ws_per_message_deflate=False, server_header=False,
        )  # fmt: skip
        super().__init__(config)
        self._service, self._listening, self._on_start = service, listening, on_start
        host, port = listening.getsockname()[:2]
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{port}"

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal comes."""
        await super().serve(sockets or [self._listening])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Take requests, and say where."""
        await super().startup(sockets)
        if self.started:
            self._on_start(self.address)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close; listeners would keep their connections for ever."""
        self._service.hub.close()
        await super().shutdown(sockets)


def _settle_memory() -> None:
    """Let Python look for garbage seldom, and not among what is there already: everyone waits while it does.

    To look through all of it takes a third of a second, and updates that wait for a stalled client make it look.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


def serve(service: Service, listening: socket.socket, *, on_start: Callable[[str], None]) -> None:
    """Serve until a signal comes."""
    server = Server(service, listening, on_start=on_start)
    _settle_memory()
    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(server.serve())
