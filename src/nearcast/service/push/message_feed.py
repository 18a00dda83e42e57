"""The message feed: a sample of current messages for the live map. It never waits for a slow viewer.

Unlike updates, messages of the feed may be lost: a viewer buffers the newest few, and older ones are dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from nearcast.service.json_bodies import Body

MAX_BUFFERED = 200
"""Messages that a viewer receives at a time."""


class FeedViewer:
    """The buffer of messages for one page."""

    def __init__(self) -> None:
        self._buffer: deque[Body] = deque(maxlen=MAX_BUFFERED)

    def put(self, messages: Sequence[Body]) -> None:
        """Buffer messages, dropping the oldest."""
        self._buffer.extend(messages)

    def take(self) -> list[Body]:
        """Return the buffered messages and clear the buffer."""
        taken = list(self._buffer)
        self._buffer.clear()
        return taken


class MessageFeed:
    """Distributes committed messages to viewers; only the thread of the event loop uses it."""

    def __init__(self) -> None:
        self.viewers: set[FeedViewer] = set()

    def publish(self, messages: Sequence[Body]) -> None:
        """Distribute committed messages, without their bodies: a sample for people to look at."""
        shown = [{name: value for name, value in one.items() if name != "body"} for one in messages if self.viewers]
        for viewer in self.viewers:
            viewer.put(shown)
