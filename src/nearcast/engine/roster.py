"""Who sits in a slot? Subscriptions as they were written down, found by slot, a million at a time.

    where    slot -> place                   int64; a free slot leads nowhere
    chunks   places 0.. | ..  | ..           tables, each about as large as all that follow it
    sinces   slot -> the last message published before it came

New rows are appended; a slot that is used again just points to its new place. Chunks are merged as they come to be of
one size, so that there are few, and copied without the dead once half of them is dead: a row is copied a few times
however many there are. Objects are made only for whoever asks for one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.model import Cohort, Id, Subscription
from nearcast.model.pairs import join
from nearcast.model.stored import restore

Slots = npt.NDArray[np.int32]


class Roster:
    """The subscriptions of one kind in one shard, by slot."""

    def __init__(self, kind: type[Subscription]) -> None:
        self._kind = kind
        self._where = np.zeros(0, dtype=np.int64)
        self._sinces = np.zeros(0, dtype=np.int64)
        self._taken = np.zeros(0, dtype=bool)
        self._chunks: list[pa.Table] = []
        self._n_places = 0
        self._n_slots = 0
        self._free: list[int] = []

    def __len__(self) -> int:
        return self._n_slots - len(self._free)

    def seat(self, cohort: Cohort, sinces: npt.NDArray[np.int64]) -> Slots:
        """Give everyone a slot, and say which."""
        n = len(cohort)
        n_free = min(n, len(self._free))
        used_again = self._free[len(self._free) - n_free :]
        del self._free[len(self._free) - n_free :]
        fresh = np.arange(self._n_slots, self._n_slots + n - n_free)
        self._n_slots += n - n_free
        slots = np.concatenate([np.array(used_again, dtype=np.int64), fresh]).astype(np.int32)
        if self._n_slots > len(self._where):
            room = np.zeros(max(self._n_slots, 2 * len(self._where)) - len(self._where), dtype=np.int64)
            self._where = np.concatenate([self._where, room])
            self._sinces = np.concatenate([self._sinces, room])
            self._taken = np.concatenate([self._taken, room.astype(bool)])
        self._taken[slots] = True
        self._where[slots] = self._n_places + np.arange(n)
        self._sinces[slots] = sinces
        self._append(cohort.stored)
        if self._n_places > 2 * len(self) + 1024:
            self._collect()
        return slots

    def leave(self, slots: Slots) -> None:
        """Free slots."""
        self._free += slots.tolist()
        self._taken[slots] = False

    def taken(self) -> Slots:
        """Return the slots that are not free, in order."""
        return np.flatnonzero(self._taken[: self._n_slots]).astype(np.int32)

    def still(self, slots: Slots) -> Slots:
        """Return those of some slots that are not free."""
        return slots[self._taken[slots]]

    def rows(self, slots: Slots) -> pa.Table:
        """Return what was written down of some."""
        return self._all().take(pa.array(self._where[slots]))

    def ids(self, slots: Slots) -> list[Id]:
        """Return ids."""
        return join(self._all().select(["id", "id_int"]).take(pa.array(self._where[slots])), "id")

    def names(self, slots: Slots) -> pa.Array:
        """Return ids as a column of strings."""
        places = pa.array(self._where[slots])
        names, numbers = (self._all()[name].take(places) for name in ("id", "id_int"))
        if names.null_count:
            names = pc.coalesce(names, numbers.cast(pa.string()))
        return names.combine_chunks()

    def subscription(self, slot: int) -> Subscription:
        """Return the subscription of a slot."""
        return restore(self.rows(np.array([slot], dtype=np.int32)), self._kind)[0]

    def since(self, slot: int) -> int:
        """Return the last message published before it came."""
        return int(self._sinces[slot])

    def sinces(self, slots: Slots) -> npt.NDArray[np.int64]:
        """Return the same of many."""
        return self._sinces[slots]

    def _all(self) -> pa.Table:
        return pa.concat_tables(self._chunks)  # copies nothing

    def _append(self, chunk: pa.Table) -> None:
        self._n_places += len(chunk)
        while self._chunks and len(self._chunks[-1]) <= 2 * len(chunk):
            chunk = pa.concat_tables([self._chunks.pop(), chunk]).combine_chunks()
        self._chunks.append(chunk)

    def _collect(self) -> None:
        """Copy what is still pointed to, in the order of the slots."""
        slots = self.taken()
        kept = self.rows(slots).combine_chunks()
        self._chunks, self._n_places = [kept], len(kept)
        self._where[slots] = np.arange(len(slots))
