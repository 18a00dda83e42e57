"""Which messages are in the window, and which leave at each step?

    store    the messages, by number (see `store`)
    order    the numbers in the order of leaving; not written down while they leave as they came

A window reduces to keys and horizons (see `policy`). A horizon never falls, so the step at which a message leaves is
found by looking its key up among the horizons of a batch. Times need not come in order: a message that came late
leaves early, and may lie dead among the living until those before it have left too.

Cost: a few passes over columns a batch; if times are out of order, one over the order of the window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.model import Document, Id, MessageBatch
from nearcast.text import Vocabulary
from nearcast.window.policy import WindowPolicy
from nearcast.window.store import FIRST, HORIZON, NEXT, Store

if TYPE_CHECKING:
    from nearcast._jit import Arena

Longs = npt.NDArray[np.int64]
_NOBODY = np.zeros(0, np.int64)


class Ticks(NamedTuple):
    """The steps of a batch, also those whose message a shard does not see: windows move on at all of them."""

    seqs: Longs
    ats_us: Longs
    nows_us: Longs
    """The greatest time seen up to and with each step."""


class Step(NamedTuple):
    """What happens at one step: first these leave, then that one comes."""

    number: int
    """Which step of its batch."""
    leaving: tuple[Document, ...]
    row: int
    """Row of the coming message among those the shard sees; -1 if it sees none at this step."""
    coming: Document | None


class Steps(NamedTuple):
    """The steps of a batch as one shard sees them."""

    n_steps: int
    of_rows: Longs
    """The step at which each row of the batch comes."""
    numbers: Longs
    """The number that each row has in the window; empty without one."""
    leaving: Longs
    """The numbers that leave, the first to leave first."""
    leaving_steps: Longs
    """The step at which each does."""
    horizons: Longs
    """The horizon at each step; empty without a window."""
    before: int
    """The first number that may have been alive before the batch."""
    in_order: bool
    """Whether messages leave as they came."""
    store: Store | None

    @classmethod
    def without_window(cls, n_steps: int, of_rows: Longs) -> Steps:
        """Return steps at which nobody leaves."""
        return cls(n_steps, of_rows, _NOBODY, _NOBODY, _NOBODY, _NOBODY, 0, True, None)

    def slice(self, start: int, stop: int) -> Steps:
        """Return the steps as those see them who are given some of the rows and keep nothing."""
        return self._replace(of_rows=self.of_rows[start:stop], numbers=self.numbers[start:stop])

    def walk(self, batch: MessageBatch) -> Iterator[Step]:
        """Yield the steps one by one."""
        row_of = dict(zip(self.of_rows.tolist(), range(len(batch)), strict=True))
        gone: dict[int, list[Document]] = {}
        if self.store is not None:
            left = self.store.documents(self.leaving)
            for step, document in zip(self.leaving_steps.tolist(), left, strict=True):
                gone.setdefault(step, []).append(document)
        for number in range(self.n_steps):
            row = row_of.get(number, -1)
            yield Step(number, tuple(gone.get(number, ())), row, batch.documents[row] if row >= 0 else None)


class SlidingWindow:
    """The messages that are in the window; without a policy, none ever is."""

    def __init__(
        self,
        policy: WindowPolicy | None,
        live: pa.Table | None = None,
        *,
        arena: Callable[[], Arena] | None = None,
    ) -> None:
        """Start with the messages of a table (see `table`), or with those that the arena holds already."""
        self.policy = policy
        self._make_arena = arena
        self._made: Store | None = None
        self._order: Longs | None = None
        if policy is not None and live is not None and len(live):
            self._take_order(self.store.append_table(live))
        elif policy is not None and arena is not None:
            self._take_order(self.store.numbers)

    @property
    def store(self) -> Store:
        """The messages themselves."""
        if self._made is None:
            from nearcast._jit import Arena

            self._made = Store(Arena() if self._make_arena is None else self._make_arena())
        return self._made

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def numbers(self) -> Longs:
        """The numbers of the messages in the window, in the order they came."""
        if self._made is None:
            return _NOBODY
        return self._made.numbers if self._order is None else np.sort(self._order)

    @property
    def in_order(self) -> bool:
        """Whether all messages leave as they came."""
        return self._order is None

    def documents(self, newest: int | None = None) -> list[Document]:
        """Return the messages of the window, or so many of the newest, in the order they came."""
        if self._made is None:
            return []
        numbers = self.numbers
        return self._made.documents(numbers if newest is None else numbers[max(0, len(numbers) - newest) :])

    def newest(self, n: int, vocabulary: Vocabulary) -> MessageBatch:
        """Return up to n messages, the newest."""
        return MessageBatch.empty() if self._made is None else self._made.batch(self.numbers[-n:], vocabulary)

    def table(self) -> pa.Table | None:
        """Return the messages of the window as a table; None without a policy."""
        return None if self.policy is None else self.store.table(self.numbers)

    def find(self, id_: Id) -> Document | None:
        """Return the newest message of an id."""
        if self._made is None:
            return None
        numbers = self.numbers
        ids = self._made.ids(numbers)
        for row in reversed(range(len(numbers))):
            if ids[row] == id_:
                return self._made.documents(numbers[row : row + 1])[0]
        return None

    def admit(self, batch: MessageBatch, ticks: Ticks) -> Steps:
        """Move on by the steps of `ticks`, at some of which a message of the batch comes."""
        of_rows = np.searchsorted(ticks.seqs, batch.seqs).astype(np.int64)
        if self.policy is None:
            return Steps.without_window(len(ticks.seqs), of_rows)
        numbers = self.store.append(batch)
        self._line_up(numbers)
        horizons = np.broadcast_to(self.policy.horizon(ticks.seqs, ticks.nows_us), len(ticks.seqs))
        return self._steps(of_rows, numbers, np.ascontiguousarray(horizons, np.int64))

    def advance(self, seq: int, now_us: int) -> Steps:
        """Let time pass without a message: one step at which nobody comes."""
        if self.policy is None:
            return Steps.without_window(1, _NOBODY)
        return self._steps(_NOBODY, _NOBODY, np.array([self.policy.horizon(seq, now_us)], np.int64))

    def _steps(self, of_rows: Longs, numbers: Longs, horizons: Longs) -> Steps:
        before = int(self.store.state[FIRST])
        leaving = self._expire(int(horizons[-1])) if len(horizons) else _NOBODY
        at = np.searchsorted(horizons, self._keys(leaving)).astype(np.int64)
        return Steps(len(horizons), of_rows, numbers, leaving, at, horizons, before, self.in_order, self.store)

    def _keys(self, numbers: Longs) -> Longs:
        assert self.policy is not None
        return self.policy.key(self.store.of("seqs", numbers), self.store.of("ats", numbers))

    def leaving(self, ticks: Ticks) -> Longs:
        """Return the seqs of messages that will leave at some steps, ascending."""
        if self.policy is None or self._made is None or not len(ticks.seqs):
            return _NOBODY
        horizon = int(self.policy.horizon(int(ticks.seqs[-1]), int(ticks.nows_us[-1])))
        seqs: Longs = np.sort(self.store.of("seqs", self._gone(horizon)))
        return seqs

    def _gone(self, horizon: int) -> Longs:
        """Return the numbers of those at or below a horizon, in the order of leaving."""
        if self._order is not None:
            return self._order[: int(np.searchsorted(self._keys(self._order), horizon, side="right"))]
        low, high = first, _ = int(self.store.state[FIRST]), int(self.store.state[NEXT])
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._keys(np.array([middle]))[0] <= horizon else (low, middle)
        return np.arange(first, low)

    def _expire(self, horizon: int) -> Longs:
        """Let go of who is at or below the horizon; return their numbers in the order of leaving."""
        state, gone = self.store.state, self._gone(horizon)
        state[HORIZON] = max(int(state[HORIZON]), horizon)
        if self._order is None:
            state[FIRST] += len(gone)
        else:
            self._order = self._order[len(gone) :]
            state[FIRST] = self._order.min() if len(self._order) else state[NEXT]
        return gone

    def _line_up(self, coming: Longs) -> None:
        """Find out when messages leave that have just come."""
        assert self.policy is not None
        if not self.policy.needs_time or not len(coming):
            return
        before = self._order
        if before is None:
            before = np.arange(self.store.state[FIRST], coming[0])
            keys = self._keys(np.arange(max(int(coming[0]) - 1, int(self.store.state[FIRST])), coming[-1] + 1))
            if (np.diff(keys) >= 0).all():
                return
        after = int(np.searchsorted(self._keys(before), self._keys(coming).min(), side="right"))
        mixed = np.concatenate([before[after:], coming])
        self._order = np.concatenate([before[:after], mixed[np.argsort(self._keys(mixed), kind="stable")]])

    def _take_order(self, numbers: Longs) -> None:
        """Line up messages that were here before; those that lie dead among them are left out."""
        alive = numbers[self._keys(numbers) > int(self.store.state[HORIZON])]
        keys = self._keys(alive)
        if len(alive) < len(numbers) or (np.diff(keys) < 0).any():
            self._order = alive[np.argsort(keys, kind="stable")]
