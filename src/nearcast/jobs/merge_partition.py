"""A partition of the merge stage: the merged results of some subscriptions, whose replicas live in several shards.

    shard 0 ── what its replicas hold, and how that changes ──┐
    shard 1 ── ...                                            ├── by step ── k best of all ── updates
    shard n ── ...                                            ┘

Shards agree on the steps, so the changes of all replicas at one step are applied together, and the difference that
they make is what one engine reports at that step. A subscription that is replaced within a batch has several
versions, each with a slot of its own; changes belong to the version that is in force at their step. The version that
ends leaves with the result that it then has, and what it shares with the result of the next one is left out.

When an epoch begins, all replicas report what they hold, which replaces what was known of them. Merged results do not
depend on how replicas share the messages; those that do not follow from a window are kept here.

A partition lives in memory or in a folder, as the engine of a shard does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast._jit import Arena
from nearcast.engine._kernels import merger as kernels
from nearcast.engine.config import EngineConfig
from nearcast.engine.folder import EngineFolder, Sealed
from nearcast.engine.groups import group, write_groups
from nearcast.engine.message_bodies import MessageBodies
from nearcast.engine.replica_log import BEGIN, END, ENTER, LEAVE, STEPS, ReplicaMessages, ReplicaRows
from nearcast.engine.result_merger import ResultMerger
from nearcast.errors import StateError
from nearcast.jobs.frame import Frame
from nearcast.jobs.replica_frames import REPLICAS, ReplicaChanges, ReplicaColumns
from nearcast.model import ENTER as ENTERS
from nearcast.model import LEAVE as LEAVES
from nearcast.model import NO_TIME, IdColumn, Subscription, SubscriptionBatch, find_kind
from nearcast.model.columns import BODY, TIMESTAMP, one_array, updates_schema
from nearcast.window import Changes, Results, Ticks

Longs = npt.NDArray[np.int64]
Slots = npt.NDArray[np.int32]

_UPDATES_PER_TABLE = 1 << 18
_FILE = "replicas"


class MergePartition:
    """The merged results of some subscriptions.

    Its methods are those of the engine of a shard, as far as `LocalEngineCache` and `LoggedState` need them.
    """

    _folder: EngineFolder | None = None

    def __init__(self, config: EngineConfig, folder: EngineFolder | None = None) -> None:
        self._config, self._folder = config, folder
        self._mergers: dict[str, ResultMerger] = {}
        self._bodies = MessageBodies(Arena() if folder is None else folder.message_arena())

    # -- as the engine of a shard -----------------------------------------------------------------------------------

    @classmethod
    def create(cls, config: EngineConfig, *, folder: str | PathLike[str] | None = None) -> MergePartition:
        """Return a partition without subscriptions, in memory or in a folder whose content is replaced."""
        if folder is None:
            return cls(config)
        place = EngineFolder(folder)
        place.clear()
        return cls(config, place)

    @classmethod
    def attach(cls, folder: str | PathLike[str], mark: str, config: EngineConfig) -> MergePartition:
        """Return the partition that was sealed with a mark in a folder."""
        place = EngineFolder(folder)
        place.open(mark)
        partition = cls(config, place)
        for kind in place.kinds(0):
            partition._merger(find_kind(kind))
        return partition

    @classmethod
    def load(
        cls, path: str | PathLike[str], *, config: EngineConfig, folder: str | PathLike[str] | None = None
    ) -> MergePartition:
        """Return a saved partition that continues in memory or in a folder, whose content is replaced."""
        partition = cls.create(config, folder=folder)
        if packed := (Path(path) / _FILE).read_bytes():
            partition._fill(ReplicaChanges.unpack(packed))
        return partition

    def save(self, path: str | PathLike[str]) -> None:
        """Write all replicas with what they hold to a folder."""
        Path(path).mkdir(parents=True, exist_ok=True)
        rows, messages = list[ReplicaRows](), list[ReplicaMessages]()
        for merger in self._mergers.values():
            _report(merger, self._bodies, rows, messages)
        packed = ReplicaChanges.of(rows, messages).packed() if rows else b""
        (Path(path) / _FILE).write_bytes(packed)

    def seal(self, mark: str) -> None:
        """Leave the partition to the process that attaches it next."""
        if self._folder is not None:
            self._folder.seal(mark, Sealed({}, {}))

    def is_sealed(self, mark: str) -> bool:
        """Return whether no other process has changed the partition since it was sealed with a mark."""
        return self._folder is not None and self._folder.is_sealed(mark)

    def __len__(self) -> int:
        return sum(map(len, self._mergers.values()))

    # -- a batch ----------------------------------------------------------------------------------------------------

    def apply(self, frames: Sequence[Frame]) -> Iterator[pa.Table]:
        """Apply what replicas report in a batch, in any order, and yield groups of updates."""
        if not frames:
            return
        if self._folder is not None:
            self._folder.break_seal()
        held = [frame for frame in frames if frame.source == REPLICAS]
        if held:
            for merger in self._mergers.values():
                merger.reset()
            self._fill(ReplicaChanges.joined([ReplicaChanges.unpack(frame.payload) for frame in held]))
        parts = [ReplicaChanges.unpack(frame.payload) for frame in frames if frame.source != REPLICAS]
        if parts:
            yield from self._merged(ReplicaChanges.joined(parts))

    def _merged(self, changes: ReplicaChanges) -> Iterator[pa.Table]:
        steps = {name: changes.steps[name].to_numpy() for name in STEPS}
        ticks = Ticks(steps["seq"], steps["now_us"], steps["now_us"])
        ids = self._remember(changes.messages)
        found, ended = [], list[tuple[ResultMerger, Slots]]()
        for number, kind in enumerate(changes.kinds):
            merger = self._merger(find_kind(kind))
            rows = changes.rows if len(changes.kinds) == 1 else changes.rows.take(changes.rows.kinds == number)
            versions = _BatchVersions(merger, rows, changes, kind, self._config)
            merger.remember(ids.seqs, IdColumn(ids.ids))
            found.append((merger, merger.merge_slots([versions.changes()], ticks)))
            if len(versions.ended):
                found.append((merger, versions.leaves()))
                ended.append((merger, versions.ended))
        are_between = steps["position"] >= 0
        if len(found) == 1 and not are_between.any():
            yield from self._in_order(*found[0], ticks)
        else:
            yield from self._together([_flat(merger, some) for merger, some in found], are_between, ticks)
        for merger, slots in ended:
            merger.forget(slots)
        if self._config.bodies and self._bodies.may_be_dropped:
            self._bodies.keep(np.unique(np.concatenate([m.held_seqs() for m in self._mergers.values()])))

    def _in_order(self, merger: ResultMerger, changes: Changes, ticks: Ticks) -> Iterator[pa.Table]:
        """Yield the changes of one kind that messages cause as updates, in their order."""
        rows = np.arange(len(changes.steps)) if changes.rows is None else changes.rows
        order = np.argsort((changes.steps << 1 | changes.enters) * np.int64(len(changes.seqs)) + rows, kind="stable")
        bodies = self._bodies if self._config.bodies else None
        for start in range(0, len(order), _UPDATES_PER_TABLE):
            some = order[start : start + _UPDATES_PER_TABLE]
            part = changes._replace(
                steps=changes.steps[some],
                slots=changes.slots[some],
                enters=changes.enters[some],
                scores=changes.scores[some],
                rows=rows[some],
            )
            yield write_groups(merger.registry, part, ticks, bodies)[1].combine_chunks()

    def _together(
        self, found: list[pa.Table], are_between: npt.NDArray[np.bool_], ticks: Ticks
    ) -> Iterator[pa.Table]:
        """Yield changes of several kinds as updates, of which some may cancel out."""
        updates = _net(pa.concat_tables(found).combine_chunks(), are_between)
        for start in range(0, len(updates), _UPDATES_PER_TABLE):
            yield group(self._written(updates.slice(start, _UPDATES_PER_TABLE), ticks))

    def _remember(self, messages: pa.Table) -> IdsBySeq:
        seqs = messages["seq"].to_numpy()
        if self._config.bodies:
            self._bodies.add(seqs, one_array(messages["body"]))
        return IdsBySeq(seqs, one_array(messages["message"]))

    def _written(self, flat: pa.Table, ticks: Ticks) -> pa.Table:
        """Return changes as updates."""
        steps, enters = flat["step"].to_numpy(), flat["enters"]
        nows = ticks.nows_us[steps]
        columns = {
            "seq": pa.array(ticks.seqs[steps]),
            "at": pa.array(nows, mask=nows == NO_TIME).cast(TIMESTAMP),
            "change": pc.if_else(enters, ENTERS, LEAVES),
        }
        if self._config.bodies:
            columns[BODY.name] = self._bodies.of(np.where(enters.to_numpy(), flat["of"].to_numpy(), 0))
        schema = updates_schema(bodies=self._config.bodies)
        return pa.table(
            {name: columns[name] if name in columns else flat[name] for name in schema.names}, schema=schema
        )

    def _fill(self, held: ReplicaChanges) -> None:
        """Add replicas with what they hold, to subscriptions that may be known."""
        ids = self._remember(held.messages)
        for kind, begun in held.begun.items():
            merger, rows = self._merger(find_kind(kind)), held.rows.take(held.rows.kinds == held.kinds.index(kind))
            codes, events, places = rows.names, rows.events, rows.seqs
            begins = np.flatnonzero(events == BEGIN)
            known, first, n_replicas = np.unique(codes[begins], return_index=True, return_counts=True)
            subscriptions = SubscriptionBatch(
                merger.kind, begun.take(pa.array(places[begins][first])), self._config.scoring
            )
            slots = merger.registry.find(subscriptions.ids)
            new = np.flatnonzero(slots < 0)
            if len(new):
                slots[new] = merger.allocate(subscriptions.take(new), np.zeros(len(new), np.int64))
            merger.make_room(slots, subscriptions.footprints.ks, n_replicas)
            slot_of = np.zeros(len(held.names), np.int32)
            slot_of[known] = slots
            enters = np.flatnonzero(events == ENTER)
            seqs = places[enters]
            merger.hold(Results(slot_of[codes[enters]], seqs, rows.scores[enters], ids.of(seqs)))

    def _merger(self, kind: type[Subscription]) -> ResultMerger:
        if kind.kind not in self._mergers:
            arena = Arena() if self._folder is None else self._folder.arena(0, kind.kind)
            self._mergers[kind.kind] = ResultMerger(kind, self._config.scoring, 1, arena=arena)
        return self._mergers[kind.kind]


class IdsBySeq(NamedTuple):
    """The ids of messages, by ascending seq."""

    seqs: Longs
    ids: pa.StringArray

    def of(self, seqs: Longs) -> IdColumn:
        """Return the ids of messages; any id for one that is not here."""
        rows = np.minimum(np.searchsorted(self.seqs, seqs), max(len(self.seqs) - 1, 0))
        return (
            IdColumn(self.ids.take(pa.array(rows))) if len(self.seqs) else IdColumn(pa.nulls(len(seqs), pa.string()))
        )


class _BatchVersions:
    """The subscriptions of one kind in one batch: those that were there, and one version for each that begins."""

    def __init__(
        self, merger: ResultMerger, rows: ReplicaColumns, changes: ReplicaChanges, kind: str, config: EngineConfig
    ) -> None:
        """Add the versions of a kind that begin to a merger."""
        self._merger, self._rows, self._names = merger, rows, changes.names
        self._existing = merger.registry.find(IdColumn(changes.names))
        begins = np.flatnonzero(rows.events == BEGIN)
        self._begun, first, n_replicas = np.unique(self._keys(begins), return_index=True, return_counts=True)
        self._slots: Slots = np.zeros(0, np.int32)
        if len(begins):
            stored = changes.begun[kind].take(pa.array(rows.seqs[begins][first]))
            subscriptions = SubscriptionBatch(merger.kind, stored, config.scoring)
            seqs = changes.steps["seq"].to_numpy()
            self._slots = merger.allocate(subscriptions, seqs[rows.steps[begins][first]])
            merger.make_room(self._slots, subscriptions.footprints.ks, n_replicas)
        self._find_ends()

    def _keys(self, rows: Longs) -> Longs:
        """Return numbers by which rows are in order: by subscription, and then by step."""
        keys: Longs = self._rows.names[rows].astype(np.int64) << 32 | self._rows.steps[rows]
        return keys

    def _find_ends(self) -> None:
        """Find the versions that end, and the step of each that reports it."""
        ends = np.flatnonzero(self._rows.events < BEGIN)
        slots, first = np.unique(self._in_force(ends, before=True), return_index=True)
        known = slots >= 0
        self.ended: Slots = slots[known]
        """The versions that end."""
        self._ends = ends[first[known]]

    def _in_force(self, rows: Longs, *, before: bool = False) -> Slots:
        """Return the version to which rows belong: that at their step, or before it."""
        slots: Slots = self._existing[self._rows.names[rows]]
        if not len(self._begun):
            return slots
        at = np.searchsorted(self._begun, self._keys(rows), side="left" if before else "right") - 1
        here = np.flatnonzero(at >= 0)
        here = here[self._begun[at[here]] >> 32 == self._rows.names[rows[here]]]
        slots[here] = self._slots[at[here]]
        return slots

    def changes(self) -> kernels.Deltas:
        """Return what enters and leaves the results of replicas."""
        rows = np.flatnonzero(self._rows.events >= LEAVE)
        slots, changed = self._in_force(rows), self._rows.take(rows)
        if (slots < 0).any():
            unknown = self._names[int(changed.names[int(np.argmax(slots < 0))])]
            raise StateError(f"replicas must report subscriptions that have begun; got {unknown.as_py()!r}")
        enters = changed.events == ENTER
        return kernels.Deltas(changed.steps.astype(np.int64), slots, enters, changed.scores, changed.seqs)

    def leaves(self) -> Changes:
        """Return what leaves with the versions that end and report it, once all changes are merged."""
        is_reported = self._rows.events[self._ends] == END
        slots, steps = self.ended[is_reported], self._rows.steps[self._ends[is_reported]]
        (results,) = self._merger.held(slots)
        step_of = np.zeros(int(slots.max(initial=-1)) + 1, np.int64)
        step_of[slots] = steps
        n = len(results.slots)
        return Changes(
            step_of[results.slots], results.slots, np.zeros(n, np.bool_), results.scores, results.ids, results.seqs,
            None, 0,
        )  # fmt: skip


def _codes(column: pa.ChunkedArray) -> tuple[pa.StringArray, Longs]:
    """Return the distinct strings of a column, and the number of each row's."""
    encoded = one_array(column).dictionary_encode()
    return encoded.dictionary, encoded.indices.to_numpy().astype(np.int64)


def _flat(merger: ResultMerger, changes: Changes) -> pa.Table:
    """Return changes as rows: step, subscription, message, seq and score of it, and whether it enters."""
    rows = np.arange(len(changes.steps)) if changes.rows is None else changes.rows
    return pa.table(
        {
            "step": changes.steps,
            "subscription": merger.registry.ids(changes.slots).strings,
            "message": changes.ids.strings.take(pa.array(rows)),
            "of": changes.seqs[rows],
            "score": changes.scores,
            "enters": np.asarray(changes.enters),
        }
    )


def _net(flat: pa.Table, are_between: npt.NDArray[np.bool_]) -> pa.Table:
    """Return changes without those that cancel out, by step, leaves first, and those of one message together.

    A message that leaves and enters the result of a subscription at one step does neither. That happens only between
    two messages, where a subscription is replaced or the scores of its result change.
    """
    steps, seqs, enters = (flat[name].to_numpy() for name in ("step", "of", "enters"))
    rows = np.flatnonzero(are_between[steps])
    cancels = np.zeros(len(flat), np.bool_)
    if len(rows):
        _, codes = _codes(flat["subscription"].take(pa.array(rows)))
        order = np.lexsort((seqs[rows], codes, steps[rows]))
        key = np.stack([seqs[rows], codes, steps[rows]])[:, order]
        same = (key[:, 1:] == key[:, :-1]).all(axis=0)
        cancels[rows[order[1:][same]]] = cancels[rows[order[:-1][same]]] = True
    chosen = np.flatnonzero(~cancels)
    order = np.lexsort((seqs[chosen], steps[chosen] * 2 + enters[chosen]))
    return flat.take(pa.array(chosen[order]))


def _report(
    merger: ResultMerger, bodies: MessageBodies, rows: list[ReplicaRows], messages: list[ReplicaMessages]
) -> None:
    """Add all replicas of a merger with what they hold."""
    slots = merger.registry.taken()
    if not len(slots):
        return
    n_replicas, held = merger.held_by_replicas(slots)
    ids = merger.registry.ids(slots).strings
    for places, event, scores, seqs, begun in (
        (np.repeat(np.arange(len(slots)), n_replicas), BEGIN, None, None, merger.registry.rows(slots)),
        (np.searchsorted(slots, held.slots), ENTER, held.scores, held.seqs, None),
    ):
        n = len(places)
        steps, events = np.zeros((1, len(STEPS)), np.int64), np.full(n, event, np.int8)
        scores, seqs = np.zeros(n) if scores is None else scores, places if seqs is None else seqs
        rows.append(ReplicaRows(merger.kind, steps, np.zeros(n, np.int64), ids, places, events, scores, seqs, begun))
    once, first = np.unique(held.seqs, return_index=True)
    messages.append(ReplicaMessages(once, held.ids.take(first).strings, bodies.of(once)))
