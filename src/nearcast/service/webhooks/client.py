"""What does a receiver say to a delivery? One request, without redirects or proxies, within a time."""

from __future__ import annotations

import asyncio
import ssl
import time
from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal

import httpcore

from nearcast.service.webhooks.guard import Guard, GuardedBackend, Refused, Resolve, look_up
from nearcast.service.webhooks.retry import asked_s

Outcome = Literal["acknowledged", "failed", "refused", "gone"]

_GONE = 410
_MOST_BYTES = 16_384  # of an answer; what it says does not matter, but a connection can be used again
_KEPT_S, _KEPT = 30.0, 100  # connections
_CONNECT = {"timeout": {"connect": 5.0}}  # then the next address of the host


@dataclass(frozen=True)
class DeliveryResult:
    """What came of an attempt."""

    outcome: Outcome
    why: str = ""
    asked_s: float | None = None
    """How long the receiver wants to be left alone."""


class WebhookClient:
    """Makes attempts."""

    def __init__(
        self,
        guard: Guard,
        *,
        timeout_s: float = 20.0,
        resolve: Resolve = look_up,
        trusted: ssl.SSLContext | None = None,
    ) -> None:
        """Reach what a guard allows; trust the certificates that this system does, if not told which."""
        self.guard = guard
        self._timeout_s, self._backend = timeout_s, GuardedBackend(guard, resolve=resolve)
        self._headers = {"content-type": "application/json", "user-agent": f"Nearcast/{version('nearcast')}"}
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=trusted or ssl.create_default_context(),
            max_connections=None,  # a slow receiver keeps nobody else waiting
            max_keepalive_connections=_KEPT,
            keepalive_expiry=_KEPT_S,
            network_backend=self._backend,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.aclose()
        self._backend.close()

    async def attempt(self, url: str, body: bytes, headers: dict[str, str]) -> DeliveryResult:
        """Send a delivery, and return what came of it."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._sent(url, body, headers)
        except TimeoutError:
            return DeliveryResult("failed", f"no answer within {self._timeout_s:g} s")
        except Refused as error:
            return DeliveryResult("refused", str(error))
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError) as error:
            return DeliveryResult("failed", f"no answer: {error or type(error).__name__}"[:200])

    async def _sent(self, url: str, body: bytes, headers: dict[str, str]) -> DeliveryResult:
        async with self._pool.stream(
            "POST", url, headers=[*self._headers.items(), *headers.items()], content=body, extensions=_CONNECT
        ) as response:
            seen = 0
            async for part in response.aiter_stream():
                if (seen := seen + len(part)) > _MOST_BYTES:
                    break
        status = response.status
        if 200 <= status < 300:
            return DeliveryResult("acknowledged")
        if status == _GONE:
            return DeliveryResult("gone", "the receiver answered 410: it wants no more")
        hint = "; redirects are not followed" if 300 <= status < 400 else ""
        after = next((value for name, value in response.headers if name.lower() == b"retry-after"), None)
        asked = None if after is None else asked_s(after.decode("latin-1"), now=time.time())
        return DeliveryResult("failed", f"the receiver answered {status}{hint}", asked)
