"""Hashes of terms and ids: 64-bit numbers, so that processes need no common dictionary.

SipHash-2-4 of the UTF-8 bytes, read as a signed integer. It is a pseudo-random function: without its key nobody can
find two words with the same hash, which would be one word to the engine, or many ids for one bucket. By accident two
of ten million terms meet with a probability below 1e-5.

The key belongs to an engine's state or to a job. Services and jobs draw one; elsewhere the default makes runs
repeatable.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from siphash24 import siphash24

from nearcast.errors import require

HashKey = bytes
"""16 bytes."""

HASH_KEY_BYTES = 16
DEFAULT_HASH_KEY: HashKey = b"nearcast default"


def new_hash_key() -> HashKey:
    """Return a key that nobody can guess."""
    return secrets.token_bytes(HASH_KEY_BYTES)


def check_hash_key(value: Any, *, subject: str) -> None:
    """Raise `InvalidInput` unless the value is a key; the error does not show it."""
    ok = isinstance(value, bytes) and len(value) == HASH_KEY_BYTES
    found = f"{len(value)} bytes" if isinstance(value, bytes) else type(value).__name__
    require(ok, "hash_key", f"must be {HASH_KEY_BYTES} bytes", found, subject=subject)


def hash_bytes(data: bytes, hash_key: HashKey) -> int:
    """Return the hash of some bytes as a signed number."""
    hashed: int = siphash24(data, key=hash_key).intdigest()
    return hashed


def term_id(term: str, hash_key: HashKey = DEFAULT_HASH_KEY) -> int:
    """Return the id of one term.

    >>> term_id("coffee") == term_id("coffee") != term_id("tea")
    True
    """
    return hash_bytes(term.encode(), hash_key)


def term_ids(terms: Iterable[str], hash_key: HashKey = DEFAULT_HASH_KEY) -> npt.NDArray[np.int64]:
    """Return the ids of many terms."""
    return np.fromiter((siphash24(term.encode(), key=hash_key).intdigest() for term in terms), dtype=np.int64)


@lru_cache(maxsize=64)
def key_words(hash_key: HashKey) -> npt.NDArray[np.uint64]:
    """Return the two numbers of a key, for kernels."""
    return np.frombuffer(hash_key, dtype="<u8").astype(np.uint64)
