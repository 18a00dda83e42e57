"""The sender of one webhook: it stores a batch of updates as a delivery and sends it until it is acknowledged.

    finish the stored delivery ──► follow: next updates ──► store ──► attempt ──► acknowledged: next updates
            ▲                                                            │
            └──────────── leave the hub, wait ◄──── failed ◄─────────────┘

While a receiver is unavailable nothing queues for it in memory: it reads what it missed from the journal later.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from nearcast.service.api.problems import Problem
from nearcast.service.push.update_follower import UpdateFollower
from nearcast.service.push.webhooks.client import WebhookClient
from nearcast.service.push.webhooks.retry_policy import RetryPolicy
from nearcast.service.push.webhooks.signatures import delivery_headers, new_delivery_id
from nearcast.service.push.webhooks.store import Delivery, Webhook, WebhookKey, WebhookStore
from nearcast.service.store.cursor import Cursor
from nearcast.service.store.journal import JournaledUpdate

if TYPE_CHECKING:
    from nearcast.service.api.context import Service

MAX_UPDATES = 100
"""Updates per delivery."""
_NOT_READY = 503


class WebhookSender:
    """Sends the updates of one webhook."""

    def __init__(
        self, key: WebhookKey, service: Service, *, store: WebhookStore, client: WebhookClient, retries: RetryPolicy
    ) -> None:
        self._key, self._service = key, service
        self._store, self._client, self._retries = store, client, retries
        self._idle_follower: UpdateFollower | None = None

    @property
    def seen(self) -> Cursor | None:
        """The cursor up to which there is nothing to send; None while a delivery is under way."""
        return None if self._idle_follower is None else self._idle_follower.seen

    async def run(self) -> None:
        """Send updates until the webhook is disabled or the service stops."""
        while await self._service.command_loop.wait_recovered() == "serving" and not self._service.hub.is_closed:
            try:
                webhook = await self._finish_delivery()
                if webhook is None:
                    return
                await self._follow(webhook)
            except Problem as problem:
                if problem.status != _NOT_READY:  # its cursor cannot be followed
                    await self._store.call(WebhookStore.disable, self._key, problem.detail)
                    return

    async def _finish_delivery(self) -> Webhook | None:
        """Send the stored delivery until it is acknowledged; return the webhook, or None if it is disabled."""
        while True:
            webhook, delivery = await self._store.call(WebhookStore.pending_delivery, self._key)
            if webhook.disabled is not None:
                return None
            if delivery is None:
                return webhook
            if webhook.next_attempt is not None and (wait := webhook.next_attempt - time.time()) > 0:
                await asyncio.sleep(wait)  # then read it again, since it may have changed
            else:
                await self._attempt(webhook, delivery)

    async def _follow(self, webhook: Webhook) -> None:
        """Send updates as they come until an attempt fails or the webhook lags."""
        ids, after = frozenset(webhook.subscriptions or ()), str(webhook.cursor)
        subscriber = self._key.subscriber
        with UpdateFollower(
            self._service,
            subscriber,
            ids,
            after,
            transport="webhook",
            page=MAX_UPDATES,
            has_contents=bool(webhook.has_contents),
        ) as follower:
            while follower.close_reason is None:
                self._idle_follower = follower
                try:
                    page = await follower.next()
                finally:
                    self._idle_follower = None
                if page:
                    delivery = _delivery(self._key, page)
                    webhook = await self._store.call(WebhookStore.begin_delivery, self._key, delivery)
                    if not await self._attempt(webhook, delivery):
                        return

    async def _attempt(self, webhook: Webhook, delivery: Delivery) -> bool:
        """Send a delivery once and record the outcome; return whether it was acknowledged."""
        now = time.time()
        headers = delivery_headers(delivery.id, delivery.body, secrets=webhook.secrets(now=now), at=int(now))
        result = await self._client.attempt(webhook.url, delivery.body, headers)
        if result.outcome == "acknowledged":
            await self._store.call(WebhookStore.acknowledge, self._key, delivery)
        elif result.outcome == "gone":
            await self._store.call(
                WebhookStore.record_failure, self._key, result.reason, next_attempt=None, disabled=result.reason
            )
        else:
            failures = webhook.failures + 1
            wait = self._retries.wait_s(failures, retry_after_s=result.retry_after_s)
            disabled = f"given up after {failures} attempts: {result.reason}" if wait is None else None
            at = None if wait is None else time.time() + wait
            await self._store.call(
                WebhookStore.record_failure, self._key, result.reason, next_attempt=at, disabled=disabled
            )
        self._service.metrics.deliveries.labels(result.outcome).inc()
        return result.outcome == "acknowledged"


def _delivery(key: WebhookKey, updates: Sequence[JournaledUpdate]) -> Delivery:
    """Return updates as a new delivery."""
    at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    envelope = {"type": "updates", "timestamp": at, "data": {"webhook": key.id, "updates": []}}
    joined = ", ".join(update.json for update in updates)  # JSON already
    body = json.dumps(envelope).removesuffix("]}}") + joined + "]}}"
    return Delivery(new_delivery_id(), body.encode(), updates[-1].cursor)
