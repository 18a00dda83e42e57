"""The messages of an engine: their numbers and times, and the steps at which they arrive, expire and are withdrawn.

    ats     10   12   11   40                     times of messages
    seqs     1    2    3    4                     one step each
    nows    10   12   12   40                     `now` of each step: the greatest time so far

A batch goes to the shards as it is, unless something expires in it by a time of its own: then it is divided at that
step. What is known of messages beside the windows of shards, their bodies and the times at which they expire, is
stored here, once per engine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.engine.state import EXPIRIES, EngineState
from nearcast.engine.step_changes import StepChange, differences, net_changes
from nearcast.engine.updates import Form, UpdateBatch, UpdateWriter, joined
from nearcast.errors import InvalidInput
from nearcast.model import NEVER, NO_TIME, Id, IdColumn, MessageBatch
from nearcast.model.columns import one_array
from nearcast.window import Ticks

if TYPE_CHECKING:
    from nearcast._jit import Arena
    from nearcast.engine.expiry_heap import ExpiryHeap
    from nearcast.engine.folder import EngineFolder
    from nearcast.engine.message_bodies import MessageBodies
    from nearcast.engine.shard_set import ShardSet
    from nearcast.partition import Masks

Longs = npt.NDArray[np.int64]
SeenBy = Callable[[MessageBatch], "Masks"]
"""Returns the engines that saw each message, as masks."""

_NONE = np.zeros(0, np.int64)


class MessageStream:
    """Passes the messages of an engine to its shards, step by step.

    With `is_clocked`, only `advance` moves `now`, and the times of messages do not. Before it was advanced the clock
    stands at the epoch.
    """

    def __init__(
        self, state: EngineState, shards: ShardSet, folder: EngineFolder | None, *, is_clocked: bool = False
    ) -> None:
        self._window, self._shards, self._folder = state.config.window, shards, folder
        self._is_clocked = is_clocked
        self.seq, self.now_us = state.seq, state.now_us
        self.late = state.late
        self.late_seqs: tuple[int, ...] = ()
        """The `seq` of each message of the last call that had expired on arrival."""
        self.bodies = self._make_bodies(state) if state.config.bodies else None
        self.expiries = self._find_expiries(state)

    # -- what is known of messages beside the windows -----------------------------------------------------------

    @cached_property
    def _arena(self) -> Arena:
        from nearcast._jit import Arena

        return Arena() if self._folder is None else self._folder.message_arena()

    def _make_bodies(self, state: EngineState) -> MessageBodies:
        from nearcast.engine.message_bodies import MessageBodies

        bodies = MessageBodies(self._arena)
        if state.bodies is not None:
            bodies.append(state.bodies["seq"].to_numpy(), one_array(state.bodies["body"]))
        return bodies

    def _find_expiries(self, state: EngineState) -> ExpiryHeap | None:
        """Return the messages that expire by a time of their own, if there are any already."""
        if state.expiries is not None:
            expiries = self._make_expiries()
            expiries.push(state.expiries["expires_us"].to_numpy(), state.expiries["seq"].to_numpy())
            return expiries
        is_continued = self._folder is not None and self._folder.has_message_arena()
        return self._make_expiries() if is_continued and "expiries.state" in self._arena else None

    def _make_expiries(self) -> ExpiryHeap:
        from nearcast.engine.expiry_heap import ExpiryHeap

        return ExpiryHeap(self._arena, "expiries")

    def add_known(self, bodies: pa.Table | None, expiries: pa.Table | None) -> None:
        """Add what is known of messages that only results hold."""
        if self.bodies is not None and bodies is not None:
            self.bodies.add(bodies["seq"].to_numpy(), one_array(bodies["body"]))
        if expiries is None or not len(expiries):
            return
        if self.expiries is None:
            self.expiries = self._make_expiries()
        new = ~np.isin(expiries["seq"].to_numpy(), self.expiries.entries.values)
        times, seqs = (expiries[name].to_numpy()[new] for name in ("expires_us", "seq"))
        self.expiries.push(times, seqs)

    def body_table(self, seqs: Longs | None = None) -> pa.Table | None:
        """Return the bodies of messages by ascending seqs, by default of all; None unless bodies are stored."""
        if self.bodies is None:
            return None
        return self.bodies.table(self._shards.kept_seqs() if seqs is None else seqs)

    def expiry_table(self, seqs: Longs | None = None) -> pa.Table | None:
        """Return the times at which messages with some seqs expire, by default all; None if none ever did."""
        if self.expiries is None:
            return None
        times, own = self.expiries.entries
        kept = np.flatnonzero(np.isin(own, self._shards.kept_seqs() if seqs is None else seqs))
        return pa.table([pa.array(own[kept]), pa.array(times[kept])], schema=EXPIRIES)

    def _store_bodies(self, batch: MessageBatch) -> None:
        """Store the bodies of messages that are about to arrive."""
        if self.bodies is None or batch.bodies is None:
            return
        if self.bodies.may_be_dropped:
            self.bodies.keep(self._shards.kept_seqs())
        self.bodies.append(batch.seqs, batch.bodies)

    def _store_expiries(self, batch: MessageBatch) -> None:
        """Store when messages that are about to arrive expire, if the window does not know it."""
        if batch.expires_us is None or not self._shards.withdraws_expired:
            return
        if self.expiries is None:
            self.expiries = self._make_expiries()
        if self.expiries.may_be_dropped:
            self.expiries.keep(np.isin(self.expiries.entries.values, self._shards.kept_seqs()))
        rows = np.flatnonzero(batch.expires_us != NEVER)
        self.expiries.push(batch.expires_us[rows], batch.seqs[rows])

    # -- numbers and times --------------------------------------------------------------------------------------

    def ticks(self, ats_us: Any) -> Ticks:
        """Return the next steps of the stream, by the times of their messages."""
        seqs = np.arange(self.seq + 1, self.seq + 1 + len(ats_us), dtype=np.int64)
        if self._is_clocked:
            return Ticks(seqs, ats_us, np.full(len(ats_us), max(self.now_us, 0), np.int64))
        return Ticks(seqs, ats_us, np.maximum.accumulate(np.maximum(ats_us, self.now_us)))

    def now_ticks(self) -> Ticks:
        """Return the step of something that happens without a message: that of the last one."""
        now = np.array([self.now_us], np.int64)
        return Ticks(np.array([self.seq], np.int64), now, now)

    def check_times(self, batch: MessageBatch, ats_us: Longs) -> None:
        """Raise `InvalidInput` if a step has no time and the window needs one."""
        if self._window is not None and self._window.needs_time and (ats_us == NO_TIME).any():
            subject = f"message {batch.ids[int(np.argmax(batch.ats_us == NO_TIME))]!r}" if len(batch) else "stream"
            raise InvalidInput("at", "must be given where the window is a TimeWindow", None, subject=subject)

    @property
    def may_expire(self) -> bool:
        """True if `advance` alone can change a result, or end a subscription: something waits for its time."""
        is_timed = self._window is not None and self._window.needs_time and self._shards.n_live() > 0
        return is_timed or self._next_expiry_us < NEVER

    # -- steps --------------------------------------------------------------------------------------------------

    def publish(
        self,
        batch: MessageBatch,
        ticks: Ticks,
        form: Form,
        *,
        seen_by: Masks | None = None,
        replaced: Longs | None = None,
        replaced_in: SeenBy | None = None,
    ) -> list[UpdateBatch]:
        """Publish a batch as the given steps; `seen_by` holds the engines that see each message, if several do.

        With `replaced`, the seqs of messages, there is one step, at which these are withdrawn; `replaced_in` returns
        the engines that saw each of these, if several did.
        """
        if batch.expires_us is not None and ticks.expires_us is None:
            ends = np.full(len(ticks.seqs), NEVER)
            ends[batch.seqs - ticks.seqs[0]] = batch.expires_us
            ticks = ticks._replace(expires_us=ends)
        self.seq += len(ticks.seqs)
        if len(ticks.seqs):
            self.now_us = int(ticks.nows_us[-1])
        in_time = self._in_time(batch, ticks)
        if seen_by is not None and len(in_time) < len(batch):
            seen_by = seen_by[np.searchsorted(batch.seqs, in_time.seqs)]
        self._store_bodies(in_time)
        self._store_expiries(in_time)
        writer = UpdateWriter(ticks, form, self.bodies)
        if replaced is not None:
            self._shards.forget_expired(ticks)
            expired = self._expired(ticks, 0)
            left = self.taken_back(replaced, replaced_in)
            arrived = self._step(in_time, ticks, seen_by, withdrawn=np.union1d(expired, replaced))
            return [writer.write_step(0, net_changes(left + arrived))]
        if self._next_expiry_us > self.now_us:
            return self._shards.publish(in_time, writer, seen_by)
        return list(self._publish_in_parts(in_time, writer, seen_by))

    def advance(self, now_us: int, form: Form) -> list[UpdateBatch]:
        """Advance the clock without a message; an earlier time changes nothing."""
        self.now_us = max(self.now_us, now_us)
        writer = UpdateWriter(self.now_ticks(), form, self.bodies)
        self._shards.forget_expired(writer.ticks)
        expired = self._expired(writer.ticks, self.seq + 1)
        if len(expired):
            return [writer.write_step(0, net_changes(self._step(None, writer.ticks, withdrawn=expired)))]
        return self._shards.advance(writer)

    def _in_time(self, batch: MessageBatch, ticks: Ticks) -> MessageBatch:
        """Return the messages that have not expired on arrival; count the late ones of the whole stream."""
        self.late_seqs = ()
        late = np.zeros(len(ticks.seqs), np.bool_)
        if self._window is not None:
            late |= self._window.key(ticks.seqs, ticks.ats_us) <= self._window.horizon(ticks.seqs, ticks.nows_us)
        if ticks.expires_us is not None:
            late |= ticks.expires_us <= ticks.nows_us
        if not late.any():
            return batch
        self.late_seqs = tuple(ticks.seqs[late].tolist())
        self.late += len(self.late_seqs)
        return batch.take(np.flatnonzero(~late[batch.seqs - ticks.seqs[0]]))

    def _publish_in_parts(
        self, batch: MessageBatch, writer: UpdateWriter, seen_by: Masks | None
    ) -> Iterator[UpdateBatch]:
        """Publish a batch, divided at the steps at which messages expire by a time of their own, or subscriptions."""
        ticks, start = writer.ticks, 0

        def part(stop: int) -> tuple[MessageBatch, Ticks, Masks | None]:
            first, last = np.searchsorted(batch.seqs, (ticks.seqs[start], ticks.seqs[stop - 1] + 1)).tolist()
            seen = None if seen_by is None else seen_by[first:last]
            return batch.slice(first, last), ticks.slice(start, stop), seen

        while start < len(ticks.seqs):
            step, expired = self._next_expiry(ticks, start)
            if step > start:
                rows, own, seen = part(step)
                for found in self._shards.publish(rows, writer._replace(ticks=own), seen):
                    yield found._replace(steps=found.steps + start)
            start = step
            if step < len(ticks.seqs):
                self._shards.forget_expired(ticks, step)
            if len(expired):
                rows, own, seen = part(step + 1)
                yield writer.write_step(step, net_changes(self._step(rows, own, seen, withdrawn=expired)))
                start = step + 1

    @property
    def _next_expiry_us(self) -> int:
        """The next time at which a message may expire by a time of its own, or a subscription."""
        messages = NEVER if self.expiries is None else self.expiries.first_us
        return min(messages, self._shards.next_end_us)

    def _next_expiry(self, ticks: Ticks, start: int) -> tuple[int, Longs]:
        """Return the next step, from `start` on, at which something expires by a time of its own, and which messages.

        Without such a step, the number of steps is returned.
        """
        while self._next_expiry_us <= int(ticks.nows_us[-1]):
            step = int(np.searchsorted(ticks.nows_us, self._next_expiry_us))
            expired = self._expired(ticks.slice(step, step + 1), int(ticks.seqs[start]))
            if len(expired) or self._shards.next_end_us <= int(ticks.nows_us[step]):
                return step, expired
        return len(ticks.seqs), _NONE

    def _expired(self, tick: Ticks, first_seq: int) -> Longs:
        """Return the messages that expire at a step by a time of their own, unless they left everything before.

        The messages from `first_seq` on are not published yet.
        """
        if self.expiries is None:
            return _NONE
        seqs = np.sort(self.expiries.pop(int(tick.nows_us[0])).values)
        return seqs[(seqs >= first_seq) | self._shards.hold(seqs, tick)] if len(seqs) else seqs

    def _step(
        self,
        batch: MessageBatch | None,
        ticks: Ticks,
        seen_by: Masks | None = None,
        *,
        withdrawn: Longs,
    ) -> list[StepChange]:
        """Apply one step part by part, and return all changes: messages expire, others are withdrawn, one arrives.

        Results are filled up from the window as it is at this step, so it advances before messages are withdrawn.
        """
        writer = UpdateWriter(ticks, Form.CHANGES)
        changes: list[StepChange] = joined(self._shards.advance(writer), Form.CHANGES, bodies=False)
        changes += self.withdraw(withdrawn, ticks)
        if batch is not None:
            changes += joined(self._shards.publish(batch, writer, seen_by), Form.CHANGES, bodies=False)
        return changes

    # -- messages that are withdrawn ----------------------------------------------------------------------------

    def retract(self, seqs: Longs, seen_by: SeenBy | None = None) -> list[StepChange]:
        """Withdraw messages at the step of the last one, and return the changes; `seen_by` as in `taken_back`."""
        return self.taken_back(seqs, seen_by) + self.withdraw(seqs, self.now_ticks())

    def taken_back(self, seqs: Longs, seen_by: SeenBy | None = None) -> list[StepChange]:
        """Return the leaves of stateless kinds for messages of the window that are retracted or replaced.

        `seen_by` returns the engines that saw each message, if several did.
        """
        return differences(self._shards.matches(seqs, seen_by)) if len(seqs) else []

    def withdraw(self, seqs: Longs, ticks: Ticks) -> list[StepChange]:
        """Withdraw messages at a step, and return the changes of results."""
        return differences(self._shards.withdraw(seqs, ticks)) if len(seqs) else []

    def seqs_of(self, ids: IdColumn, only: Collection[int] | None = None) -> tuple[Longs, Longs]:
        """Return the messages that have some ids, and one of some seqs: rows of the ids, and seqs."""
        rows, seqs = self._shards.seqs_of(ids)
        if only is None:
            return rows, seqs
        chosen = np.isin(seqs, np.fromiter(only, np.int64, len(only)))
        return rows[chosen], seqs[chosen]

    def seqs_by_id(self, ids: Iterable[Id], only: Collection[int] | None = None) -> dict[Id, list[int]]:
        """Return the seqs of the messages that have some ids, and one of some seqs."""
        column, found = IdColumn.of(list(dict.fromkeys(ids))), dict[Id, list[int]]()
        rows, seqs = self.seqs_of(column, only)
        for row, seq in zip(rows.tolist(), seqs.tolist(), strict=True):
            found.setdefault(column[row], []).append(seq)
        return found
