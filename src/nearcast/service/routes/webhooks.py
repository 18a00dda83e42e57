"""Where are updates to be sent? Hooks of a subscriber, and how they fare."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from nearcast.service.context import Limit, Running, Subscriber, WebhookId, problems
from nearcast.service.schema import NewSecret, NewWebhook, WebhookBody, WebhookPage, WebhookState
from nearcast.service.webhooks.store import Hook, Name

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"])


@router.put("/{id}", response_model=WebhookState, responses={201: {"model": NewWebhook}, **problems(409, 410)})
async def put(id: WebhookId, body: WebhookBody, service: Running, caller: Subscriber) -> Any:
    """Create a webhook, with a secret that is shown this once; or replace it, and enable it again."""
    name = Name(caller.subscriber, id)
    hook, is_new = await service.webhooks.put(name, body.url, body.subscriptions, after=body.after)
    return JSONResponse({**_state(hook), "secret": hook.secret}, 201) if is_new else _state(hook)


@router.get("", response_model=WebhookPage, responses=problems())
async def listed(service: Running, caller: Subscriber, cursor: str = "", limit: Limit = 100) -> Any:
    """List webhooks in the order of their ids, page by page."""
    found = await service.webhooks.listed(caller.subscriber, after=cursor, limit=limit + 1)
    following = found[limit - 1].name.id if len(found) > limit else None
    return {"webhooks": [_state(hook) for hook in found[:limit]], "next": following}


@router.get("/{id}", response_model=WebhookState, responses=problems(404))
async def read(id: WebhookId, service: Running, caller: Subscriber) -> Any:
    """Read a webhook: how far it was told, and what went wrong."""
    return _state(await service.webhooks.find(Name(caller.subscriber, id)))


@router.delete("/{id}", status_code=204, response_class=Response, responses=problems(404))
async def delete(id: WebhookId, service: Running, caller: Subscriber) -> None:
    """Forget a webhook; nothing is sent to it any more."""
    await service.webhooks.delete(Name(caller.subscriber, id))


@router.post("/{id}/secret", response_model=NewSecret, responses=problems(404))
async def renew(id: WebhookId, service: Running, caller: Subscriber) -> Any:
    """Make a new secret, which is shown this once; for a day the old one signs beside it."""
    hook = await service.webhooks.renew(Name(caller.subscriber, id))
    return {"secret": hook.secret, "old_until": hook.old_until}


def _state(hook: Hook) -> dict[str, Any]:
    return {
        "id": hook.name.id,
        "url": hook.url,
        "subscriptions": hook.subscriptions,
        "cursor": str(hook.cursor),
        "failures": hook.failures,
        "next_attempt": hook.next_attempt,
        "last_error": hook.last_error,
        "disabled": hook.disabled,
    }
