"""How is one hook told? Batch after batch, each fixed in the book, sent, and sent again until it is acknowledged.

    finish what was begun ──► follow: next updates ──► begin ──► attempt ──► acknowledged: on with what comes next
            ▲                                                       │
            └──────────── leave the hub, wait ◄──── failed ◄────────┘

While a receiver is away nothing queues for it: it is behind, and comes back through the journal.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from nearcast.service.follow import UpdateFollower
from nearcast.service.journal import Cursor, JournaledUpdate
from nearcast.service.problem import Problem
from nearcast.service.webhooks.client import WebhookClient
from nearcast.service.webhooks.retry import Retries
from nearcast.service.webhooks.sign import headers_of, new_delivery
from nearcast.service.webhooks.store import Delivery, Hook, Name, WebhookStore

if TYPE_CHECKING:
    from nearcast.service.context import Service

MOST_UPDATES = 100
_NOT_READY = 503


class Sender:
    """Tells one hook."""

    def __init__(
        self, name: Name, service: Service, *, book: WebhookStore, client: WebhookClient, retries: Retries
    ) -> None:
        self._name, self._service = name, service
        self._book, self._client, self._retries = book, client, retries
        self._waiting: UpdateFollower | None = None

    @property
    def seen(self) -> Cursor | None:
        """How far there was nothing that it would have to send; None while it sends."""
        return None if self._waiting is None else self._waiting.seen

    async def run(self) -> None:
        """Tell the hook until it is disabled, or the service stops."""
        while await self._service.command_loop.freezing_gc() == "serving" and not self._service.hub.is_closed:
            try:
                hook = await self._finished()
                if hook is None:
                    return
                await self._follow(hook)
            except Problem as problem:
                if problem.status != _NOT_READY:  # it cannot go on from its cursor
                    await self._book.do(WebhookStore.disable, self._name, problem.detail)
                    return

    async def _finished(self) -> Hook | None:
        """Send what was begun, as often as it takes; return the hook as it is then, None if it is disabled."""
        while True:
            hook, delivery = await self._book.do(WebhookStore.under_way, self._name)
            if hook.disabled is not None:
                return None
            if delivery is None:
                return hook
            if hook.next_attempt is not None and (wait := hook.next_attempt - time.time()) > 0:
                await asyncio.sleep(wait)  # and look again, as it may have changed
            else:
                await self._attempt(hook, delivery)

    async def _follow(self, hook: Hook) -> None:
        """Send what comes until something fails, or too much came meanwhile."""
        ids, after = frozenset(hook.subscriptions or ()), str(hook.cursor)
        subscriber = self._name.subscriber
        with UpdateFollower(
            self._service, subscriber, ids, after, transport="webhook", page=MOST_UPDATES
        ) as follower:
            while follower.closed is None:
                self._waiting = follower
                try:
                    page = await follower.next()
                finally:
                    self._waiting = None
                if page:
                    delivery = _delivery(self._name, page)
                    hook = await self._book.do(WebhookStore.begin, self._name, delivery)
                    if not await self._attempt(hook, delivery):
                        return

    async def _attempt(self, hook: Hook, delivery: Delivery) -> bool:
        """Try once and note what came of it; tell whether it was acknowledged."""
        now = time.time()
        headers = headers_of(delivery.name, delivery.body, keys=hook.keys(now=now), at=int(now))
        said = await self._client.attempt(hook.url, delivery.body, headers)
        if said.outcome == "acknowledged":
            await self._book.do(WebhookStore.acknowledged, self._name, delivery)
        elif said.outcome == "gone":
            await self._book.do(WebhookStore.failed, self._name, said.why, next_attempt=None, disabled=said.why)
        else:
            wait = self._retries.wait_s(hook.failures + 1, asked_s=said.asked_s)
            given_up = f"given up after {hook.failures + 1} attempts: {said.why}" if wait is None else None
            at = None if wait is None else time.time() + wait
            await self._book.do(WebhookStore.failed, self._name, said.why, next_attempt=at, disabled=given_up)
        self._service.meters.deliveries.labels(said.outcome).inc()
        return said.outcome == "acknowledged"


def _delivery(name: Name, updates: Sequence[JournaledUpdate]) -> Delivery:
    """Return updates as they are sent."""
    at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    said = {"type": "updates", "timestamp": at, "data": {"webhook": name.id, "updates": []}}
    listed = ", ".join(told.json for told in updates)  # JSON already
    body = json.dumps(said).removesuffix("]}}") + listed + "]}}"
    return Delivery(new_delivery(), body.encode(), updates[-1].cursor)
