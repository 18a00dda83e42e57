"""When is a delivery tried again? After longer and longer waits, no two alike, or when the receiver says."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime

_MINUTE, _HOUR = 60.0, 3600.0
_LONGEST_S = 24 * _HOUR


@dataclass(frozen=True)
class Retries:
    """How long to wait after each failure in a row; after one more, it is given up."""

    delays_s: tuple[float, ...] = (
        5.0,
        5 * _MINUTE,
        30 * _MINUTE,
        2 * _HOUR,
        5 * _HOUR,
        10 * _HOUR,
        14 * _HOUR,
        20 * _HOUR,
        24 * _HOUR,
    )
    spread: float = 0.2
    """Waits are up to so much longer, or shorter."""
    chance: random.Random = field(default_factory=random.Random)

    def wait_s(self, failures: int, *, asked_s: float | None = None) -> float | None:
        """Return how long to wait after so many failures, at least what the receiver asked for; None to give up.

        >>> Retries(spread=0).wait_s(2), Retries(spread=0).wait_s(1, asked_s=60), Retries().wait_s(10)
        (300.0, 60, None)
        """
        if failures > len(self.delays_s):
            return None
        wait = self.delays_s[failures - 1] * self.chance.uniform(1 - self.spread, 1 + self.spread)
        return max(wait, min(asked_s or 0.0, _LONGEST_S))


def asked_s(retry_after: str | None, *, now: float) -> float | None:
    """Return how many seconds a Retry-After header asks for.

    >>> asked_s("120", now=0), asked_s("Thu, 01 Jan 1970 00:01:00 GMT", now=20), asked_s("soon", now=0)
    (120.0, 40.0, None)
    """
    if retry_after is None:
        return None
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return float(text[:12])
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now)
