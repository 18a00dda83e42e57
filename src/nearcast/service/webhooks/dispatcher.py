"""Who sends to whom? A sender for each hook that is enabled; hooks come, change and go while it runs."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from nearcast.service.follow import UpdateFollower
from nearcast.service.journal import Cursor
from nearcast.service.webhooks.client import WebhookClient
from nearcast.service.webhooks.retry import Retries
from nearcast.service.webhooks.sender import Sender
from nearcast.service.webhooks.store import Hook, Name, WebhookStore

if TYPE_CHECKING:
    from nearcast.service.context import Service

_AGAIN_S = 60.0
_log = logging.getLogger(__name__)


class WebhookDispatcher:
    """Keeps hooks and their senders; only the thread of the event loop touches it."""

    def __init__(
        self,
        book: WebhookStore,
        client: WebhookClient,
        *,
        retries: Retries | None = None,
        noted_every_s: float = 60.0,
    ) -> None:
        """Take a book of hooks; how far those have seen that had nothing to send is noted now and then."""
        self._book, self._client = book, client
        self._retries, self._noted_every_s = retries or Retries(), noted_every_s
        self._sending: dict[Name, tuple[Sender, asyncio.Task[None]]] = {}
        self._changes = asyncio.Lock()
        self._noting: asyncio.Task[None] | None = None

    def start(self, service: Service) -> None:
        """Let senders run, once the service is up."""
        self._service = service
        self._noting = asyncio.ensure_future(self._note())

    async def stop(self) -> None:
        """Let all senders go; what they had begun goes on when they are started again."""
        if self._noting is not None:
            tasks = [self._noting, *(task for _, task in self._sending.values())]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.close()
        self._book.close()

    # -- what can be asked --------------------------------------------------------------------------------------

    async def put(
        self, name: Name, url: str, subscriptions: list[str] | None, *, after: str | None
    ) -> tuple[Hook, bool]:
        """Create a hook, or replace and enable it; return it, and whether it is new."""
        self._client.guard.check(url)
        begin = UpdateFollower(
            self._service, name.subscriber, frozenset(), after, transport="webhook"
        ).after  # or say why not
        async with self._changing(name):
            return await self._book.do(
                WebhookStore.put, name, url, subscriptions, after=None if after is None else begin, now=begin
            )

    async def delete(self, name: Name) -> None:
        """Forget a hook."""
        async with self._changing(name):
            await self._book.do(WebhookStore.delete, name)

    async def renew(self, name: Name) -> Hook:
        """Give a hook a new secret, from its next attempt on."""
        return await self._book.do(WebhookStore.renew, name)

    async def find(self, name: Name) -> Hook:
        """Return a hook, or raise the problem of one that is not there."""
        return await self._book.do(WebhookStore.find, name)

    async def listed(self, subscriber: str, *, after: str, limit: int) -> list[Hook]:
        """Return hooks in the order of their ids, from behind one on."""
        return await self._book.do(WebhookStore.listed, subscriber, after=after, limit=limit)

    @asynccontextmanager
    async def _changing(self, name: Name) -> AsyncIterator[None]:
        """Let nothing be sent to a hook while it changes."""
        async with self._changes:
            if name in self._sending:
                _, task = self._sending.pop(name)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            try:
                yield
            finally:
                self._send(name)  # which ends at once if there is nobody to send to

    # -- in the background --------------------------------------------------------------------------------------

    def _send(self, name: Name) -> None:
        sender = Sender(name, self._service, book=self._book, client=self._client, retries=self._retries)
        self._sending[name] = sender, asyncio.ensure_future(self._kept_sending(name, sender))

    async def _kept_sending(self, name: Name, sender: Sender) -> None:
        """Let a sender run, also after something went wrong here."""
        while True:
            try:
                await self._count()
                await sender.run()
                await self._count()
                break
            except Exception:
                _log.exception("webhook %s of %s is tried again in %g s", name.id, name.subscriber, _AGAIN_S)
                await asyncio.sleep(_AGAIN_S)
        self._sending.pop(name, None)

    async def _count(self) -> None:
        counts = await self._book.do(WebhookStore.counts)
        self._service.meters.webhooks.labels("enabled").set(counts.hooks - counts.disabled)
        self._service.meters.webhooks.labels("disabled").set(counts.disabled)

    async def _note(self) -> None:
        """Start senders, and note how far those have seen that had nothing to send: it may be pruned behind them."""
        if await self._service.command_loop.freezing_gc() != "serving":
            return
        for name in await self._book.do(WebhookStore.enabled):
            if name not in self._sending:
                self._send(name)
        noted: dict[Name, Cursor] = {}
        while True:
            await asyncio.sleep(self._noted_every_s)
            seen = {name: sender.seen for name, (sender, _) in self._sending.items()}
            news = {name: at for name, at in seen.items() if at is not None and at != noted.get(name)}
            try:
                await self._book.do(WebhookStore.seen, list(news.items()))
                noted |= news
            except sqlite3.Error:
                _log.exception("how far webhooks have seen is noted later")
