"""Size limit of request bodies: a larger body is rejected and never kept.

Many clients send the whole body before they read the answer. If the service closed the connection meanwhile, they
would report a broken connection instead of 413, so the rest of the body is received and dropped first.
"""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nearcast.service.api.problems import MEDIA_TYPE, Problem

_MAX_DROPPED = 1 << 30


class BodyLimit:
    """ASGI middleware that limits request bodies; streams apply limits of their own."""

    def __init__(self, app: ASGIApp, *, max_bytes: int, streams: tuple[str, ...]) -> None:
        self._app, self._max_bytes, self._streams = app, max_bytes, streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http" or scope["path"] in self._streams:
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > self._max_bytes:
            if headers.get(b"expect", b"").lower() != b"100-continue":  # such a client waits before it sends
                await _drop_body(receive)
            await _send_problem(body_too_large(self._max_bytes), send)
            return
        n_bytes = 0

        async def receive_counted() -> Message:
            nonlocal n_bytes
            message = await receive()
            n_bytes += len(message.get("body", b""))
            if n_bytes > self._max_bytes:
                if message.get("more_body"):
                    await _drop_body(receive)
                # FastAPI turns every other exception raised while it reads a body into a 400.
                raise HTTPException(413, body_too_large(self._max_bytes).detail)
            return message

        await self._app(scope, receive_counted, send)


async def _drop_body(receive: Receive) -> None:
    """Receive the rest of a body and drop it; of an endless one, a part."""
    n_bytes = 0
    while n_bytes < _MAX_DROPPED:
        message = await receive()
        n_bytes += len(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body"):
            return


def body_too_large(max_bytes: int) -> Problem:
    """Return the problem of a body beyond the limit."""
    return Problem(413, f"a request must have at most {max_bytes} bytes; send larger ones in parts")


async def _send_problem(problem: Problem, send: Send) -> None:
    body = problem.body()
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
