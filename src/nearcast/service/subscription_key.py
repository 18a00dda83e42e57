"""The key of a subscription within a service: its subscriber and its id."""

from __future__ import annotations

from typing import NamedTuple

from nearcast.model import Id


class SubscriptionKey(NamedTuple):
    """Identifies a subscription; an id is unique per subscriber.

    >>> SubscriptionKey("ann", "s1").engine_id, SubscriptionKey.parse("ann/s1")
    ('ann/s1', SubscriptionKey(subscriber='ann', id='s1'))
    """

    subscriber: str
    id: str

    @property
    def engine_id(self) -> str:
        """The id of the subscription in the engine. The name of a subscriber contains no slash."""
        return f"{self.subscriber}/{self.id}"

    @classmethod
    def parse(cls, engine_id: Id) -> SubscriptionKey:
        """Parse the id of a subscription in the engine."""
        subscriber, _, id_ = str(engine_id).partition("/")
        return cls(subscriber, id_)
