"""The sliding window: the messages that are in it, and those that expire at each step.

    store    the messages, by number (see `store`)
    order    the numbers in the order of expiry; not stored while messages expire in the order of arrival

A window reduces to keys and horizons (see `policy`). A horizon never falls, so the step at which a message expires is
found by a binary search for its key among the horizons of a batch. Times may be out of order: a message that arrives
late expires early, and may stay in the store, dead, until those before it have expired too.

Cost: a few passes over columns per batch; if times are out of order, one over the order of the window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.model import Document, Footprint, Id, IdColumn, MessageBatch
from nearcast.text import Vocabulary
from nearcast.window.policy import WindowPolicy
from nearcast.window.store import FIRST, HORIZON, NEXT, Store

if TYPE_CHECKING:
    from nearcast._jit import Arena

Longs = npt.NDArray[np.int64]
_NO_NUMBERS = np.zeros(0, np.int64)


class Ticks(NamedTuple):
    """All steps of a batch, including those whose message a shard does not receive: each advances the window."""

    seqs: Longs
    ats_us: Longs
    nows_us: Longs
    """The greatest time seen, up to and including each step."""
    expires_us: Longs | None = None
    """When each message expires by a time of its own, NEVER where it does not; None if none does."""

    def slice(self, start: int, stop: int) -> Ticks:
        """Return a range of steps."""
        ends = None if self.expires_us is None else self.expires_us[start:stop]
        return Ticks(self.seqs[start:stop], self.ats_us[start:stop], self.nows_us[start:stop], ends)


class Step(NamedTuple):
    """One step: first messages expire, then one arrives."""

    number: int
    """Its position in the batch."""
    leaving: tuple[Document, ...]
    row: int
    """Row of the arrival among the messages that the shard receives; -1 if there is none at this step."""
    arrival: Document | None


class Steps(NamedTuple):
    """The steps of a batch for the shards that share a window."""

    n_steps: int
    row_steps: Longs
    """The step at which each row of the batch arrives."""
    numbers: Longs
    """The number of each row in the window; empty without a window."""
    leaving: Longs
    """The numbers that expire, in the order of expiry."""
    leaving_steps: Longs
    """The step at which each expires."""
    horizons: Longs
    """The horizon at each step; empty without a window."""
    before: int
    """The first number that may have been alive before the batch."""
    in_order: bool
    """True if messages expire in the order of arrival."""
    store: Store | None

    @classmethod
    def without_window(cls, n_steps: int, row_steps: Longs) -> Steps:
        """Return steps at which no message expires."""
        return cls(n_steps, row_steps, _NO_NUMBERS, _NO_NUMBERS, _NO_NUMBERS, _NO_NUMBERS, 0, True, None)

    def slice(self, start: int, stop: int) -> Steps:
        """Return the steps for a stateless store that receives a range of the rows."""
        return self._replace(row_steps=self.row_steps[start:stop], numbers=self.numbers[start:stop])

    def walk(self, batch: MessageBatch) -> Iterator[Step]:
        """Yield the steps one by one."""
        row_of = dict(zip(self.row_steps.tolist(), range(len(batch)), strict=True))
        expired: dict[int, list[Document]] = {}
        if self.store is not None:
            documents = self.store.documents(self.leaving)
            for step, document in zip(self.leaving_steps.tolist(), documents, strict=True):
                expired.setdefault(step, []).append(document)
        for number in range(self.n_steps):
            row = row_of.get(number, -1)
            yield Step(number, tuple(expired.get(number, ())), row, batch.documents[row] if row >= 0 else None)


class WindowFollower(Protocol):
    """Lists of the messages of a window, which change with it."""

    def catch_up(self, first: int) -> None:
        """Append the messages that were added to the window since the last call; `first` is the first live one."""

    def drop(self, steps: Steps) -> None:
        """Remove the messages that expired at some steps."""


Follower = TypeVar("Follower", bound=WindowFollower)


class SlidingWindow:
    """The messages in the window; without a policy it is always empty."""

    def __init__(
        self,
        policy: WindowPolicy | None,
        live: pa.Table | None = None,
        *,
        arena: Callable[[], Arena] | None = None,
        n_attributes: int = 0,
    ) -> None:
        """Start with the messages of a table (see `table`), or continue with those that the arena holds."""
        self._n_attributes = n_attributes
        self.policy = policy
        self._make_arena = arena
        self._store: Store | None = None
        self._order: Longs | None = None
        self._followers: dict[str, WindowFollower] = {}
        if policy is not None and live is not None and len(live):
            self._init_order(self.store.append_table(live))
        elif policy is not None and arena is not None:
            self._init_order(self.store.numbers)

    @property
    def store(self) -> Store:
        """The messages, by number."""
        if self._store is None:
            from nearcast._jit import Arena

            arena = Arena() if self._make_arena is None else self._make_arena()
            self._store = Store(arena, self._n_attributes)
        return self._store

    def follower(self, name: str, make: Callable[[Arena], Follower]) -> Follower:
        """Return the lists of a name that follow this window; the first call makes them, in the window's arena."""
        if name not in self._followers:
            self._followers[name] = make(self.store.arena)
        return cast(Follower, self._followers[name])

    def catch_up(self) -> None:
        """Bring all lists up to date. Later readers may be several threads."""
        for follower in self._followers.values():
            follower.catch_up(int(self.store.state[FIRST]))

    def release(self, steps: Steps) -> None:
        """Remove messages that expired from all lists, once no reader needs them."""
        for follower in self._followers.values():
            follower.drop(steps)

    def __len__(self) -> int:
        if self._store is None:
            return 0
        return int(self.store.state[NEXT] - self.store.state[FIRST]) if self._order is None else len(self._order)

    @property
    def numbers(self) -> Longs:
        """The numbers of the messages in the window, in the order of arrival."""
        if self._store is None:
            return _NO_NUMBERS
        return self._store.numbers if self._order is None else np.sort(self._order)

    @property
    def in_order(self) -> bool:
        """True if all messages expire in the order of arrival."""
        return self._order is None

    def documents(self) -> list[Document]:
        """Return the messages of the window in the order of arrival."""
        return [] if self._store is None else self._store.documents(self.numbers)

    @property
    def seqs(self) -> Longs:
        """The seqs of the messages in the window, ascending."""
        return _NO_NUMBERS if self._store is None else self._store.of("seqs", self.numbers)

    def newest(self, n: int, vocabulary: Vocabulary) -> MessageBatch:
        """Return the newest n messages, or all if there are fewer."""
        return MessageBatch.empty() if self._store is None else self._store.batch(self.numbers[-n:], vocabulary)

    def table(self) -> pa.Table | None:
        """Return the messages of the window as a table; None without a policy."""
        return None if self.policy is None else self.store.table(self.numbers)

    def find(self, id_: Id) -> Document | None:
        """Return the newest message with an id, or None."""
        if self._store is None:
            return None
        numbers = self.numbers
        ids = self._store.ids(numbers)
        for row in reversed(range(len(numbers))):
            if ids[row] == id_:
                return self._store.documents(numbers[row : row + 1])[0]
        return None

    def admit(self, batch: MessageBatch, ticks: Ticks) -> Steps:
        """Add a batch and advance by the steps of `ticks`; its messages arrive at some of them."""
        row_steps = np.searchsorted(ticks.seqs, batch.seqs).astype(np.int64)
        if self.policy is None:
            return Steps.without_window(len(ticks.seqs), row_steps)
        numbers = self.store.append(batch, self.policy.key(batch.seqs, batch.ats_us, batch.expires_us))
        self._merge_order(numbers)
        self.catch_up()
        horizons = np.broadcast_to(self.policy.horizon(ticks.seqs, ticks.nows_us), len(ticks.seqs))
        # A copy: kernels would be compiled again for an array that is read-only.
        return self._steps(row_steps, numbers, np.array(horizons, np.int64))

    def advance(self, seq: int, now_us: int) -> Steps:
        """Advance without a message: one step at which messages only expire."""
        if self.policy is None:
            return Steps.without_window(1, _NO_NUMBERS)
        return self._steps(_NO_NUMBERS, _NO_NUMBERS, np.array([self.policy.horizon(seq, now_us)], np.int64))

    def _steps(self, row_steps: Longs, numbers: Longs, horizons: Longs) -> Steps:
        before, in_order = int(self.store.state[FIRST]), self.in_order
        leaving = self._expire(int(horizons[-1])) if len(horizons) else _NO_NUMBERS
        at = np.searchsorted(horizons, self._keys(leaving)).astype(np.int64)
        return Steps(len(horizons), row_steps, numbers, leaving, at, horizons, before, in_order, self.store)

    def _keys(self, numbers: Longs) -> Longs:
        return self.store.of("keys", numbers)

    def seqs_of(self, ids: IdColumn) -> tuple[Longs, Longs]:
        """Return the messages with some ids: the row of each in the ids, and its seq."""
        if self._store is None or not len(ids):
            return _NO_NUMBERS, _NO_NUMBERS
        numbers = self.numbers
        found = self._store.ids(numbers)
        rows = found.positions_in(ids)
        here = np.flatnonzero(rows >= 0)
        return rows[here], self._store.of("seqs", numbers[here])

    def holds(self, seqs: Longs, tick: Ticks) -> npt.NDArray[np.bool_]:
        """Return which messages, by ascending seqs, are in the window and will be at a step."""
        if self._store is None or self.policy is None:
            return np.zeros(len(seqs), np.bool_)
        numbers = self._numbers_of(seqs)
        alive = self._keys(numbers) > self.policy.horizon(int(tick.seqs[-1]), int(tick.nows_us[-1]))
        return np.isin(seqs, self._store.of("seqs", numbers[alive]))

    def _numbers_of(self, seqs: Longs) -> Longs:
        """Return the numbers of the messages with some seqs, ascending, that are in the window."""
        numbers = self.store.numbers_of(seqs)
        return numbers[self._keys(numbers) > int(self.store.state[HORIZON])]

    def batch_of(self, seqs: Longs, vocabulary: Vocabulary) -> MessageBatch:
        """Return the messages with some seqs, ascending, that are in the window."""
        if self._store is None:
            return MessageBatch.empty()
        return self._store.batch(self._numbers_of(seqs), vocabulary)

    def touching(self, footprint: Footprint, *, after: int) -> list[Document]:
        """Return the messages after a seq that may match a subscription."""
        if self._store is None:
            return []
        return self._store.documents(self._numbers_touching(footprint, after=after))

    def batch_touching(self, footprint: Footprint, vocabulary: Vocabulary, *, after: int) -> MessageBatch:
        """Return the messages after a seq that may match a subscription, as columns."""
        if self._store is None:
            return MessageBatch.empty()
        return self._store.batch(self._numbers_touching(footprint, after=after), vocabulary)

    def _numbers_touching(self, footprint: Footprint, *, after: int) -> Longs:
        store, numbers = self.store, self.numbers
        chosen = store.of("seqs", numbers) > after
        if footprint.box is not None:
            xs, ys, box = store.of("xs", numbers), store.of("ys", numbers), footprint.box
            chosen &= (xs >= box.xmin) & (xs <= box.xmax) & (ys >= box.ymin) & (ys <= box.ymax)
        numbers = numbers[chosen]
        if all(footprint.branches):
            terms = frozenset[int]().union(*footprint.branches)
            numbers = store.with_any_term(numbers, np.fromiter(terms, np.int64, len(terms)))
        return numbers

    def withdraw(self, seqs: Longs) -> None:
        """Remove messages before they expire."""
        if self._store is None:
            return
        numbers = self._numbers_of(seqs)
        if not len(numbers):
            return
        state = self._store.state
        order = np.arange(state[FIRST], state[NEXT]) if self._order is None else self._order
        self._store.withdraw(numbers)
        self._set_order(order[~np.isin(order, numbers)])

    def _set_order(self, order: Longs) -> None:
        """Set the messages that are left, in the order of expiry."""
        state = self.store.state
        state[FIRST] = order.min() if len(order) else state[NEXT]
        is_whole = len(order) == state[NEXT] - state[FIRST] and (np.diff(order) > 0).all()
        self._order = None if is_whole else order

    def leaving(self, ticks: Ticks) -> Longs:
        """Return the seqs of the messages that will expire at some steps, ascending."""
        if self.policy is None or self._store is None or not len(ticks.seqs):
            return _NO_NUMBERS
        horizon = int(self.policy.horizon(int(ticks.seqs[-1]), int(ticks.nows_us[-1])))
        seqs: Longs = np.sort(self.store.of("seqs", self._expired(horizon)))
        return seqs

    def _expired(self, horizon: int) -> Longs:
        """Return the numbers at or below a horizon, in the order of expiry."""
        if self._order is not None:
            return self._order[: int(np.searchsorted(self._keys(self._order), horizon, side="right"))]
        keys, first, end = self.store.keys, int(self.store.state[FIRST]), int(self.store.state[NEXT])
        low, step, mask = first, 1, len(keys) - 1
        while low + step <= end and keys[low + step - 1 & mask] <= horizon:  # mostly few have expired
            low, step = low + step, 2 * step
        high = min(low + step, end)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if keys[middle & mask] <= horizon else (low, middle)
        return np.arange(first, low)

    def _expire(self, horizon: int) -> Longs:
        """Remove the messages at or below the horizon; return their numbers in the order of expiry."""
        state, expired = self.store.state, self._expired(horizon)
        state[HORIZON] = max(int(state[HORIZON]), horizon)
        if self._order is None:
            state[FIRST] += len(expired)
        else:
            self._set_order(self._order[len(expired) :])
        return expired

    def _merge_order(self, arrivals: Longs) -> None:
        """Insert messages that have just arrived into the order of expiry."""
        assert self.policy is not None
        if not len(arrivals):
            return
        if not self.policy.needs_time:
            if self._order is not None:
                self._order = np.concatenate([self._order, arrivals])
            return
        before = self._order
        if before is None:
            keys = self._keys(np.arange(max(int(arrivals[0]) - 1, int(self.store.state[FIRST])), arrivals[-1] + 1))
            if (np.diff(keys) >= 0).all():
                return
            before = np.arange(self.store.state[FIRST], arrivals[0])
        after = int(np.searchsorted(self._keys(before), self._keys(arrivals).min(), side="right"))
        mixed = np.concatenate([before[after:], arrivals])
        self._order = np.concatenate([before[:after], mixed[np.argsort(self._keys(mixed), kind="stable")]])

    def _init_order(self, numbers: Longs) -> None:
        """Set the order of expiry of messages that were here before; dead messages are left out."""
        alive = numbers[self._keys(numbers) > int(self.store.state[HORIZON])]
        keys = self._keys(alive)
        if len(alive) < len(numbers) or (np.diff(keys) < 0).any():
            self._order = alive[np.argsort(keys, kind="stable")]
