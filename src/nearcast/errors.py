"""The tree of errors.

    NearcastError
    ├── InvalidInput          (ValueError)    a field breaks a rule: field, rule, value, subject
    ├── UnknownSubscription   (KeyError)      no subscription has this id
    ├── UnknownMessage        (KeyError)      no message of the window has this id
    ├── FormatError           (ValueError)    a saved file has another format, version or content
    └── StateError            (RuntimeError)  the engine's configuration or state rules the call out

Every class also derives from the builtin error that a caller would expect.
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
    """Base class of all errors that Nearcast raises."""


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
        """Return the error with a subject."""
        return InvalidInput(self.field, self.rule, self.value, subject=subject, hint=self.hint)


class UnknownSubscription(NearcastError, KeyError):
    """No subscription has this id."""

    def __str__(self) -> str:
        return f"subscription {self.args[0]!r} is not known to this engine"


class UnknownMessage(NearcastError, KeyError):
    """No message of the window has this id."""

    def __str__(self) -> str:
        return f"message {self.args[0]!r} is not in the window"


class FormatError(NearcastError, ValueError):
    """A saved file or folder has another format, version or content than expected."""


class StateError(NearcastError, RuntimeError):
    """The configuration or the state of the engine rules the call out."""


def require(ok: bool, field: str, rule: str, value: Any, *, subject: str = "", hint: str = "") -> None:
    """Raise `InvalidInput` unless `ok`."""
    if not ok:
        raise InvalidInput(field, rule, value, subject=subject, hint=hint)


def is_finite(value: Any) -> TypeGuard[float]:
    """Return whether a value is a finite number; booleans do not count."""
    return isinstance(value, Real) and value is not True and value is not False and isfinite(value)


WHOLE = "must hold no halves of characters (lone surrogates), which cannot be written as UTF-8"


def is_whole(text: str) -> bool:
    """Return whether a string can be encoded as UTF-8: it holds no lone surrogates.

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
