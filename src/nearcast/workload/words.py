"""Words for term ranks: syllables, by arithmetic alone.

A syllable is a consonant and a vowel, so there are a hundred. The hundred most frequent terms have one, the next ten
thousand two, the next million three: as in real languages, common words are short.

    rank      0 ..     99     100 .. 10,099     10,100 .. 1,010,099
    length        2                4                    6            letters

Within a length, multiplication by a number coprime to 100 scatters neighbours over the alphabet and stays one to one;
different lengths cannot collide. No word starts with a vowel, so none is an operator of a boolean expression.

Cost: some 12 bytes per term and 0.1 s for 1.7 million, once per process.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.errors import require

_CONSONANTS = "bcdfghjklmnprstvwxyz"
_VOWELS = "aeiou"
_SYLLABLES = np.array([[ord(c), ord(v)] for c in _CONSONANTS for v in _VOWELS], dtype=np.uint8)
_BASE = len(_SYLLABLES)
_LONGEST = 4  # syllables
_SCATTER = 618_033_989  # coprime to 100

LARGEST = sum(_BASE**length for length in range(1, _LONGEST + 1))


@lru_cache(maxsize=8)
def words(size: int) -> pa.StringArray:
    """Return the terms of the ranks 0 to size - 1.

    >>> words(3).to_pylist()
    ['ba', 'xu', 'vo']
    >>> words(20_000)[19_999].as_py()
    'matede'
    """
    require(0 <= size <= LARGEST, "size", f"must be between 0 and {LARGEST:,}", size, subject="words")
    letters, lengths = [], []
    first = 0
    for length in range(1, _LONGEST + 1):
        count = min(size - first, _BASE**length)
        letters.append(_spell(count, length))
        lengths.append(np.full(count, 2 * length))
        first += count
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.concatenate(letters))]
    return pa.StringArray.from_buffers(size, buffers[1], buffers[2])


def _spell(count: int, length: int) -> npt.NDArray[np.uint8]:
    """Return the letters of the first `count` words of a length, end to end."""
    numbers = np.arange(count, dtype=np.int64) * _SCATTER % _BASE**length
    spelt = np.empty((count, length, 2), dtype=np.uint8)
    for place in range(length - 1, -1, -1):
        numbers, digits = np.divmod(numbers, _BASE)
        spelt[:, place] = _SYLLABLES[digits]
    return spelt.reshape(-1)
