"""Profiles: location, weighted keywords and parameters of subscriptions by slot, for kernels.

    points   slot -> x, y, alpha                          24 bytes
    heads    slot -> run, number of terms, k              12 bytes
    run_terms, run_units     [ terms ascending, and their weights | the next run | ... ]     16 bytes per term

The index of a kind uses profiles to verify candidates, and its result store to search the window. Both share one copy
in the arena of the kind: the first of them to insert or delete a subscription writes, and the second changes nothing.

Cost: tens of nanoseconds per term; runs lie in blocks that are reused.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import Arena, column
from nearcast.model._kernels import blocks
from nearcast.model._kernels import profiles as kernels
from nearcast.model._kernels.profiles import ProfileArrays
from nearcast.model.subscription_columns import KeywordColumns

__all__ = ["ProfileArrays", "Profiles"]

_PREFIX = "profiles"


class Profiles:
    """The profiles of one kind; an arena that holds them already is continued.

    >>> from nearcast.model import SubscriptionBatch, TopKSubscription
    >>> from nearcast.testing.strategies import scoring
    >>> jazz = TopKSubscription("t", location=(1, 2), keywords="b a a", k=3, alpha=0.5)
    >>> profiles = Profiles(Arena())
    >>> profiles.insert(np.array([4], np.int32), SubscriptionBatch.of([jazz], scoring()).columns)
    >>> profiles.arrays.points[4].tolist(), profiles.arrays.heads[4].tolist()
    ([1.0, 2.0, 0.5], [0, 2, 3])
    """

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        if f"{_PREFIX}.state" not in arena:
            with arena.together():
                arena.new(f"{_PREFIX}.points", np.float64, 0, columns=3)
                arena.new(f"{_PREFIX}.heads", np.int32, 0, -1, columns=3)
                arena.new(f"{_PREFIX}.run_terms", np.int64, 0)
                arena.new(f"{_PREFIX}.run_units", np.float64, 0)
                arena.new(f"{_PREFIX}.state", np.int64, blocks.STATE)[blocks.FIRST :] = -1

    @property
    def arrays(self) -> ProfileArrays:
        """The current arrays; growth replaces them."""
        return self._arena.bundle(_PREFIX, ProfileArrays)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays)

    def insert(self, slots: NDArray[np.int32], columns: KeywordColumns) -> None:
        """Insert subscriptions; slots in use stay as they are."""
        slots = column(slots, np.int32)
        if slots.size == 0:
            return
        rows = kernels.ProfileColumns(
            column(columns.xs, np.float64),
            column(columns.ys, np.float64),
            column(columns.alphas, np.float64),
            column(columns.ks, np.int32),
            column(columns.term_indptr, np.int64),
            column(columns.term_ids, np.int64),
            column(columns.units, np.float64),
        )
        self._arena.grow_all([f"{_PREFIX}.{name}" for name in ("points", "heads")], int(slots.max()) + 1)
        done = kernels.insert_profiles(self.arrays, rows, slots, 0)
        while done < slots.size:
            state = self._arena[f"{_PREFIX}.state"]
            needed = int(state[blocks.USED] + state[blocks.NEEDED])
            self._arena.grow_all([f"{_PREFIX}.{name}" for name in ("run_terms", "run_units")], needed)
            done = kernels.insert_profiles(self.arrays, rows, slots, done)

    def delete(self, slots: NDArray[np.int32]) -> None:
        """Delete subscriptions; free slots stay free."""
        if len(slots):
            kernels.delete_profiles(self.arrays, column(slots, np.int32))
