"""Cursors: positions in the one order of all updates of a service."""

from __future__ import annotations

from typing import NamedTuple

from nearcast.errors import InvalidInput

_MAX_DIGITS = 18


class Cursor(NamedTuple):
    """The position of an update: the number of its command, and its ordinal among the updates of that command.

    >>> Cursor.parse("12.3"), str(Cursor(12, 3))
    (Cursor(command=12, ordinal=3), '12.3')
    """

    command: int
    ordinal: int

    def __str__(self) -> str:
        return f"{self.command}.{self.ordinal}"

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Parse a cursor as clients send it."""
        command, dot, ordinal = text.partition(".")
        parts = (command, ordinal)
        if not (dot and all(part.isascii() and part.isdigit() and len(part) <= _MAX_DIGITS for part in parts)):
            raise InvalidInput("after", "must be a cursor that came with an update", text)
        return cls(int(command), int(ordinal))


START = Cursor(0, 0)
"""The cursor before the first update."""
