"""Lists of the messages of a window by filter key, for searches with selective filters; see `model.filter_keys`.

A family of keys is listed once a subscription needs it: the messages that are in the window by then are listed too.
Cost: nothing until then; after that 30 to 60 nanoseconds and some 20 bytes per message and family.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nearcast._jit import Arena
from nearcast.model import ScoringContext
from nearcast.model.attributes import NULL
from nearcast.model.filter_keys import N_RANKS, coarsest_of, keys_of_messages, n_families, ranks_of
from nearcast.window._kernels import keys as kernels
from nearcast.window._kernels import lists
from nearcast.window._kernels.params import BufferParams
from nearcast.window.lists import MAX_NUMBER, MessageLists
from nearcast.window.sliding import SlidingWindow, Steps
from nearcast.window.store import FIRST, NEXT

Longs = npt.NDArray[np.int64]


class KeyLists(MessageLists):
    """The messages of a window by filter key."""

    def __init__(
        self,
        arena: Arena,
        window: SlidingWindow,
        params: BufferParams,
        prefix: str,
        *,
        scoring: ScoringContext,
        max_number: int = MAX_NUMBER,
    ) -> None:
        super().__init__(arena, window, params, prefix, max_number=max_number)
        self._scoring = scoring
        if f"{prefix}.used" not in arena:
            attributes = scoring.attributes
            arena.new(f"{prefix}.used", np.bool_, n_families(attributes))
            arena.new(f"{prefix}.known", np.int64, len(attributes), columns=N_RANKS)

    @property
    def used(self) -> npt.NDArray[np.bool_]:
        """Which families are listed."""
        return self._array("used")

    @property
    def known(self) -> Longs:
        """The keys of the coarsest cells of numbers, by attribute and rank; 0 for a cell that no message had."""
        return self._array("known")

    def use(self, families: Longs) -> None:
        """List messages by some families from now on; one thread at a time may call this."""
        if len(families) and not self.used[families].all():
            self.used[families] = True
            first, done = int(self._window.store.state[FIRST]), int(self._array("counts")[lists.LISTED])
            self._rebuild(first, max(first, done), n_buckets=len(self._array("buckets")))

    def catch_up(self, first: int) -> None:
        """Append the messages that were added to the window since the last call; `first` is the first live one."""
        n_new = int(self._window.store.state[NEXT]) - int(self._array("counts")[lists.LISTED])
        if self.used.any():
            self._extend(first, n_new * int(self.used.sum()))
        else:
            self._array("counts")[lists.LISTED] += n_new

    def drop(self, steps: Steps) -> None:
        """Remove the messages that expired at some steps."""
        if self.used.any():
            kernels.drop_keys(self.arrays, self._keys_of(steps.leaving), self._horizon(steps))

    def _append_some(self, start: int, stop: int) -> int:
        keys = self._keys_of(np.arange(start, stop))
        self._note_cells(np.arange(start, stop), keys)
        return int(kernels.append_keys(self.arrays, keys, start, stop))

    @property
    def _families(self) -> Longs:
        return np.flatnonzero(self.used)

    def _keys_of(self, numbers: Longs) -> Longs:
        """Return the keys of messages in the families that are listed."""
        store = self._window.store
        xs, ys = store.of("xs", numbers), store.of("ys", numbers)
        return keys_of_messages(self._families, store.codes(numbers), xs, ys, self._scoring)

    def _note_cells(self, numbers: Longs, keys: Longs) -> None:
        """Note the keys of the coarsest cells of messages."""
        codes = self._window.store.codes(numbers)
        for attribute in range(len(self._scoring.attributes)):
            at = np.flatnonzero(self._families == coarsest_of(np.array(attribute)))
            if len(at) and codes is not None:
                own = codes[:, attribute]
                is_known = own != NULL
                self.known[attribute, ranks_of(own[is_known])] = keys[is_known, at[0]]
