"""Quotas: how much each subscriber may have, counted from the journal."""

from __future__ import annotations

from collections import defaultdict

from nearcast.errors import require
from nearcast.service.commands import Growth
from nearcast.service.store.journal import JournalQueries


class Quotas:
    """Counts the subscriptions of each subscriber, and the messages that their results can hold."""

    def __init__(self, *, max_subscriptions: int, max_results: int) -> None:
        self._max_subscriptions, self._max_results = max_subscriptions, max_results
        self._used: dict[str, tuple[int, int]] = {}
        self.n_subscriptions = 0
        """Subscriptions of all subscribers."""
        self.n_results = 0
        """Messages that the results of all subscribers can hold."""

    def load(self, journal: JournalQueries) -> None:
        """Count what is there."""
        self._used = defaultdict(lambda: (0, 0), journal.usage())
        self.n_subscriptions = sum(n for n, _ in self._used.values())
        self.n_results = sum(n for _, n in self._used.values())

    def check(self, growth: Growth) -> None:
        """Raise `InvalidInput` if a subscriber would have too much; what it has may always shrink."""
        n, n_results = self._after(growth)
        ok, most = growth.subscriptions <= 0 or n <= self._max_subscriptions, self._max_subscriptions
        require(ok, "subscriptions", f"must be at most {most:,} per subscriber", n)
        ok, most = growth.results <= 0 or n_results <= self._max_results, self._max_results
        require(ok, "k", f"must add up to at most {most:,} over all subscriptions of a subscriber", n_results)

    def add(self, growth: Growth) -> None:
        """Count a command that was applied."""
        self._used[growth.subscriber] = self._after(growth)
        self.n_subscriptions += growth.subscriptions
        self.n_results += growth.results

    def _after(self, growth: Growth) -> tuple[int, int]:
        n, n_results = self._used[growth.subscriber]
        return n + growth.subscriptions, n_results + growth.results
