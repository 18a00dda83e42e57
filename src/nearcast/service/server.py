"""How does the service meet the network? uvicorn, which lets go of listeners before it waits for them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import uvicorn

from nearcast.service.app import make_app
from nearcast.service.context import Service


class Server(uvicorn.Server):
    """Serves until it is told to stop."""

    def __init__(
        self, service: Service, *, host: str, port: int, on_start: Callable[[str], None] = lambda address: None
    ) -> None:
        """Set up; `on_start` hears the address once requests are taken. Port 0 is any that is free."""
        config = uvicorn.Config(
            make_app(service), host=host, port=port, log_level="warning", lifespan="on",
            timeout_graceful_shutdown=10, ws_max_size=64 * 1024, server_header=False,
        )  # fmt: skip
        super().__init__(config)
        self._service, self._on_start = service, on_start

    @property
    def address(self) -> str:
        """Where it serves, as a URL."""
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Bind, and say where."""
        await super().startup(sockets)
        if self.started:
            self._on_start(self.address)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close; listeners would keep their connections for ever."""
        self._service.hub.close()
        await super().shutdown(sockets)


def serve(service: Service, *, host: str, port: int, on_start: Callable[[str], None]) -> None:
    """Serve until a signal comes."""
    asyncio.run(Server(service, host=host, port=port, on_start=on_start).serve())
