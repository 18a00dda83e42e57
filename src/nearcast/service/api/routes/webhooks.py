"""Routes of webhooks and their state."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from nearcast.service.api.context import INCLUDED, Limit, RunningService, Subscriber, WebhookId, problems
from nearcast.service.api.schemas import SecretBody, WebhookBody, WebhookPage, WebhookState, WebhookWithSecret
from nearcast.service.push.webhooks.store import Webhook, WebhookKey

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"])


@router.put("/{id}", response_model=WebhookState, responses={201: {"model": WebhookWithSecret}, **problems(409, 410)})
async def put(id: WebhookId, body: WebhookBody, service: RunningService, caller: Subscriber) -> Any:
    """Create a webhook and return its secret, which is not shown again; or replace a webhook and enable it."""
    key = WebhookKey(caller.subscriber, id)
    webhook, is_new = await service.webhooks.put(
        key, body.url, body.subscriptions, after=body.after, has_contents=body.include is not None
    )
    return JSONResponse({**_state(webhook), "secret": webhook.secret}, 201) if is_new else _state(webhook)


@router.get("", response_model=WebhookPage, responses=problems())
async def list_page(service: RunningService, caller: Subscriber, cursor: str = "", limit: Limit = 100) -> Any:
    """List webhooks ordered by id, page by page."""
    found = await service.webhooks.list_page(caller.subscriber, after=cursor, limit=limit + 1)
    following = found[limit - 1].key.id if len(found) > limit else None
    return {"webhooks": [_state(webhook) for webhook in found[:limit]], "next": following}


@router.get("/{id}", response_model=WebhookState, responses=problems(404))
async def get(id: WebhookId, service: RunningService, caller: Subscriber) -> Any:
    """Return a webhook with its cursor and its last error."""
    return _state(await service.webhooks.get(WebhookKey(caller.subscriber, id)))


@router.delete("/{id}", status_code=204, response_class=Response, responses=problems(404))
async def delete(id: WebhookId, service: RunningService, caller: Subscriber) -> None:
    """Delete a webhook; nothing more is sent to it."""
    await service.webhooks.delete(WebhookKey(caller.subscriber, id))


@router.post("/{id}/secret", response_model=SecretBody, responses=problems(404))
async def renew_secret(id: WebhookId, service: RunningService, caller: Subscriber) -> Any:
    """Create a new secret, which is not shown again; the old one signs beside it for a day."""
    webhook = await service.webhooks.renew_secret(WebhookKey(caller.subscriber, id))
    return {"secret": webhook.secret, "old_until": webhook.old_until}


def _state(webhook: Webhook) -> dict[str, Any]:
    return {
        "id": webhook.key.id,
        "url": webhook.url,
        "subscriptions": webhook.subscriptions,
        "include": INCLUDED if webhook.has_contents else None,
        "cursor": str(webhook.cursor),
        "failures": webhook.failures,
        "next_attempt": webhook.next_attempt,
        "last_error": webhook.last_error,
        "disabled": webhook.disabled,
    }
