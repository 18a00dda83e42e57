"""Words by slot: for some slots a run of 64-bit words, in blocks that are reused.

    heads   slot -> where its words begin, and how many      words   the runs

Slots that never had any cost nothing. Cost: 16 bytes per slot up to the last one with words, and the words.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast._jit import Arena, blocks, column
from nearcast.model._kernels import slot_words as kernels
from nearcast.model._kernels.slot_words import SlotWordArrays

Longs = npt.NDArray[np.int64]


class SlotWords:
    """Words by slot; an arena that holds some already is continued, and one without any stays as it is.

    >>> words = SlotWords(Arena(), "example")
    >>> words.insert(np.array([4, 1], np.int32), np.array([0, 2, 3]), np.array([7, 8, 9]))
    >>> words.arrays.heads[:5].tolist(), words.arrays.words[:3].tolist()
    ([[-1, -1], [2, 1], [-1, -1], [-1, -1], [0, 2]], [7, 8, 9])
    """

    def __init__(self, arena: Arena, prefix: str) -> None:
        self._arena, self._prefix = arena, prefix

    def __bool__(self) -> bool:
        return f"{self._prefix}.heads" in self._arena

    @property
    def arrays(self) -> SlotWordArrays:
        """The current arrays; growth replaces them."""
        return self._arena.bundle(self._prefix, SlotWordArrays) if self else _no_words()

    def insert(self, slots: npt.NDArray[np.int32], indptr: Longs, words: Longs) -> None:
        """Insert words of slots that have none; a run may be empty."""
        if not len(slots):
            return
        if not self:
            self._make()
        own = column(slots, np.int32)
        self._arena.grow(f"{self._prefix}.heads", int(own.max()) + 1)
        done = 0
        while (done := kernels.insert_words(self.arrays, own, indptr, words, done)) < len(own):
            state = self._array("state")
            needed = max(int(state[blocks.USED] + state[blocks.NEEDED]), len(words))
            self._arena.grow(f"{self._prefix}.words", needed)

    def delete(self, slots: npt.NDArray[np.int32]) -> int:
        """Delete the words of slots, of which some may have none; return how many had some."""
        return int(kernels.delete_words(self.arrays, column(slots, np.int32))) if self and len(slots) else 0

    def _make(self) -> None:
        with self._arena.together():
            self._arena.new(f"{self._prefix}.heads", np.int64, 0, -1, columns=2)
            self._arena.new(f"{self._prefix}.words", np.int64, 0)
            self._arena.new(f"{self._prefix}.state", np.int64, blocks.STATE)[blocks.FIRST :] = -1

    def _array(self, name: str) -> npt.NDArray[Any]:
        return self._arena[f"{self._prefix}.{name}"]


@cache
def _no_words() -> SlotWordArrays:
    return SlotWordArrays(np.zeros((0, 2), np.int64), np.zeros(0, np.int64), np.zeros(blocks.STATE, np.int64))
