"""Messages held by results that no window ends: their seqs and ids by handle, in the order of arrival.

    handles   0    1    2    3          rows of flat arrays; handles ascend with seqs
    seqs      7    9   12   40
    bytes     m7 | m9 | 12 | m40        ids as text; a flag distinguishes 12 from "12"

Messages are appended. A message that is in no result any more leaves a gap, until all gaps are closed at once.

Cost: 17 bytes per message, and its id; closing gaps is one pass over all messages.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast._jit import Arena
from nearcast.model import IdColumn
from nearcast.text.encode import bytes_of
from nearcast.window._kernels.heaps import copy_texts

Handles = npt.NDArray[np.int32]

_COUNT, _CLOSED = 0, 1  # positions in the state: messages, and messages when gaps were last closed
_ROWS: dict[str, Any] = {"seqs": np.int64, "starts": np.int64, "are_numbers": np.bool_}


class HeldMessages:
    """Messages by handle, in an arena; an arena that holds them already is continued.

    >>> held = HeldMessages(Arena())
    >>> held.append(np.array([7, 9]), IdColumn.of(["m7", 9]))
    >>> list(held.ids(np.array([1, 0], np.int32)))
    [9, 'm7']
    >>> held.keep(np.array([False, True])).tolist(), len(held)
    ([-1, 0], 1)
    """

    def __init__(self, arena: Arena, prefix: str = "held") -> None:
        self._arena, self._prefix = arena, prefix
        if f"{prefix}.state" not in arena:
            with arena.together():
                for name, kind in _ROWS.items():
                    arena.new(f"{self._prefix}.{name}", kind, 1)
                arena.new(f"{self._prefix}.bytes", np.uint8, 0)
                arena.new(f"{self._prefix}.state", np.int64, 2)

    def __len__(self) -> int:
        return int(self._array("state")[_COUNT])

    def drop(self) -> None:
        """Remove the messages from the arena."""
        with self._arena.together():
            for name in (*_ROWS, "bytes", "state"):
                self._arena.drop(f"{self._prefix}.{name}")

    @property
    def has_doubled(self) -> bool:
        """True if there are twice as many messages as when gaps were last closed."""
        state = self._array("state")
        return bool(state[_COUNT] >= 2 * state[_CLOSED])

    @property
    def n_new(self) -> int:
        """The number of messages since gaps were last closed."""
        state = self._array("state")
        return int(state[_COUNT] - state[_CLOSED])

    @property
    def seqs(self) -> npt.NDArray[np.int64]:
        """The seqs of all messages."""
        return self._array("seqs")[: len(self)]

    def append(self, seqs: npt.NDArray[np.int64], ids: IdColumn) -> None:
        """Append messages that are newer than all others; they get the next handles."""
        n, more = len(self), len(seqs)
        data, offsets = bytes_of(ids.strings)
        start, size = int(self._array("starts")[n]), int(offsets[-1] - offsets[0])
        self._arena.grow_all([f"{self._prefix}.{name}" for name in _ROWS], n + more + 1)
        self._arena.grow(f"{self._prefix}.bytes", start + size)
        self._array("seqs")[n : n + more] = seqs
        self._array("are_numbers")[n : n + more] = ids.are_numbers
        self._array("starts")[n + 1 : n + more + 1] = start + offsets[1:] - offsets[0]
        self._array("bytes")[start : start + size] = data[offsets[0] : offsets[-1]]
        self._array("state")[_COUNT] = n + more

    def ids(self, handles: Handles) -> IdColumn:
        """Return the ids of messages."""
        starts, are_numbers = self._array("starts"), self._array("are_numbers")[handles]
        offsets = np.zeros(len(handles) + 1, np.int32)
        np.cumsum(starts[handles + 1] - starts[handles], out=offsets[1:])
        data = np.empty(int(offsets[-1]), np.uint8)
        copy_texts(self._array("bytes"), starts, handles, data)
        strings = pa.StringArray.from_buffers(len(handles), pa.py_buffer(offsets), pa.py_buffer(data))
        if not are_numbers.any():
            return IdColumn(strings)
        flags, none = pa.array(are_numbers), pa.scalar(None, pa.string())
        return IdColumn(pc.if_else(flags, none, strings), pc.if_else(flags, strings, none).cast(pa.int64()))

    def merge(self, seqs: npt.NDArray[np.int64], ids: IdColumn) -> Handles:
        """Insert messages of any age, each once; return the new handles of the messages that were here before."""
        all_ids = IdColumn.joined([self.ids(np.arange(len(self), dtype=np.int32)), ids])
        merged, first, now = np.unique(np.concatenate([self.seqs, seqs]), return_index=True, return_inverse=True)
        handles: Handles = now[: len(self)].astype(np.int32)
        self._clear()
        self.append(merged, all_ids.take(first))
        return handles

    def keep(self, is_held: npt.NDArray[np.bool_]) -> Handles:
        """Drop all other messages; return the new handle of each message, -1 if it was dropped."""
        chosen = np.flatnonzero(is_held).astype(np.int32)
        seqs, ids = self.seqs[chosen], self.ids(chosen)
        self._clear()
        self.append(seqs, ids)
        self._array("state")[_CLOSED] = len(chosen)
        numbers = np.full(len(is_held), -1, np.int32)
        numbers[chosen] = np.arange(len(chosen), dtype=np.int32)
        return numbers

    def _clear(self) -> None:
        self._array("state")[_COUNT] = 0

    def _array(self, name: str) -> npt.NDArray[Any]:
        return self._arena[f"{self._prefix}.{name}"]
