"""The retry policy: growing, randomised delays between attempts, and never earlier than the receiver requests."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime

_MINUTE, _HOUR = 60.0, 3600.0
_MAX_WAIT_S = 24 * _HOUR


@dataclass(frozen=True)
class RetryPolicy:
    """The delay after each consecutive failure; one failure more, and the delivery is abandoned."""

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
    jitter: float = 0.2
    """Each delay varies by this share in both directions."""
    rng: random.Random = field(default_factory=random.Random)

    def wait_s(self, failures: int, *, retry_after_s: float | None = None) -> float | None:
        """Return the wait after a number of failures, at least what the receiver requests; None to give up.

        >>> exact = RetryPolicy(jitter=0)
        >>> exact.wait_s(2), exact.wait_s(1, retry_after_s=60), exact.wait_s(10)
        (300.0, 60, None)
        """
        if failures > len(self.delays_s):
            return None
        wait = self.delays_s[failures - 1] * self.rng.uniform(1 - self.jitter, 1 + self.jitter)
        return max(wait, min(retry_after_s or 0.0, _MAX_WAIT_S))


def retry_after_s(header: str | None, *, now: float) -> float | None:
    """Return the seconds that a Retry-After header requests; None if it cannot be parsed.

    >>> [retry_after_s(header, now=20) for header in ("120", "Thu, 01 Jan 1970 00:01:00 GMT", "soon")]
    [120.0, 40.0, None]
    """
    if header is None:
        return None
    text = header.strip()
    if text.isascii() and text.isdigit():
        return float(text[:12])
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now)
