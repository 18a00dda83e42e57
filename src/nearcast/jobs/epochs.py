"""Epochs: routings with a number. A job begins with epoch 0; another number of shards or another routing is the next.

    <state>/epochs/00000001.json         number of shards and tasks, written by the driver
    <state>/epochs/00000001.routing      the fitted routing, if it has one
    <state>/epochs/00000001.adjustment   the decision that led to it from the epoch before, see `balancer`
    <state>/<query>/moves/00000001/...   what moves to the shards of epoch 1, and which shards have written it

An epoch waits until every shard of the one before has written, at the end of the same batch, what moves. It is in
force from the next batch on. All files that decide this are older than the batch, so all tasks agree, and so does a
replay: one of the batch that wrote the files still belongs to the epoch before. Nothing has to be stopped or counted
in advance.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from nearcast.jobs.folder import Folder
from nearcast.partition.balance.adjustment import Adjustment
from nearcast.partition.balance.steps import Retire

_FOLDER = "epochs"
_ADJUSTMENT = "adjustment"
_FILE = re.compile(r"(\d{8})\.json")
_DONE = re.compile(r"(\d{8})\.(\d+)\.done")


@dataclass(frozen=True)
class Epoch:
    """A routing with a number."""

    number: int
    shards: int
    tasks: int
    """The number of Spark tasks that shards are divided among; Spark fixes it for the life of a checkpoint."""
    requested: int
    """The number of shards that the job was started with: a restart with the same one keeps this epoch."""
    partitioner: str = "hash"
    """Its name, which is the same in all epochs of a job."""
    routing: bytes | None = None
    """The fitted routing, see `nearcast.partition.serialization`; None for a partitioner that needs no sample."""
    origin: str = ""
    """A digest of the routing that was given or fitted, from which adjustments led to this one."""
    action: str = ""
    """What the adjustment does that led to this epoch, see `Adjustment.action`; empty if none did."""


class EpochLog:
    """The epochs of a job, in the folder of its state; only the driver adds some.

    >>> from tempfile import mkdtemp
    >>> log = EpochLog(mkdtemp())
    >>> log.newest() is None
    True
    >>> log.add(shards=2, tasks=4).number, log.add(shards=3, tasks=4, requested=2).number
    (0, 1)
    >>> log.newest()
    Epoch(number=1, shards=3, tasks=4, requested=2, partitioner='hash', routing=None, origin='', action='')
    """

    def __init__(self, state: str) -> None:
        self._folder = Folder(state)
        self._read: dict[int, Epoch] = {}
        self._adjustments: dict[int, Adjustment] = {}

    def newest_number(self) -> int:
        """Return the number of the newest epoch; -1 if there is none."""
        names = map(_FILE.fullmatch, self._folder.names(_FOLDER))
        return max((int(name[1]) for name in names if name is not None), default=-1)

    def newest(self) -> Epoch | None:
        """Return the newest epoch, which may wait."""
        number = self.newest_number()
        return None if number < 0 else self.read(number)

    def read(self, number: int) -> Epoch:
        """Return an epoch; it never changes."""
        if number not in self._read:
            content = json.loads(self._folder.read(_name(number, "json")))
            has_routing = content.pop("has_routing")
            routing = self._folder.read(_name(number, "routing")) if has_routing else None
            self._read[number] = Epoch(number, **content, routing=routing)
        return self._read[number]

    def add(
        self,
        *,
        shards: int,
        tasks: int,
        requested: int | None = None,
        partitioner: str = "hash",
        routing: bytes | None = None,
    ) -> Epoch:
        """Add an epoch, which waits for its turn; `requested` is the number of shards itself unless it is given."""
        wanted = shards if requested is None else requested
        number, origin = self.newest_number() + 1, "" if routing is None else origin_of(routing)
        return self._write(Epoch(number, shards, tasks, wanted, partitioner, routing, origin))

    def add_adjusted(self, before: Epoch, routing: bytes, adjustment: Adjustment) -> Epoch:
        """Add an epoch that differs from the one before by an adjustment of its routing."""
        epoch = replace(before, number=before.number + 1, routing=routing, action=adjustment.action)
        self._folder.write(_name(epoch.number, _ADJUSTMENT), adjustment.to_json().encode())
        return self._write(epoch)

    def adjustment(self, number: int) -> Adjustment | None:
        """Return the decision that led to an epoch, if one did."""
        if number not in self._adjustments:
            if self._folder.size(_name(number, _ADJUSTMENT)) is None:
                return None
            self._adjustments[number] = Adjustment.from_json(self._folder.read(_name(number, _ADJUSTMENT)))
        return self._adjustments[number]

    def adjustments(self) -> dict[int, Adjustment]:
        """Return all decisions, by the number of the epoch that each led to."""
        found = {number: self.adjustment(number) for number in range(1, self.newest_number() + 1)}
        return {number: one for number, one in found.items() if one is not None}

    def _write(self, epoch: Epoch) -> Epoch:
        content = asdict(epoch)
        number, routing = content.pop("number"), content.pop("routing")
        if routing is not None:
            self._folder.write(_name(number, "routing"), routing)
        content["has_routing"] = routing is not None
        self._folder.write(_name(number, "json"), json.dumps(content).encode())
        return epoch


class InForce(NamedTuple):
    """The epoch of a batch."""

    number: int
    exported: int = -1
    """The batch at whose end the shards before wrote what moves; -1 for the first epoch."""
    is_ending: bool = False
    """True if another epoch waits: shards write what moves at the end of this batch."""


class QueryEpochs:
    """The epochs of one query: which one is in force for a batch."""

    def __init__(self, state: str, query: str) -> None:
        self.log = EpochLog(state)
        self._folder = Folder(f"{state}/{query}")
        self._exported: list[int] = [-1]
        """The batch after which each epoch began, as far as it has."""
        self._seqs: dict[int, int] = {0: 0}

    def in_force(self, batch: int) -> InForce:
        """Return the epoch of a batch, given that all batches before it are committed."""
        newest = self.log.newest_number()
        while len(self._exported) <= newest:
            exported = self._complete(len(self._exported), before=batch)
            if exported is None:
                break
            self._exported.append(exported)
        number = len(self._exported) - 1
        while number and self._exported[number] >= batch:  # a replay of the batch that wrote what moves
            number -= 1
        return InForce(number, self._exported[number], is_ending=number < newest)

    def since(self, number: int, *, seq: int | None = None) -> int:
        """Return the step that divides old from new subscriptions, in a transition or when one ends.

        `seq` is the number of messages so far if the epoch has not begun yet.
        """
        if self.log.read(number).action == Retire.name:
            return self._began(number - 1)
        return self._began(number) if seq is None else seq

    def _began(self, number: int) -> int:
        """Return the number of messages of the stream when an epoch began; all shards count the same."""
        if number not in self._seqs:
            done = self._folder.read(done_name(number, self._exported[number], 0))
            self._seqs[number] = int(json.loads(done)["seq"])
        return self._seqs[number]

    def _complete(self, number: int, *, before: int) -> int | None:
        """Return the first batch at whose end all shards of the epoch before have written what moves to an epoch."""
        shards_of: dict[int, set[int]] = {}
        for name in self._folder.names(moves_folder(number)):
            if (done := _DONE.fullmatch(name)) is not None and int(done[1]) < before:
                shards_of.setdefault(int(done[1]), set()).add(int(done[2]))
        shards = set(range(self.log.read(number - 1).shards))
        return min((batch for batch, written in shards_of.items() if written >= shards), default=None)


@lru_cache(maxsize=8)
def epochs_of(state: str, query: str) -> QueryEpochs:
    """Return the epochs of a query, the same object every time: it remembers what it has read."""
    return QueryEpochs(state, query)


def origin_of(routing: bytes) -> str:
    """Return the digest of a routing that was given or fitted."""
    return hashlib.blake2b(routing, digest_size=16).hexdigest()


def moves_folder(number: int) -> str:
    """Return the folder, within that of a query, of what moves to an epoch."""
    return f"moves/{number:08d}"


def done_name(number: int, batch: int, shard: int) -> str:
    """Return the name of the file that says that a shard has written what moves, at the end of a batch."""
    return f"{moves_folder(number)}/{batch:08d}.{shard}.done"


def _name(number: int, what: str) -> str:
    return f"{_FOLDER}/{number:08d}.{what}"
