"""Which id belongs to a slot, a million times a second? Ids as Arrow strings, gathered by slot.

    where    slot -> place                   int64
    chunks   places 0.. | ..  | ..           string arrays, each about as large as all that follow it

New ids are appended; a slot that is used again just points to its new place. Chunks are merged as they come to be of
one size, so that there are few, and copied without the dead once half of them is dead: amortised, an id is copied a
few times however many there are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.model import Id


class Names:
    """Ids by slot, as strings."""

    def __init__(self) -> None:
        self._where = np.zeros(0, dtype=np.int64)
        self._chunks: list[pa.Array] = []
        self._n_places = 0
        self._n_slots = 0

    def put(self, slots: npt.NDArray[np.int32], ids: Sequence[Id]) -> None:
        """Name slots."""
        if not len(slots):
            return
        self._n_slots = max(self._n_slots, int(slots.max()) + 1)
        if self._n_slots > len(self._where):
            self._where = np.concatenate([self._where, np.zeros(self._n_slots, dtype=np.int64)])
        self._where[slots] = self._n_places + np.arange(len(slots))
        self._append(pa.array([str(id_) for id_ in ids], pa.string()))
        if self._n_places > 2 * self._n_slots + 1024:
            self._collect()

    def take(self, slots: npt.NDArray[np.int32]) -> pa.Array:
        """Return the names of slots."""
        if not len(slots):
            return pa.array([], pa.string())
        taken = pa.chunked_array(self._chunks).take(pa.array(self._where[slots]))
        return taken.combine_chunks()

    def _append(self, chunk: pa.Array) -> None:
        self._n_places += len(chunk)
        while self._chunks and len(self._chunks[-1]) <= 2 * len(chunk):
            chunk = pa.concat_arrays([self._chunks.pop(), chunk])
        self._chunks.append(chunk)

    def _collect(self) -> None:
        """Copy what slots still point to, in the order of the slots."""
        kept = self.take(np.arange(self._n_slots, dtype=np.int32))
        self._chunks, self._n_places = [kept], len(kept)
        self._where[: self._n_slots] = np.arange(self._n_slots)
