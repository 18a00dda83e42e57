"""The dispatcher: runs one sender per enabled webhook; webhooks can be added, changed and deleted at any time."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from nearcast.service.push.update_follower import UpdateFollower
from nearcast.service.push.webhooks.client import WebhookClient
from nearcast.service.push.webhooks.retry_policy import RetryPolicy
from nearcast.service.push.webhooks.sender import WebhookSender
from nearcast.service.push.webhooks.store import Webhook, WebhookKey, WebhookStore
from nearcast.service.store.cursor import Cursor

if TYPE_CHECKING:
    from nearcast.service.api.context import Service

_RESTART_S = 60.0
_log = logging.getLogger(__name__)


class WebhookDispatcher:
    """Manages webhooks and their senders; only the thread of the event loop uses it."""

    def __init__(
        self,
        store: WebhookStore,
        client: WebhookClient,
        *,
        retries: RetryPolicy | None = None,
        record_every_s: float = 60.0,
    ) -> None:
        """Take a store of webhooks; the cursors of idle webhooks are recorded every `record_every_s`."""
        self._store, self._client = store, client
        self._retries, self._record_every_s = retries or RetryPolicy(), record_every_s
        self._senders: dict[WebhookKey, tuple[WebhookSender, asyncio.Task[None]]] = {}
        self._changes = asyncio.Lock()
        self._recording: asyncio.Task[None] | None = None

    def start(self, service: Service) -> None:
        """Start the senders as soon as the service is ready."""
        self._service = service
        self._recording = asyncio.ensure_future(self._record_cursors())

    async def stop(self) -> None:
        """Stop all senders; unfinished deliveries continue after the next start."""
        if self._recording is not None:
            tasks = [self._recording, *(task for _, task in self._senders.values())]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.close()
        self._store.close()

    # -- requests -----------------------------------------------------------------------------------------------

    async def put(
        self,
        key: WebhookKey,
        url: str,
        subscriptions: list[str] | None,
        *,
        after: str | None,
        has_contents: bool = False,
    ) -> tuple[Webhook, bool]:
        """Create a webhook, or replace and enable it; return it, and whether it is new."""
        self._client.guard.check(url)
        start = UpdateFollower(
            self._service, key.subscriber, frozenset(), after, transport="webhook"
        ).after  # raises if the cursor cannot be followed
        async with self._paused(key):
            return await self._store.call(
                WebhookStore.put,
                key,
                url,
                subscriptions,
                after=None if after is None else start,
                now=start,
                has_contents=has_contents,
            )

    async def delete(self, key: WebhookKey) -> None:
        """Delete a webhook."""
        async with self._paused(key):
            await self._store.call(WebhookStore.delete, key)

    async def renew_secret(self, key: WebhookKey) -> Webhook:
        """Give a webhook a new secret, used from its next attempt on."""
        return await self._store.call(WebhookStore.renew_secret, key)

    async def get(self, key: WebhookKey) -> Webhook:
        """Return a webhook, or raise a `Problem` if it does not exist."""
        return await self._store.call(WebhookStore.get, key)

    async def list_page(self, subscriber: str, *, after: str, limit: int) -> list[Webhook]:
        """Return webhooks ordered by id, starting after an id."""
        return await self._store.call(WebhookStore.list_page, subscriber, after=after, limit=limit)

    @asynccontextmanager
    async def _paused(self, key: WebhookKey) -> AsyncIterator[None]:
        """Send nothing to a webhook during the block."""
        async with self._changes:
            if key in self._senders:
                _, task = self._senders.pop(key)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            try:
                yield
            finally:
                self._start_sender(key)  # which ends at once if the webhook was deleted

    # -- in the background --------------------------------------------------------------------------------------

    def _start_sender(self, key: WebhookKey) -> None:
        sender = WebhookSender(key, self._service, store=self._store, client=self._client, retries=self._retries)
        self._senders[key] = sender, asyncio.ensure_future(self._run_sender(key, sender))

    async def _run_sender(self, key: WebhookKey, sender: WebhookSender) -> None:
        """Run a sender, and restart it after an internal error."""
        while True:
            try:
                await self._count()
                await sender.run()
                await self._count()
                break
            except Exception:
                _log.exception("webhook %s of %s failed; restarting in %g s", key.id, key.subscriber, _RESTART_S)
                await asyncio.sleep(_RESTART_S)
        self._senders.pop(key, None)

    async def _count(self) -> None:
        counts = await self._store.call(WebhookStore.counts)
        self._service.metrics.webhooks.labels("enabled").set(counts.webhooks - counts.disabled)
        self._service.metrics.webhooks.labels("disabled").set(counts.disabled)

    async def _record_cursors(self) -> None:
        """Start the senders, then record cursors of idle webhooks, since the journal may be pruned behind them."""
        if await self._service.command_loop.wait_recovered() != "serving":
            return
        for key in await self._store.call(WebhookStore.enabled):
            if key not in self._senders:
                self._start_sender(key)
        recorded: dict[WebhookKey, Cursor] = {}
        while True:
            await asyncio.sleep(self._record_every_s)
            seen = {key: sender.seen for key, (sender, _) in self._senders.items()}
            moved = {key: at for key, at in seen.items() if at is not None and at != recorded.get(key)}
            try:
                await self._store.call(WebhookStore.move_idle, list(moved.items()))
                recorded |= moved
            except sqlite3.Error:
                _log.exception("recording the cursors of idle webhooks failed; trying again")
