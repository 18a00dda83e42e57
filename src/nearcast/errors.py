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
        text = f"{self.field} {self.rule}; got {_clip(shown(self.value))}"
        if self.subject:
            text += f" ({_clip(self.subject)})"
        if self.hint:
            text += f". {self.hint}"
        return text

    def about(self, subject: str) -> InvalidInput:
        """Return the error with a subject."""
        return InvalidInput(self.field, self.rule, self.value, subject=subject, hint=self.hint)


class UnknownSubscription(NearcastError, KeyError):
    """No subscription has this id."""

    def __str__(self) -> str:
        return f"subscription {_clip(shown(self.args[0]))} is not known to this engine"


class UnknownMessage(NearcastError, KeyError):
    """No message of the window has this id."""

    def __str__(self) -> str:
        return f"message {_clip(shown(self.args[0]))} is not in the window"


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
    if not isinstance(value, Real) or value is True or value is False:
        return False
    try:
        return isfinite(value)
    except OverflowError:  # an integer or a fraction beyond the range of floats
        return False


def shown(value: Any) -> str:
    """Return a value as an error shows it.

    >>> shown("a"), shown(10**9999)
    ("'a'", 'a very long number')
    """
    try:
        return repr(value)
    except ValueError:  # Python writes no integers of thousands of digits
        return "a very long number"


def _clip(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}... ({len(text)} characters)"


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
