"""HTTP client of webhooks: one POST per attempt, without redirects or proxies, within a time limit."""

from __future__ import annotations

import asyncio
import ssl
import time
from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal

import httpcore

from nearcast.service.push.webhooks.address_guard import (
    AddressGuard,
    AddressRefused,
    GuardedBackend,
    Resolve,
    resolve_host,
)
from nearcast.service.push.webhooks.retry_policy import retry_after_s

Outcome = Literal["acknowledged", "failed", "refused", "gone"]

_GONE = 410
_MAX_ANSWER_BYTES = 16_384  # the answer is ignored, but reading it lets the connection be reused
_IDLE_S, _MAX_IDLE = 30.0, 100  # connections
_CONNECT = {"timeout": {"connect": 5.0}}  # per address of the host


@dataclass(frozen=True)
class DeliveryResult:
    """The outcome of an attempt."""

    outcome: Outcome
    reason: str = ""
    retry_after_s: float | None = None
    """The wait that the receiver requests."""


class WebhookClient:
    """Sends deliveries."""

    def __init__(
        self,
        guard: AddressGuard,
        *,
        timeout_s: float = 20.0,
        resolve: Resolve = resolve_host,
        trusted: ssl.SSLContext | None = None,
    ) -> None:
        """Reach only what a guard allows; by default trust the certificate authorities of the system."""
        self.guard = guard
        self._timeout_s, self._backend = timeout_s, GuardedBackend(guard, resolve=resolve)
        self._headers = {"content-type": "application/json", "user-agent": f"Nearcast/{version('nearcast')}"}
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=trusted or ssl.create_default_context(),
            max_connections=None,  # a slow receiver delays no other
            max_keepalive_connections=_MAX_IDLE,
            keepalive_expiry=_IDLE_S,
            network_backend=self._backend,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.aclose()
        self._backend.close()

    async def attempt(self, url: str, body: bytes, headers: dict[str, str]) -> DeliveryResult:
        """Send a delivery once and return the outcome."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._post(url, body, headers)
        except TimeoutError:
            return DeliveryResult("failed", f"no answer within {self._timeout_s:g} s")
        except AddressRefused as error:
            return DeliveryResult("refused", str(error))
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError) as error:
            return DeliveryResult("failed", f"no answer: {error or type(error).__name__}"[:200])

    async def _post(self, url: str, body: bytes, headers: dict[str, str]) -> DeliveryResult:
        async with self._pool.stream(
            "POST", url, headers=[*self._headers.items(), *headers.items()], content=body, extensions=_CONNECT
        ) as response:
            n_bytes = 0
            async for part in response.aiter_stream():
                if (n_bytes := n_bytes + len(part)) > _MAX_ANSWER_BYTES:
                    break
        status = response.status
        if 200 <= status < 300:
            return DeliveryResult("acknowledged")
        if status == _GONE:
            return DeliveryResult("gone", "the receiver answered 410: it accepts no more deliveries")
        hint = "; redirects are not followed" if 300 <= status < 400 else ""
        header = next((value for name, value in response.headers if name.lower() == b"retry-after"), None)
        wait = None if header is None else retry_after_s(header.decode("latin-1"), now=time.time())
        return DeliveryResult("failed", f"the receiver answered {status}{hint}", wait)
