"""What must a shard not forget? Its version and where the bytes are that make the engine of that version.

    snapshot 40        frames 41 .. 47            version 47
    ├ 00000040.engine  ├ 00000041.frames ...      └ the engine after them: rebuilt, or still at `home`

Spark's state store holds the small value `Truth`, with the guarantees of its checkpoints. The bytes are files
(`log`), written before the value is committed: if the batch is then run again, the value is the old one and the files
are written again. Messages leave no trace in an engine without a window whose subscriptions keep nothing; of these
only the times are written, so that it counts on as it did. What follows from that:

- What the value before the last speaks of must stay: a snapshot outlives the next one, and so do the frames since.
- Every value carries a stamp, the hash of all that was written: a batch that is run again gets the same one. Only an
  engine with the committed stamp counts as being in memory; frames that do not lead to that stamp are refused.

How often a snapshot is made: when the frames since the last one are several times as large, or there are too many of
them. A restart does that much again, and writing snapshots costs a small share of writing frames.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import xxhash

from nearcast.engine import Engine
from nearcast.errors import StateError
from nearcast.model import KINDS, ResultPolicy
from nearcast.spark.frame import Frame, pack_frames, unpack_frames
from nearcast.spark.home import Home
from nearcast.spark.job import Job
from nearcast.spark.log import Folder
from nearcast.spark.shard import Counts, apply

TRUTH = (
    "version long, stamp string, messages long, log_bytes long, "
    "snapshot long, snapshot_stamp string, snapshot_bytes long, previous long"
)

LEAST_BYTES = 64 << 20
"""Bytes of frames that are worth a snapshot, however small it is."""
MOST_TIMES = 4
"""How many times larger than the snapshot they may be."""


class Truth(NamedTuple):
    """The state of a shard, as Spark keeps it."""

    version: int = 0
    """How many batches it has seen."""
    stamp: str = ""
    """The hash of their frames, as they were written."""
    messages: int = 0
    """Messages of the stream so far: the base of `seq`."""
    log_bytes: int = 0
    """Bytes of frames since the last snapshot."""
    snapshot: int = 0
    """The version of the last snapshot; 0 for the engine before anything happened."""
    snapshot_stamp: str = ""
    snapshot_bytes: int = 0
    previous: int = 0
    """The version of the snapshot before."""


class ShardState:
    """The state of one shard of one query: an engine of the right version, and what has to be written."""

    def __init__(self, job: Job, folder: Folder, home: Home, shard: int) -> None:
        self._job, self._folder, self._home, self._shard = job, folder, home, shard

    def open(self, truth: Truth) -> Engine:
        """Return the engine that a truth speaks of."""
        engine = self._home.open(truth.stamp)
        return self._rebuild(truth) if engine is None else engine

    def write(self, truth: Truth, frames: Sequence[Frame], engine: Engine) -> Truth:
        """Write the frames that an engine has just carried out; return the truth after them, but for its messages."""
        if not self._keeps_messages(engine):
            frames = [frame.only_counted() for frame in frames]
        packed = pack_frames(sorted(frames, key=lambda frame: frame[:3]))  # a shuffle keeps no order
        written = self._folder.write(self._frames(truth.version + 1), packed)
        return truth._replace(
            version=truth.version + 1,
            stamp=_stamp(truth.stamp, packed),
            log_bytes=truth.log_bytes + written,
        )

    def close(self, truth: Truth, engine: Engine) -> Truth:
        """Keep the engine that a batch left; return the truth, which knows of a snapshot if one was due."""
        due = truth.log_bytes >= max(MOST_TIMES * truth.snapshot_bytes, LEAST_BYTES)
        if due or truth.version - truth.snapshot >= self._job.frames_per_snapshot:
            truth = self._save(truth, engine)
        self._home.seal(engine, truth.stamp)
        return truth

    def _keeps_messages(self, engine: Engine) -> bool:
        """Tell whether the engine would be another one if it had not seen the last messages."""
        held = engine.stats().kinds
        return self._job.window is not None or any(held.get(k.kind) for k in KINDS if k.keeps is not ResultPolicy.MATCHES)

    def _save(self, truth: Truth, engine: Engine) -> Truth:
        with _local_folder() as local:
            engine.save(local / "engine")
            size = self._folder.write_tree(self._engine(truth.version), local / "engine")
        # The batch may be run again, from the truth before it: that one needs the last snapshot and the frames since.
        forgotten = [self._frames(version) for version in range(truth.previous + 1, truth.snapshot + 1)]
        self._folder.remove([self._engine(truth.previous), *forgotten])
        return truth._replace(
            log_bytes=0,
            snapshot=truth.version,
            snapshot_stamp=truth.stamp,
            snapshot_bytes=size,
            previous=truth.snapshot,
        )

    def _rebuild(self, truth: Truth) -> Engine:
        self._folder.claim(self._job.terms)
        stamp = truth.snapshot_stamp
        if truth.snapshot:
            with _local_folder() as local:
                self._folder.read_tree(self._engine(truth.snapshot), local / "engine")
                engine = self._home.load(local / "engine")
        else:
            engine = self._home.new()
        for version in range(truth.snapshot + 1, truth.version + 1):
            packed = self._folder.read(self._frames(version))
            stamp = _stamp(stamp, packed)
            for _ in apply(engine, unpack_frames(packed), shard=self._shard, job=self._job, counts=Counts()):
                pass  # told when the batch was first run
        if stamp != truth.stamp or engine.stats().messages != truth.messages:
            where = f"state of shard {self._shard} in {self._folder.path}"
            raise StateError(
                f"frames must lead to stamp {truth.stamp} of version {truth.version}; got {stamp} ({where})"
            )
        return engine

    def _frames(self, version: int) -> str:
        return f"{self._shard}/{version:08d}.frames"

    def _engine(self, version: int) -> str:
        return f"{self._shard}/{version:08d}.engine"


def _stamp(before: str, packed: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(before.encode() + b"\n" + packed)


@contextmanager
def _local_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="nearcast-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
