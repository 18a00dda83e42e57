"""The words of a text from which some terms were made, as they are written and where they stand.

text      "Fresh Coffee!"      pieces that NFKC and casefold change independently of each other
folded    "fresh coffee!"      ── segments of the analyzer ── terms ── back to the text by pieces
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Collection
from itertools import accumulate
from typing import NamedTuple

from nearcast.text.analyzer import Analyzer
from nearcast.text.tokenizer import Text

_LONG = 50
"""A piece of more characters ends at the next ASCII character, so that no text takes long."""


class Highlight(NamedTuple):
    """A word of a text that gave a term."""

    start: int
    """Where it begins, in characters; for a text given as a list of terms, its position in the list."""
    stop: int
    """Where it ends."""
    word: str
    """As it is written."""


def highlights_of(text: Text, terms: Collection[str], *, analyzer: Analyzer) -> tuple[Highlight, ...]:
    """Return the words of a text that give one of some terms, in order; adjacent bigrams are one word.

    >>> from nearcast.text import find_analyzer
    >>> highlights_of("Running SHOES, shoe box", {"shoe"}, analyzer=find_analyzer("english"))
    (Highlight(start=8, stop=13, word='SHOES'), Highlight(start=15, stop=19, word='shoe'))
    """
    if not isinstance(text, str):
        return tuple(Highlight(i, i + 1, term) for i, term in enumerate(text) if term in terms)
    pieces = _pieces(text, analyzer)
    starts = [0, *accumulate(map(len, pieces))]
    folded_pieces = list(map(analyzer.fold, pieces))
    folded_starts = [0, *accumulate(map(len, folded_pieces))]
    bounds: list[tuple[int, int]] = []
    for first, past, term in analyzer.spans("".join(folded_pieces)):
        if term not in terms:
            continue
        start = starts[bisect_right(folded_starts, first) - 1]
        stop = starts[bisect_left(folded_starts, past)]
        if bounds and start < bounds[-1][1]:
            start = bounds.pop()[0]
        bounds.append((start, stop))
    return tuple(Highlight(start, stop, text[start:stop]) for start, stop in bounds)


def _pieces(text: str, analyzer: Analyzer) -> list[str]:
    """Divide a text into the smallest pieces whose folded forms, joined, are that of the text.

    >>> from nearcast.text import SIMPLE
    >>> _pieces("ae\u0301b", SIMPLE) == ["a", "e\u0301", "b"]
    True
    """
    if text.isascii():
        return list(text)
    pieces: list[str] = []
    start = 0
    for at in range(1, len(text)):
        if _may_divide(text, start, at, analyzer):
            pieces.append(text[start:at])
            start = at
    return [*pieces, text[start:]]


def _may_divide(text: str, start: int, at: int, analyzer: Analyzer) -> bool:
    """Return whether a piece that begins at `start` may end at `at`."""
    if text[at].isascii():
        return True
    if unicodedata.combining(text[at]) or at - start > _LONG:
        return False
    before, after = text[start:at], text[at]
    return analyzer.fold(before + after) == analyzer.fold(before) + analyzer.fold(after)
