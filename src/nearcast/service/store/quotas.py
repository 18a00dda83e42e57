"""Quotas: how much each subscriber may have, counted from the journal."""

from __future__ import annotations

from nearcast.errors import require
from nearcast.service.commands import Growth
from nearcast.service.store.journal import JournalQueries


class Quotas:
    """Counts the subscriptions of each subscriber, the messages that their results can hold, and their bytes."""

    def __init__(self, *, max_subscriptions: int, max_results: int, max_bytes: int) -> None:
        self._max_subscriptions, self._max_results, self._max_bytes = max_subscriptions, max_results, max_bytes
        self._used: dict[str, Growth] = {}
        self.n_subscriptions = 0
        """Subscriptions of all subscribers."""
        self.n_results = 0
        """Messages that the results of all subscribers can hold."""

    def load(self, journal: JournalQueries) -> None:
        """Count what is there."""
        self._used = {used.subscriber: used for used in journal.usage()}
        self.n_subscriptions = sum(used.subscriptions for used in self._used.values())
        self.n_results = sum(used.results for used in self._used.values())

    def check(self, growth: Growth) -> None:
        """Raise `InvalidInput` if a subscriber would have too much; what it has may always shrink."""
        after, most = self._after(growth), self._max_subscriptions
        ok = growth.subscriptions <= 0 or after.subscriptions <= most
        require(ok, "subscriptions", f"must be at most {most:,} per subscriber", after.subscriptions)
        ok, most = growth.results <= 0 or after.results <= self._max_results, self._max_results
        rule = f"must add up to at most {most:,} over all subscriptions of a subscriber"
        require(ok, "k", rule, after.results)
        ok, most = growth.n_bytes <= 0 or after.n_bytes <= self._max_bytes, self._max_bytes
        require(ok, "subscriptions", f"must take at most {most:,} bytes of JSON per subscriber", after.n_bytes)

    def add(self, growth: Growth) -> None:
        """Count a command that was applied."""
        self._used[growth.subscriber] = self._after(growth)
        self.n_subscriptions += growth.subscriptions
        self.n_results += growth.results

    def _after(self, growth: Growth) -> Growth:
        used = self._used.get(growth.subscriber, Growth(growth.subscriber, 0, 0, 0))
        counts = (before + more for before, more in zip(used[1:], growth[1:], strict=True))
        return Growth(growth.subscriber, *counts)
