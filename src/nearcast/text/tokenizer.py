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
    if not isinstance(text, str):
        return list(text)
    if text.isascii():  # NFKC leaves it alone, and lower() is its casefold
        return _RUN.findall(text.lower())
    return _RUN.findall(unicodedata.normalize("NFKC", text).casefold())
