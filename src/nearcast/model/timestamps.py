"""Timestamps: whole microseconds since the epoch, so that windows end exactly where they should."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from nearcast.errors import InvalidInput, is_finite

Timestamp = datetime | float | int

NO_TIME = -(1 << 63)
"""The value of a missing time in a column of microseconds."""
NEVER = (1 << 63) - 1
"""The value of a missing end in a column of microseconds: later than all times."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
FARTHEST_SECONDS = 9.0e12
"""Times must be closer to the epoch than this."""
FARTHEST_US = int(FARTHEST_SECONDS * 1_000_000)


def to_us(at: Timestamp | None, *, subject: str = "", field: str = "at") -> int:
    """Return microseconds since the epoch.

    >>> to_us(1.5), to_us(datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC))
    (1500000, 2000000)
    """
    if at is None:
        return NO_TIME
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise InvalidInput(
                field, "must carry a time zone", at, subject=subject, hint=f"Try {field}.astimezone()."
            )
        return (at - _EPOCH) // _MICROSECOND
    if is_finite(at) and abs(at) < FARTHEST_SECONDS:
        return round(at * 1_000_000)
    raise InvalidInput(field, "must be an aware datetime or finite seconds since the epoch", at, subject=subject)


def to_end_us(expires_at: Timestamp | None, *, subject: str = "") -> int:
    """Return the time at which something expires in microseconds since the epoch, or NEVER.

    >>> to_end_us(1.5), to_end_us(None) == NEVER
    (1500000, True)
    """
    return NEVER if expires_at is None else to_us(expires_at, subject=subject, field="expires_at")


def to_seconds(us: int) -> float | None:
    """Return seconds since the epoch, or None if there is no time."""
    return None if us == NO_TIME else us / 1_000_000
