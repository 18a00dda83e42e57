"""The header that forbids browsers to guess the type of an answer, such as a page in a text that a client sent."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEADER = (b"x-content-type-options", b"nosniff")


class ContentTypeHeader:
    """ASGI middleware that adds the header to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""

        async def send_with_header(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), _HEADER]}
            await send(message)

        await self._app(scope, receive, send_with_header)
