"""Ids of stems by the hash of the word: the cache through which a column of texts is stemmed.

    "Running" ── hash in small letters ──> table ──> id of "run"         one look-up per word, in a kernel
                                             └ unknown: stemmed and hashed once, then added

A table belongs to one thread, one language and one hash key. It is emptied when it is full, so what it takes is
bounded, and the words that occur often are soon there again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from nearcast.text.hashing import HashKey
from nearcast.text.stemming import stems

if TYPE_CHECKING:
    from nearcast._jit import Table

MOST_WORDS = 3 << 16
"""The most words in a table of 2**18 slots: 5 MB."""
_MOST_TABLES = 4

Longs = npt.NDArray[np.int64]

_local = threading.local()


def replace_by_stems(
    texts: tuple[npt.NDArray[np.uint8], Longs],
    numbers: Longs,
    starts: Longs,
    lengths: Longs,
    *,
    language: str,
    hash_key: HashKey,
    hash_all: Callable[[list[str]], Longs],
) -> None:
    """Replace the hashes of words by the ids of their stems.

    `texts` are the bytes of ASCII texts and where each begins; the words of text i are `lengths[i]` numbers from
    `starts[i]` on. `hash_all` hashes terms.
    """
    from nearcast.text._kernels.words import locate_words, replace_known

    table = _table(language, hash_key)
    unknown = np.empty((int(lengths.sum()), 3), np.int64)
    unknown = unknown[: replace_known(table.arrays, numbers, starts, lengths, unknown)]
    if not len(unknown):
        return
    data, offsets = texts
    bounds = np.empty((len(unknown), 2), np.int64)
    locate_words(data, offsets, unknown, bounds)
    words, firsts, which = np.unique(numbers[unknown[:, 0]], return_index=True, return_inverse=True)
    begin = int(offsets[0])
    whole = str(data.data[begin : int(offsets[-1])], "latin-1").lower()  # a character per byte; words are ASCII
    spelled = [whole[first:stop] for first, stop in zip(*(bounds[firsts] - begin).T.tolist(), strict=True)]
    ids = hash_all(stems(spelled, language))
    numbers[unknown[:, 0]] = ids[which]
    if len(table) + len(words) > MOST_WORDS:
        table = _new_table(language, hash_key)
    table.put_many(words[:MOST_WORDS], ids[:MOST_WORDS])


def _table(language: str, hash_key: HashKey) -> Table:
    """Return the table of this thread; the one that was used least recently makes room for a new one."""
    tables = _tables()
    if (language, hash_key) not in tables:
        return _new_table(language, hash_key)
    tables.move_to_end((language, hash_key))
    return tables[language, hash_key]


def _new_table(language: str, hash_key: HashKey) -> Table:
    from nearcast._jit import Arena, Table

    tables = _tables()
    tables[language, hash_key] = Table(Arena(), "stems", room=MOST_WORDS)
    if len(tables) > _MOST_TABLES:
        tables.popitem(last=False)
    return tables[language, hash_key]


def _tables() -> OrderedDict[tuple[str, HashKey], Table]:
    if not hasattr(_local, "tables"):
        _local.tables = OrderedDict()
    tables: OrderedDict[tuple[str, HashKey], Table] = _local.tables
    return tables
