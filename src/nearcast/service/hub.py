"""Who hears of updates, as they happen? Listeners with a bounded queue each; one that lags is let go.

Only the thread of the event loop touches a hub, so there is no lock: joining tells the position from which on a
listener misses nothing, and everything up to there is in the journal already.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from nearcast.service.journal import Cursor, JournaledUpdate
from nearcast.service.meters import Meters

LAGGED = "the client lagged; come back with the last cursor"
STOPPED = "the service stops; come back with the last cursor"


Topic = tuple[str, str | None]
"""A subscription of a subscriber, or all of them."""


class Listener:
    """What one client has still to be sent."""

    def __init__(self, subscriber: str, subscriptions: frozenset[str] = frozenset()) -> None:
        self.subscriber, self.subscriptions = subscriber, subscriptions
        self.closed: str | None = None
        """Why there will be no more, if so."""
        self.over = asyncio.Event()
        """Set when it is closed, also for who waits for something else."""
        self._queue: deque[JournaledUpdate] = deque()
        self._news = asyncio.Event()

    @property
    def is_empty(self) -> bool:
        """True if nothing waits to be sent."""
        return not self._queue

    @property
    def topics(self) -> list[Topic]:
        """What it listens to."""
        return [(self.subscriber, id_) for id_ in self.subscriptions] or [(self.subscriber, None)]

    def wants(self, told: JournaledUpdate) -> bool:
        """Tell whether an update is for this client; without a list of subscriptions all of the subscriber's are."""
        return not self.subscriptions or told.subscription in self.subscriptions

    def put(self, told: JournaledUpdate, *, most: int) -> None:
        """Take in an update; if there are too many, forget them all and close."""
        if len(self._queue) >= most:
            self.close(LAGGED)
        elif self.closed is None:
            self._queue.append(told)
            self._news.set()

    def close(self, why: str) -> None:
        """Let there be no more."""
        self.closed = self.closed or why
        self._queue.clear()
        self._news.set()
        self.over.set()

    async def take(self, most: int) -> list[JournaledUpdate]:
        """Return what is new, the first so many, when there is something; nothing once it is closed."""
        await self._news.wait()
        taken = [self._queue.popleft() for _ in range(min(most, len(self._queue)))]
        if self.closed is None and not self._queue:
            self._news.clear()
        return taken


class Hub:
    """Passes updates on to listeners."""

    def __init__(self, meters: Meters, *, most: int) -> None:
        self.position = Cursor(0, 0)
        """Behind everything that was passed on."""
        self._meters = meters
        self._most = most
        self.is_closed = False
        """True once everyone was let go."""
        self._listeners: dict[Topic, set[Listener]] = {}

    def join(self, listener: Listener) -> Cursor:
        """Let a listener have everything behind `position`, as it is now and is returned."""
        if self.is_closed:
            listener.close(STOPPED)
        for topic in listener.topics:
            self._listeners.setdefault(topic, set()).add(listener)
        return self.position

    def leave(self, listener: Listener) -> None:
        """Let a listener go, if it joined."""
        for topic in listener.topics:
            others = self._listeners.get(topic, set())
            others.discard(listener)
            if not others:
                self._listeners.pop(topic, None)

    def tell(self, updates: Sequence[JournaledUpdate], position: Cursor) -> None:
        """Pass on what was committed."""
        self.position = position
        for told in updates:
            for topic in ((told.subscriber, told.subscription), (told.subscriber, None)):
                for listener in self._listeners.get(topic, ()):
                    if listener.closed is None:
                        listener.put(told, most=self._most)
                        if listener.closed is not None:
                            self._meters.lagging.inc()

    def close(self) -> None:
        """Let everyone go, also who comes later."""
        self.is_closed = True
        for listeners in self._listeners.values():
            for listener in listeners:
                listener.close(STOPPED)
