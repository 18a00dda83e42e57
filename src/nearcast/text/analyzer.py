"""Analyzers: they make terms of text. An engine has one, for messages, keywords and the sample of its vocabulary.

    simple     NFKC, casefold, runs of letters and digits                              see `tokenizer`
    unicode    NFKC, casefold, words by UAX #29, bigrams for scripts without spaces    see `word_break`
    english    `unicode`, then the Snowball stemmer of the language                    see `stemming`
    german, french, ...

A list of strings is taken as terms, verbatim, by every analyzer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from nearcast.errors import InvalidInput
from nearcast.text import tokenizer, word_break
from nearcast.text.stemming import stem, stemmed_languages
from nearcast.text.tokenizer import Text


@dataclass(frozen=True)
class Analyzer:
    """A way to make terms of text; two of the same name make the same terms."""

    name: str

    @property
    def language(self) -> str | None:
        """The language of the stemmer; None without one."""
        return None if self.name in _WITHOUT_STEMMER else self.name

    def terms(self, text: Text) -> list[str]:
        """Return the terms of a text, in order, repetitions included."""
        if not isinstance(text, str):
            return list(text)
        if self.name == _SIMPLE:
            return tokenizer.tokenize(text)
        language, words = self.language, word_break.words_of(text)
        return words if language is None else [stem(word, language) for word in words]

    def runs(self, text: str) -> list[list[str]]:
        """Return the terms of a text in runs: bigrams that overlap are in one run, any other term is alone.

        >>> find_analyzer("unicode").runs("カフェ t-shirt")
        [['カフ', 'フェ'], ['t'], ['shirt']]
        """
        if self.name == _SIMPLE:
            return [[term] for term in tokenizer.tokenize(text)]
        runs: list[list[str]] = []
        end = 0
        for start, stop, term in self.spans(self.fold(text)):
            if runs and start < end:
                runs[-1].append(term)
            else:
                runs.append([term])
            end = stop
        return runs

    def fold(self, text: str) -> str:
        """Return a text in the form in which the analyzer divides it."""
        return tokenizer.fold(text) if self.name == _SIMPLE else word_break.fold(text)

    def spans(self, folded: str) -> list[tuple[int, int, str]]:
        """Return the terms of a folded text, each with where it begins and ends; bigrams overlap."""
        if self.name == _SIMPLE:
            return tokenizer.spans(folded)
        language, found = self.language, word_break.spans(folded)
        return found if language is None else [(a, b, stem(word, language)) for a, b, word in found]


_SIMPLE, _UNICODE = "simple", "unicode"
_WITHOUT_STEMMER = (_SIMPLE, _UNICODE)

SIMPLE = Analyzer(_SIMPLE)


@cache
def analyzer_names() -> tuple[str, ...]:
    """Return the names of all analyzers."""
    return (*_WITHOUT_STEMMER, *stemmed_languages())


def find_analyzer(name: Any, *, subject: str = "") -> Analyzer:
    """Return an analyzer by name, or raise `InvalidInput`."""
    if not isinstance(name, str) or (name not in _WITHOUT_STEMMER and name not in stemmed_languages()):
        raise InvalidInput("analyzer", f"must be one of {list(analyzer_names())}", name, subject=subject)
    return _analyzer(name)


@cache
def _analyzer(name: str) -> Analyzer:
    return Analyzer(name)


def analyze(text: Text, *, analyzer: str = SIMPLE.name) -> list[str]:
    """Return the terms that an analyzer makes of a text, in order, repetitions included.

    >>> analyze("Running shoes, 50% off!"), analyze("Running shoes, 50% off!", analyzer="english")
    (['running', 'shoes', '50', 'off'], ['run', 'shoe', '50', 'off'])
    """
    return find_analyzer(analyzer).terms(text)
