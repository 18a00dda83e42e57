"""Hypothesis strategies for tests of Nearcast and of programs that use it. Needs `hypothesis`."""

from nearcast.testing.strategies import (
    GLOBE,
    PLANE,
    make_subscription,
    message_fields,
    messages,
    subscription_fields,
    subscriptions,
)

__all__ = [
    "GLOBE",
    "PLANE",
    "make_subscription",
    "message_fields",
    "messages",
    "subscription_fields",
    "subscriptions",
]
