"""What the replicas of a shard report where another process merges them, see `nearcast.jobs.merge_partition`.

    step     seq | place | now          row     step, event, subscription, score, message
    place    of what happens between two messages: position, time, source, index

The steps of a message have its seq. Whatever happens between two messages has the seq of the last one and a place, by
which all shards agree on its order: the position in the batch of the message before which it happens, its time, its
source, and its index within this source. Within a step a subscription ends before it begins, and messages leave
before others enter.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.engine.distinct_numbers import distinct
from nearcast.model import IdColumn, Subscription, SubscriptionBatch
from nearcast.window import Changes, Results, Ticks

if TYPE_CHECKING:
    from nearcast.engine.message_bodies import MessageBodies
    from nearcast.engine.registry import SubscriptionRegistry

Longs = npt.NDArray[np.int64]

FORGET, END, BEGIN, LEAVE, ENTER = range(5)
"""Events of a subscription or of its result. `END` reports that the result leaves, `FORGET` does not."""
MESSAGE_STEP, EDGE_STEP, OPERATION_STEP, RETRACTION_STEP = range(4)
"""The sources of steps, in their order at equal times."""

STEPS = ("seq", "position", "at_us", "source", "index", "now_us")
"""The columns of steps; sorted by them, steps are in order."""
_SEQ, _NOW = 0, 5


def places_of(positions: Longs, ats_us: Longs, source: int, indices: Longs) -> Longs:
    """Return places between messages, one per row."""
    return np.column_stack([positions, ats_us, np.full(len(positions), source, np.int64), indices])


class ReplicaRows(NamedTuple):
    """Some rows of one kind; the arrays have one item per row, but for steps and names."""

    kind: type[Subscription]
    steps: Longs
    """int64 (n_steps, 6): see `STEPS`."""
    step_rows: Longs
    """The step of each row, as a row of `steps`."""
    names: pa.StringArray
    """Ids of subscriptions."""
    name_rows: Longs
    """The subscription of each row, as a row of `names`."""
    events: npt.NDArray[np.int8]
    scores: npt.NDArray[np.float64]
    seqs: Longs
    """Of a message that enters or leaves, its seq; of a subscription that begins, its row in `begun`."""
    begun: pa.Table | None = None
    """The stored subscriptions that begin."""
    are_parts: bool = False
    """True if other rows may be of the same steps: a message may enter in one part of a step and leave in another."""


class ReplicaMessages(NamedTuple):
    """Messages that have entered results, with repetitions."""

    seqs: Longs
    ids: pa.StringArray
    bodies: pa.ChunkedArray | None


class ReplicaLog:
    """What the replicas of a shard have reported since the last call of `take`."""

    def __init__(self) -> None:
        self._rows: list[ReplicaRows] = []
        self._messages: list[ReplicaMessages] = []
        self._places: Longs | None = None
        self._ids: pa.Array | None = None
        self._tick = 0, 0
        self.bodies: MessageBodies | None = None
        """The bodies of messages, if updates carry them."""

    def take(self) -> tuple[list[ReplicaRows], list[ReplicaMessages]]:
        """Return what was reported, and forget it."""
        taken = self._rows, self._messages
        self._rows, self._messages = [], []
        return taken

    @contextmanager
    def at(self, seq: int, now_us: int, places: Longs, ids: pa.Array | None = None) -> Iterator[None]:
        """Report at a place after a message, or at one for each of some subscriptions, given by id."""
        self._tick, self._places, self._ids = (seq, now_us), places.reshape(-1, 4), ids
        try:
            yield
        finally:
            self._places = self._ids = None

    def here(self, subscriptions: pa.Array) -> Longs:
        """Return the step of each row at the present place."""
        return self.steps(*self._tick, subscriptions)

    def steps(self, seqs: Longs | int, nows_us: Longs | int, subscriptions: pa.Array | Longs) -> Longs:
        """Return the steps of rows, given the tick of each; the subscription counts if places are given by id."""
        made = np.zeros((len(subscriptions), len(STEPS)), np.int64)
        made[:, _SEQ], made[:, _NOW] = seqs, nows_us
        if self._places is None:
            made[:, 1] = -1
        elif self._ids is None:
            made[:, 1:5] = self._places[0]
        else:
            made[:, 1:5] = self._places[IdColumn(subscriptions).positions_in(IdColumn(self._ids))]
        return made

    def begin(self, subscriptions: SubscriptionBatch, steps: Longs, results: Results, rows: Longs) -> None:
        """Report replicas that begin, with their results, given the subscription of each message, by row."""
        kind, ids = subscriptions.kind, subscriptions.ids.strings
        every, events = np.arange(len(ids)), np.full(len(ids), BEGIN, np.int8)
        scores, begun = np.zeros(len(ids)), subscriptions.stored
        self._rows.append(ReplicaRows(kind, steps, every, ids, every, events, scores, every, begun))
        self._add_results(kind, steps, rows, ENTER, ids, rows, results)

    def end(self, kind: type[Subscription], steps: Longs, ids: IdColumn, *, leaves: bool) -> None:
        """Report replicas that end; with `leaves`, their results leave."""
        n = len(ids)
        if n:
            every, events = np.arange(n), np.full(n, END if leaves else FORGET, np.int8)
            scores, seqs = np.zeros(n), np.zeros(n, np.int64)
            self._rows.append(ReplicaRows(kind, steps, every, ids.strings, every, events, scores, seqs))

    def replace(
        self,
        kind: type[Subscription],
        registry: SubscriptionRegistry,
        before: Results,
        after: Results,
        ticks: Ticks | None = None,
    ) -> None:
        """Report results that were computed again at the first of some steps, by default at the present place."""
        for results, event in ((before, LEAVE), (after, ENTER)):
            ids = registry.ids(results.slots).strings
            steps = self.here(ids) if ticks is None else self.steps(ticks.seqs[0], ticks.nows_us[0], ids)
            every = np.arange(len(ids))
            self._add_results(kind, steps, every, event, ids, every, results, are_parts=True)

    def change(
        self,
        kind: type[Subscription],
        registry: SubscriptionRegistry,
        changes: Changes,
        ticks: Ticks,
        *,
        are_parts: bool,
    ) -> None:
        """Report changes of results; `are_parts` if a step may have others."""
        if not len(changes.steps):
            return
        rows = np.arange(len(changes.steps)) if changes.rows is None else changes.rows
        slots, name_rows = distinct(changes.slots)
        names = registry.ids(slots.astype(np.int32)).strings
        ticked, step_rows = distinct(changes.steps)
        if self._ids is None:
            steps = self.steps(ticks.seqs[ticked], ticks.nows_us[ticked], ticked)
        else:  # places are those of subscriptions
            steps = self.steps(
                ticks.seqs[changes.steps], ticks.nows_us[changes.steps], names.take(pa.array(name_rows))
            )
            step_rows = np.arange(len(steps))
        events = np.where(changes.enters, ENTER, LEAVE).astype(np.int8)
        seqs, scores = changes.seqs[rows], changes.scores.copy()
        self._rows.append(
            ReplicaRows(kind, steps, step_rows, names, name_rows, events, scores, seqs, None, are_parts)
        )
        entering, _ = distinct(rows[changes.enters])
        self._mention(changes.seqs[entering], changes.ids.take(entering))

    def _add_results(
        self,
        kind: type[Subscription],
        steps: Longs,
        step_rows: Longs,
        event: int,
        names: pa.Array,
        name_rows: Longs,
        results: Results,
        *,
        are_parts: bool = False,
    ) -> None:
        if len(name_rows):
            events, (scores, seqs) = np.full(len(name_rows), event, np.int8), (results.scores, results.seqs)
            self._rows.append(
                ReplicaRows(kind, steps, step_rows, names, name_rows, events, scores, seqs, None, are_parts)
            )
            if event == ENTER:
                self._mention(results.seqs, results.ids)

    def _mention(self, seqs: Longs, ids: IdColumn) -> None:
        """Note messages that enter results."""
        if len(seqs):
            once, rows = np.unique(seqs, return_index=True)
            bodies = None if self.bodies is None else self.bodies.of(once)
            self._messages.append(ReplicaMessages(once, ids.take(rows).strings, bodies))
