"""The tokenizer: Unicode NFKC, then casefold, then the runs of letters and digits.

A list of strings is taken as terms, verbatim.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

Text = str | Sequence[str]

_RUN = re.compile(r"[^\W_]+")  # \w without the underscore: letters and digits of every script


def tokenize(text: Text) -> list[str]:
    """Return the terms of a text, in order, repetitions included.

    >>> tokenize("#Sale: 50% off T-Shirts!")
    ['sale', '50', 'off', 't', 'shirts']
    >>> tokenize(["New York", "pizza"])
    ['New York', 'pizza']
    """
    return list(text) if not isinstance(text, str) else _RUN.findall(fold(text))


def fold(text: str) -> str:
    """Return a text in the form in which terms are compared.

    >>> fold("STRAße")
    'strasse'
    """
    if text.isascii():  # NFKC leaves it alone, and lower() is its casefold
        return text.lower()
    return unicodedata.normalize("NFKC", text).casefold()


def spans(folded: str) -> list[tuple[int, int, str]]:
    """Return the terms of a folded text, each with where it begins and ends."""
    return [(found.start(), found.end(), found[0]) for found in _RUN.finditer(folded)]
