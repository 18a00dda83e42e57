"""How much may a request hold? A body beyond the limit is refused before, or while, it is read."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nearcast.service.problem import MEDIA_TYPE, Problem


class BodyLimit:
    """Passes requests on whose body is small enough; streams have limits of their own."""

    def __init__(self, app: ASGIApp, *, most_bytes: int, streams: tuple[str, ...]) -> None:
        self._app, self._most, self._streams = app, most_bytes, streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http" or scope["path"] in self._streams:
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > self._most:
            await _refuse(too_large(self._most), send)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._most:
                raise HTTPException(413, too_large(self._most).detail)  # the only kind that passes who reads bodies
            return message

        await self._app(scope, counted, send)


def too_large(most_bytes: int) -> Problem:
    """Return the problem of a body that is too large."""
    return Problem(413, f"a request must hold {most_bytes} bytes at most; larger ones can be sent in parts")


async def _refuse(problem: Problem, send: Send) -> None:
    body = problem.body()
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
