"""Messages and subscriptions as JSON: what clients send and what the journal stores.

An engine only receives objects made from this JSON, both when a command arrives and when the journal is replayed, so
both give the same results.
"""

from __future__ import annotations

from typing import Any

from nearcast.model import Message, Subscription, find_kind
from nearcast.service.subscription_key import SubscriptionKey

Body = dict[str, Any]
"""A message or a subscription as JSON."""


def message_from(body: Body) -> Message:
    """Return the message of a body."""
    return Message(**{**body, "location": tuple(body["location"])})


def subscription_from(body: Body, subscriber: str) -> Subscription:
    """Return the subscription of a body, with its id in the engine."""
    return find_kind(body["kind"]).from_json(body, SubscriptionKey(subscriber, body["id"]).engine_id)
