"""The bodies of messages, by seq: as long as the engine holds a message, its body enters results with it.

    seqs      7    9   12              ascending; messages without a body are not here
    starts    0    5    5   40
    bytes     hello|    |{"price": ...

Shards, windows and results know a message by its seq, so bodies are stored once per engine, whatever holds the
message. Bodies of messages that are gone stay until there are twice as many bytes as the last time; then they are
dropped at once.

Cost: 16 bytes per message, and its body; dropping is one pass over all bodies.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.text.encode import bytes_of

if TYPE_CHECKING:
    from nearcast._jit import Arena

Longs = npt.NDArray[np.int64]

_PREFIX = "bodies"
_COUNT, _BYTES_LEFT = 0, 1  # positions in the state: bodies, and bytes when some were last dropped
_LEAST = 1 << 20  # bytes below which none are dropped
_MAX_CHUNK = (1 << 31) - 1  # bytes of a column of strings
BODIES = pa.schema({"seq": pa.int64(), "body": pa.large_string()})
"""Bodies as a table."""


class MessageBodies:
    """Bodies by seq, in an arena; an arena that holds them already is continued.

    >>> from nearcast._jit import Arena
    >>> bodies = MessageBodies(Arena())
    >>> bodies.append(np.array([7, 8, 9]), pa.array(["hello", None, ""]))
    >>> bodies.of(np.array([9, 8, 7, 7])).to_pylist()
    ['', None, 'hello', 'hello']
    """

    def __init__(self, arena: Arena, *, least: int = _LEAST) -> None:
        self._arena, self._least = arena, least
        if f"{_PREFIX}.state" not in arena:
            with arena.together():
                arena.new(f"{_PREFIX}.seqs", np.int64, 1)
                arena.new(f"{_PREFIX}.starts", np.int64, 1)
                arena.new(f"{_PREFIX}.bytes", np.uint8, 0)
                arena.new(f"{_PREFIX}.state", np.int64, 2)

    def __len__(self) -> int:
        return int(self._array("state")[_COUNT])

    @property
    def nbytes(self) -> int:
        """Bytes of all bodies."""
        return int(self._array("starts")[len(self)])

    @property
    def may_be_dropped(self) -> bool:
        """True if there are twice as many bytes as when bodies were last dropped."""
        n_bytes = self.nbytes + 16 * len(self)
        return n_bytes >= max(self._least, 2 * int(self._array("state")[_BYTES_LEFT]))

    def append(self, seqs: Longs, bodies: pa.Array) -> None:
        """Append the bodies of messages that are newer than all others; null stands for no body."""
        if bodies.null_count:
            seqs, bodies = seqs[np.asarray(bodies.is_valid())], bodies.drop_null()
        n, more = len(self), len(seqs)
        data, offsets = bytes_of(bodies)
        start, size = self.nbytes, int(offsets[-1] - offsets[0])
        self._arena.grow_all([f"{_PREFIX}.{name}" for name in ("seqs", "starts")], n + more + 1)
        self._arena.grow(f"{_PREFIX}.bytes", start + size)
        self._array("seqs")[n : n + more] = seqs
        self._array("starts")[n + 1 : n + more + 1] = start + offsets[1:] - offsets[0]
        self._array("bytes")[start : start + size] = data[offsets[0] : offsets[-1]]
        self._array("state")[_COUNT] = n + more

    def add(self, seqs: Longs, bodies: pa.Array) -> None:
        """Add the bodies of messages of any age; those that are here already are left as they are."""
        own = self._array("seqs")[: len(self)]
        new = np.flatnonzero(~np.isin(seqs, own))
        if not len(new):
            return
        order = np.argsort(np.concatenate([own, seqs[new]]), kind="stable")
        every = pa.concat_arrays([self._all(), bodies.take(pa.array(new)).cast(pa.large_string())])
        merged, taken = np.concatenate([own, seqs[new]])[order], every.take(pa.array(order))
        self._array("state")[_COUNT] = 0
        self.append(merged, taken)

    def of(self, seqs: Longs) -> pa.ChunkedArray:
        """Return the bodies of messages as strings, null where there is none."""
        n = len(self)
        own = self._array("seqs")[:n]
        rows = np.searchsorted(own, seqs)
        known = rows < n
        known[known] = own[rows[known]] == seqs[known]
        lengths = np.zeros(len(seqs), np.int64)
        lengths[known] = np.diff(self._array("starts")[: n + 1])[rows[known]]
        bounds = _bounds(lengths)
        taken = [self._all().take(pa.array(rows[a:b], mask=~known[a:b])).cast(pa.string()) for a, b in bounds]
        return pa.chunked_array(taken, pa.string())

    def keep(self, seqs: Longs) -> None:
        """Drop the bodies of all messages but those with some seqs, ascending."""
        n = len(self)
        kept = np.flatnonzero(np.isin(self._array("seqs")[:n], seqs))
        own, bodies = self._array("seqs")[kept], self._all().take(pa.array(kept))
        self._array("state")[_COUNT] = 0
        self.append(own, bodies)
        self._array("state")[_BYTES_LEFT] = self.nbytes + 16 * len(self)

    def table(self, seqs: Longs) -> pa.Table:
        """Return the bodies of the messages with some seqs, ascending, as a table."""
        own = self._array("seqs")[: len(self)]
        kept = np.flatnonzero(np.isin(own, seqs))
        return pa.table([pa.array(own[kept]), self._all().take(pa.array(kept))], schema=BODIES)

    def _all(self) -> pa.LargeStringArray:
        """Return all bodies in place; the array must not outlive the next append."""
        n = len(self)
        starts, data = self._array("starts")[: n + 1], self._array("bytes")
        return pa.LargeStringArray.from_buffers(n, pa.py_buffer(starts), pa.py_buffer(data))

    def _array(self, name: str) -> npt.NDArray[Any]:
        return self._arena[f"{_PREFIX}.{name}"]


def _bounds(lengths: Longs, most: int = _MAX_CHUNK) -> list[tuple[int, int]]:
    """Return ranges of rows whose lengths add up to at most `most` each, or that hold one row.

    >>> _bounds(np.array([3, 3, 9, 1]), most=6)
    [(0, 2), (2, 3), (3, 4)]
    """
    ends, cuts = np.cumsum(lengths), [0]
    while cuts[-1] < len(lengths):
        before = int(ends[cuts[-1] - 1]) if cuts[-1] else 0
        cuts.append(max(int(np.searchsorted(ends, before + most, side="right")), cuts[-1] + 1))
    return list(pairwise(cuts))
