"""Snowball stemmers: words to stems, one per language.

A stemmer object has a buffer of its own, so each thread has its own objects. Stems are cached by word.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

_CACHED = 1 << 16
_OTHER_NAMES = ("porter", "dutch_porter")  # earlier algorithms of English and Dutch

_local = threading.local()


@cache
def stemmed_languages() -> tuple[str, ...]:
    """Return the languages that have a stemmer.

    >>> {"english", "german", "porter"} - set(stemmed_languages())
    {'porter'}
    """
    import Stemmer

    return tuple(name for name in Stemmer.algorithms() if name not in _OTHER_NAMES)


@lru_cache(maxsize=_CACHED)
def stem(word: str, language: str) -> str:
    """Return the stem of a word.

    >>> stem("running", "english"), stem("häuser", "german")
    ('run', 'haus')
    """
    return stems([word], language)[0]


def stems(words: Sequence[str], language: str) -> list[str]:
    """Return the stem of each word, without the cache; a word of which nothing would be left stays."""
    made: list[str] = _stemmer(language).stemWords(words)
    return made if all(made) else [stem or word for stem, word in zip(made, words, strict=True)]


def _stemmer(language: str) -> Any:
    stemmers: dict[str, Any] = _local.__dict__
    if language not in stemmers:
        import Stemmer

        stemmers[language] = Stemmer.Stemmer(language, 0)  # its own cache is slower than the one above
    return stemmers[language]
