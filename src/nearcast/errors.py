"""What can go wrong, as one tree.

    NearcastError
    ├── InvalidInput          (ValueError)    a field breaks a rule: field, rule, value, subject
    ├── UnknownSubscription   (KeyError)      an id nobody subscribed
    ├── UnknownMessage        (KeyError)      an id that is not in the window
    ├── FormatError           (ValueError)    a saved file is not what it should be
    └── StateError            (RuntimeError)  the call does not fit how the engine was set up

Every class also derives from the builtin a caller would reach for first.
"""

from __future__ import annotations

from math import isfinite
from numbers import Real
from typing import Any, TypeGuard

__all__ = [
    "FormatError",
    "InvalidInput",
    "NearcastError",
    "StateError",
    "UnknownMessage",
    "UnknownSubscription",
    "is_finite",
    "require",
]

_LONGEST_VALUE = 120


class NearcastError(Exception):
    """Root of every error that Nearcast raises on purpose."""


class InvalidInput(NearcastError, ValueError):
    """A value breaks a rule.

    >>> print(InvalidInput("alpha", "must be in [0, 1]", 1.7, subject="subscription 't9'"))
    alpha must be in [0, 1]; got 1.7 (subscription 't9')
    """

    def __init__(self, field: str, rule: str, value: Any, *, subject: str = "", hint: str = "") -> None:
        self.field, self.rule, self.value, self.subject, self.hint = field, rule, value, subject, hint
        super().__init__(field, rule, value)

    def __str__(self) -> str:
        shown = repr(self.value)
        if len(shown) > _LONGEST_VALUE:
            shown = f"{shown[:_LONGEST_VALUE]}... ({len(shown)} characters)"
        text = f"{self.field} {self.rule}; got {shown}"
        if self.subject:
            text += f" ({self.subject})"
        if self.hint:
            text += f". {self.hint}"
        return text

    def about(self, subject: str) -> InvalidInput:
        """Return the same error, saying also what it is about."""
        return InvalidInput(self.field, self.rule, self.value, subject=subject, hint=self.hint)


class UnknownSubscription(NearcastError, KeyError):
    """An id that nobody subscribed, or that was unsubscribed."""

    def __str__(self) -> str:
        return f"subscription {self.args[0]!r} is not known to this engine"


class UnknownMessage(NearcastError, KeyError):
    """An id that no message of the window carries."""

    def __str__(self) -> str:
        return f"message {self.args[0]!r} is not in the window"


class FormatError(NearcastError, ValueError):
    """A saved file or folder is not what it should be."""


class StateError(NearcastError, RuntimeError):
    """The call does not fit how the engine was set up."""


def require(ok: bool, field: str, rule: str, value: Any, *, subject: str = "", hint: str = "") -> None:
    """Raise `InvalidInput` unless `ok`."""
    if not ok:
        raise InvalidInput(field, rule, value, subject=subject, hint=hint)


def is_finite(value: Any) -> TypeGuard[float]:
    """Tell whether a value is a number that is neither infinite nor NaN; True and False are no numbers."""
    return isinstance(value, Real) and value is not True and value is not False and isfinite(value)


WHOLE = "must hold no halves of characters (lone surrogates), which cannot be written as UTF-8"


def is_whole(text: str) -> bool:
    """Tell whether a string can be written as UTF-8: it holds no half of a character.

    >>> is_whole("café"), is_whole(chr(0xD83D))
    (True, False)
    """
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
