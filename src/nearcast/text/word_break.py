"""Words of text in every script: the default word boundaries of Unicode (UAX #29), and bigrams.

    "can't stop"        can't | stop                apostrophes, dots and digits stay inside words as the rules say
    "किताबें"             किताबें                      combining marks stay with their letters
    "東京のカフェ"         東京 | 京の | のカ | カフ | フェ    a script without spaces: overlapping bigrams
    "本"                 本                           a run of one character is one term

A word is a segment of UAX #29 that holds a letter or a digit. Runs of letters of Han, Hiragana, Katakana, Thai, Lao,
Khmer and Myanmar are taken out first, whatever the mixture, and become bigrams of letters with their marks. The
digits of these scripts form words. Format characters, such as the soft hyphen and the marks of direction, are
invisible and are removed: the rules ignore them within words anyway.

The properties of characters come from the module `regex`. It is loaded, and the patterns are compiled, with the first
text that is not ASCII.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from nearcast.text import tokenizer

_ASCII_WORD = re.compile(r"\w+(?:(?:(?<=[a-z])[.:'](?=[a-z])|(?<=[0-9])[.,;'](?=[0-9]))\w+)*", re.ASCII)

_SHORT = 40
"""So many characters between two spaces may be a word that occurs again, and are cached."""

_LETTER = r"\p{WB=ALetter}\p{WB=Hebrew_Letter}"
_HEBREW = r"\p{WB=Hebrew_Letter}"
_DIGIT = r"\p{WB=Numeric}"
_MARK = r"\p{WB=Extend}\p{WB=ZWJ}"
_QUOTE = r"\p{WB=MidNumLet}\p{WB=Single_Quote}"
_SCRIPTS = r"\p{scx=Han}\p{scx=Hiragana}\p{scx=Katakana}\p{sc=Thai}\p{sc=Lao}\p{sc=Khmer}\p{sc=Myanmar}"
_SPACELESS = rf"[[{_SCRIPTS}]&&[\p{{L}}\p{{Nl}}]]"
_START = rf"[a-z0-9_[[{_LETTER}{_DIGIT}\p{{WB=ExtendNumLet}}]--{_SPACELESS}]]"  # ASCII is compared first
_PART = rf"{_START}[{_START}{_MARK}]*+"
"""What joins without a separator: rules WB5, WB8 to WB10, WB13a and WB13b, with the marks of WB4."""
_JOINT = (
    rf"(?=[\p{{WB=MidLetter}}\p{{WB=MidNum}}{_QUOTE}\p{{WB=Double_Quote}}])(?:"  # looks back only from a separator
    rf"(?<=[{_LETTER}][{_MARK}]*)[\p{{WB=MidLetter}}{_QUOTE}][{_MARK}]*+(?=[{_LETTER}])"  # WB6, WB7
    rf"|(?<=[{_DIGIT}][{_MARK}]*)[\p{{WB=MidNum}}{_QUOTE}][{_MARK}]*+(?=[{_DIGIT}])"  # WB11, WB12
    rf"|(?<={_HEBREW}[{_MARK}]*)\p{{WB=Double_Quote}}[{_MARK}]*+(?={_HEBREW}))"  # WB7b, WB7c
)
_WORD = (
    rf"{_PART}(?:{_JOINT}{_PART})*+"
    rf"(?:(?=\p{{WB=Single_Quote}})(?<={_HEBREW}[{_MARK}]*)\p{{WB=Single_Quote}}[{_MARK}]*+)?+"  # WB7a
    rf"(?:(?=\p{{Extended_Pictographic}})(?<=\p{{WB=ZWJ}})\p{{Extended_Pictographic}}[{_MARK}]*+)*+"  # WB3c
)


class _Patterns(NamedTuple):
    letter: Any
    """A letter of a script without spaces, with its marks."""
    segment: Any
    """A word, a run of such letters, or one letter or number of a script that UAX #29 divides at every character."""
    invisible: Any
    """Format characters."""


@cache
def _patterns() -> _Patterns:
    import regex

    letter = rf"{_SPACELESS}[{_MARK}]*+"
    return _Patterns(
        *(
            regex.compile(pattern, regex.V1)
            for pattern in (
                letter,
                rf"{_WORD}|(?:{letter})++|[\p{{L}}\p{{N}}][{_MARK}]*+",
                r"\p{WB=Format}+",
            )
        )
    )


def words_of(text: str) -> list[str]:
    """Return the words and bigrams of a text, in order, repetitions included.

    >>> words_of("Can't stop at 3.14, #Sale!")
    ["can't", 'stop', 'at', '3.14', 'sale']
    >>> words_of("東京のカフェでセール"), words_of("本"), words_of("हिन्दी किताबें")
    (['東京', '京の', 'のカ', 'カフ', 'フェ', 'ェで', 'でセ', 'セー', 'ール'], ['本'], ['हिन्दी', 'किताबें'])
    """
    folded = tokenizer.fold(text)
    if folded.isascii():
        words = _ASCII_WORD.findall(folded)
        return [word for word in words if word.strip("_")] if "_" in folded else words
    found: list[str] = []
    for chunk in folded.split():  # no word holds white space
        found += _words_of_short_chunk(chunk) if len(chunk) <= _SHORT else _words_of_chunk(chunk)
    return found


@lru_cache(maxsize=1 << 16)
def _words_of_short_chunk(chunk: str) -> tuple[str, ...]:
    return _words_of_chunk(chunk)


def _words_of_chunk(chunk: str) -> tuple[str, ...]:
    segments = _patterns().segment.findall(_visible(chunk))
    return tuple(word for segment in segments for word in _words_of_segment(segment))


def _words_of_segment(segment: str) -> list[str]:
    """Return the bigrams of a run, or a word alone; nothing for a segment without a letter or a digit."""
    letter = _patterns().letter
    if letter.match(segment):
        letters = letter.findall(segment)
        return list(map("".join, pairwise(letters))) if len(letters) > 1 else letters
    return [segment] if any(map(str.isalnum, segment)) else []


def fold(text: str) -> str:
    """Return a text in the form in which terms are compared, without format characters."""
    folded = tokenizer.fold(text)
    return folded if folded.isascii() else _visible(folded)


def _visible(text: str) -> str:
    return str(_patterns().invisible.sub("", text))


def spans(folded: str) -> list[tuple[int, int, str]]:
    """Return the terms of a folded text, each with where it begins and ends.

    >>> spans("new カフェ")
    [(0, 3, 'new'), (4, 6, 'カフ'), (5, 7, 'フェ')]
    """
    found: list[tuple[int, int, str]] = []
    for segment in _patterns().segment.finditer(folded):
        words = _words_of_segment(segment[0])
        if len(words) == 1 and words[0] == segment[0]:
            found.append((segment.start(), segment.end(), segment[0]))
        elif words:
            first = segment.start()
            letters = [match.start() + first for match in _patterns().letter.finditer(segment[0])] + [segment.end()]
            found += [(letters[i], letters[i + 2], word) for i, word in enumerate(words)]
    return found
