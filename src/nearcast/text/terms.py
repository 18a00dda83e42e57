"""What is a term's number? A 64-bit hash, so that nobody has to agree on a dictionary.

XXH64 of the UTF-8 bytes, read as a signed integer. Two of two million terms collide with a chance of one in ten
million; a collision would make two words one.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import xxhash

_SIGN = 1 << 63
_TWO_TO_64 = 1 << 64


def term_id(term: str) -> int:
    """Return the number of one term.

    >>> term_id("coffee") == term_id("coffee") != term_id("tea")
    True
    """
    unsigned = xxhash.xxh64_intdigest(term.encode())
    return unsigned - _TWO_TO_64 if unsigned & _SIGN else unsigned


def term_ids(terms: Iterable[str]) -> npt.NDArray[np.int64]:
    """Return the numbers of many terms."""
    digest = xxhash.xxh64_intdigest
    return np.fromiter((digest(term.encode()) for term in terms), dtype=np.uint64).view(np.int64)
