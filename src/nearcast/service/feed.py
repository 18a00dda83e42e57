"""What is being said right now? A sample of messages for who looks at the map; nobody waits for who looks slowly.

Unlike updates, messages shown here may be lost: a watcher holds the newest few, and what does not fit is not shown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from nearcast.service.commands import Body

MOST_SHOWN = 200
"""Messages that a watcher gets at a time."""


class Watcher:
    """What one page has still to be shown."""

    def __init__(self) -> None:
        self._held: deque[Body] = deque(maxlen=MOST_SHOWN)

    def put(self, messages: Sequence[Body]) -> None:
        """Hold the newest."""
        self._held.extend(messages)

    def take(self) -> list[Body]:
        """Return what is held, and forget it."""
        taken = list(self._held)
        self._held.clear()
        return taken


class Feed:
    """Shows messages to watchers; only the thread of the event loop touches it."""

    def __init__(self) -> None:
        self.watchers: set[Watcher] = set()

    def show(self, messages: Sequence[Body]) -> None:
        """Show messages that were committed."""
        for watcher in self.watchers:
            watcher.put(messages)
