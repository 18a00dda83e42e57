"""The hub: distributes updates to listeners as they are committed. Each listener has a bounded queue.

A listener that lags is closed. Only the thread of the event loop uses a hub, so it has no lock. Joining returns the
position from which on the listener receives everything; all updates before it are in the journal.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from nearcast.service.api.metrics import Metrics
from nearcast.service.store.cursor import START, Cursor
from nearcast.service.store.journal import JournaledUpdate

LAGGED = "the client lagged; reconnect with the last cursor"
STOPPED = "the service is stopping; reconnect with the last cursor"


Topic = tuple[str, str | None]
"""A subscriber and the id of one of its subscriptions, or None for all of them."""


class Listener:
    """The queue of updates for one client."""

    def __init__(self, subscriber: str, subscriptions: frozenset[str] = frozenset()) -> None:
        """Listen to some subscriptions of a subscriber, or to all if none are given."""
        self.subscriber, self.subscriptions = subscriber, subscriptions
        self.close_reason: str | None = None
        """Why the listener is closed; None while it is open."""
        self.closed = asyncio.Event()
        self._queue: deque[JournaledUpdate] = deque()
        self._has_updates = asyncio.Event()

    @property
    def is_empty(self) -> bool:
        """True if the queue is empty."""
        return not self._queue

    @property
    def topics(self) -> list[Topic]:
        """The topics of the listener."""
        return [(self.subscriber, id_) for id_ in self.subscriptions] or [(self.subscriber, None)]

    def includes(self, update: JournaledUpdate) -> bool:
        """Return whether the listener receives an update of its subscriber."""
        return not self.subscriptions or update.key.id in self.subscriptions

    def put(self, update: JournaledUpdate, *, max_queued: int) -> None:
        """Add an update to the queue; if the queue is full, clear it and close the listener."""
        if len(self._queue) >= max_queued:
            self.close(LAGGED)
        elif self.close_reason is None:
            self._queue.append(update)
            self._has_updates.set()

    def close(self, reason: str) -> None:
        """Close the listener and clear its queue."""
        self.close_reason = self.close_reason or reason
        self._queue.clear()
        self._has_updates.set()
        self.closed.set()

    async def take(self, limit: int) -> list[JournaledUpdate]:
        """Wait for updates and return the first `limit` of them; return none once the listener is closed."""
        await self._has_updates.wait()
        taken = [self._queue.popleft() for _ in range(min(limit, len(self._queue)))]
        if self.close_reason is None and not self._queue:
            self._has_updates.clear()
        return taken


class Hub:
    """Distributes committed updates to listeners."""

    def __init__(self, metrics: Metrics, *, max_queued: int) -> None:
        """Close listeners that have more than `max_queued` updates waiting."""
        self.position = START
        """The cursor after everything that was distributed."""
        self.is_closed = False
        self._metrics = metrics
        self._max_queued = max_queued
        self._listeners: dict[Topic, set[Listener]] = {}

    def join(self, listener: Listener) -> Cursor:
        """Add a listener and return the current position, after which it receives everything."""
        if self.is_closed:
            listener.close(STOPPED)
        for topic in listener.topics:
            self._listeners.setdefault(topic, set()).add(listener)
        return self.position

    def leave(self, listener: Listener) -> None:
        """Remove a listener, if it has joined."""
        for topic in listener.topics:
            others = self._listeners.get(topic, set())
            others.discard(listener)
            if not others:
                self._listeners.pop(topic, None)

    def publish(self, updates: Sequence[JournaledUpdate], position: Cursor) -> None:
        """Distribute committed updates and advance to a position."""
        self.position = position
        for update in updates:
            for topic in (update.key, (update.key.subscriber, None)):
                for listener in self._listeners.get(topic, ()):
                    if listener.close_reason is None:
                        listener.put(update, max_queued=self._max_queued)
                        if listener.close_reason is not None:
                            self._metrics.lagged_clients.inc()

    def close(self) -> None:
        """Close all listeners, including those that join later."""
        self.is_closed = True
        for listeners in self._listeners.values():
            for listener in listeners:
                listener.close(STOPPED)
