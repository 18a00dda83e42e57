"""A cheap load generator: HTTP and WebSocket on bare sockets, for experiments only."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from base64 import b64encode
from collections.abc import Callable
from urllib.parse import urlsplit

_TEXT, _CLOSE, _PING, _PONG = 1, 8, 9, 10


def address_of(url: str) -> tuple[str, int]:
    """Return host and port."""
    parts = urlsplit(url)
    return parts.hostname or "127.0.0.1", parts.port or 80


def request(method: str, path: str, body: bytes = b"", kind: str = "application/json") -> bytes:
    """Return the bytes of a request."""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Requester(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self._rest = b""
        self._answer: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._rest += data
        head, found, body = self._rest.partition(b"\r\n\r\n")
        if not found or self._answer is None:
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(body) >= length:
            answer, self._answer, self._rest = self._answer, None, body[length:]
            if head.startswith(b"HTTP/1.1 2"):
                answer.set_result(body[:length])
            else:
                answer.set_exception(RuntimeError(f"{head.splitlines()[0]!r}: {body[:200]!r}"))

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the service hung up"))

    async def ask(self, sent: bytes) -> bytes:
        """Send a request and return the body of the answer."""
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(sent)
        return await self._answer


async def requester(url: str) -> Requester:
    """Return a connection for requests."""
    _, protocol = await asyncio.get_running_loop().create_connection(Requester, *address_of(url))
    return protocol


class Listener(asyncio.Protocol):
    """A WebSocket client, which hands each text frame on as a range of bytes."""

    def __init__(self, path: str, on_text: Callable[[bytes, int, int], None]) -> None:
        self._path, self._on_text = path, on_text
        self._rest, self._is_open = b"", False
        self.ready = asyncio.get_running_loop().create_future()
        self.closed = asyncio.get_running_loop().create_future()
        self.code: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        key = b64encode(os.urandom(16)).decode()
        lines = [
            f"GET {self._path} HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", "",
        ]  # fmt: skip
        transport.write("\r\n".join(lines).encode())

    def data_received(self, data: bytes) -> None:
        data = self._rest + data if self._rest else data
        if not self._is_open:
            head, found, rest = data.partition(b"\r\n\r\n")
            if not found:
                self._rest = data
                return
            assert head.startswith(b"HTTP/1.1 101"), head
            self._is_open, data = True, rest
        at = 0
        while (frame := _frame(data, at)) is not None:
            kind, start, at = frame
            if kind == _TEXT:
                if self.ready.done():
                    self._on_text(data, start, at)
                else:
                    self.ready.set_result(None)
            elif kind == _PING:
                self.transport.write(bytes([0x80 | _PONG, 0x80 | (at - start)]) + bytes(4) + data[start:at])
            elif kind == _CLOSE:
                self.code = int.from_bytes(data[start : start + 2])
        self._rest = data[at:]

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set_result(time.monotonic())


def _frame(data: bytes, at: int) -> tuple[int, int, int] | None:
    """Return the kind of the frame at an offset, and start and end of its content; None if it is incomplete."""
    if len(data) < at + 2:
        return None
    length, start = data[at + 1], at + 2
    if length == 126:
        length, start = int.from_bytes(data[at + 2 : at + 4]), at + 4
    elif length == 127:
        length, start = int.from_bytes(data[at + 2 : at + 10]), at + 10
    return (data[at] & 15, start, start + length) if len(data) >= start + length else None


async def listener(
    url: str, path: str, on_text: Callable[[bytes, int, int], None], *, buffer: int | None = None
) -> Listener:
    """Return a client that has received `ready`, optionally with a small buffer for what it does not read."""
    sock = socket.socket()
    sock.setblocking(False)
    if buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, address_of(url))
    _, protocol = await loop.create_connection(lambda: Listener(path, on_text), sock=sock)
    await protocol.ready
    return protocol
