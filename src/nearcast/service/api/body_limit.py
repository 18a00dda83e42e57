"""Size limit of request bodies: a larger body is rejected before it is read, or while it is."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nearcast.service.api.problems import MEDIA_TYPE, Problem


class BodyLimit:
    """ASGI middleware that limits request bodies; streams apply limits of their own."""

    def __init__(self, app: ASGIApp, *, max_bytes: int, streams: tuple[str, ...]) -> None:
        self._app, self._max_bytes, self._streams = app, max_bytes, streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http" or scope["path"] in self._streams:
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > self._max_bytes:
            await _send_problem(body_too_large(self._max_bytes), send)
            return
        n_bytes = 0

        async def receive_counted() -> Message:
            nonlocal n_bytes
            message = await receive()
            n_bytes += len(message.get("body", b""))
            if n_bytes > self._max_bytes:
                # FastAPI turns every other exception raised while it reads a body into a 400.
                raise HTTPException(413, body_too_large(self._max_bytes).detail)
            return message

        await self._app(scope, receive_counted, send)


def body_too_large(max_bytes: int) -> Problem:
    """Return the problem of a body beyond the limit."""
    return Problem(413, f"a request must have at most {max_bytes} bytes; send larger ones in parts")


async def _send_problem(problem: Problem, send: Send) -> None:
    body = problem.body()
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
