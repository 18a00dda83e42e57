"""The state of a shard: its version, and the files that restore the engine of that version.

    snapshot 40                frames 41 .. 47                    version 47
    ├ 00000040-<token>.engine  ├ 00000041-<token>.frames ...      └ the engine after them: rebuilt, or still cached

Spark's state store holds the small value `ShardManifest`, with the guarantees of its checkpoints. The bytes are files
(see `folder`), written before the value is committed. Messages leave no trace in an engine without a window whose
subscriptions are stateless; then only their times are written, so that counters stay right. Three rules follow:

- Every attempt at a batch writes files under new names, and the value names those that it consists of. An attempt
  that was abandoned and still runs can therefore change nothing that is committed.
- Every value carries a stamp, the hash of everything written: a replayed batch gets the same stamp. Only an engine
  with the committed stamp counts as cached; frames that do not lead to that stamp are refused.
- A new snapshot removes what was written before the last one, by any attempt. The files since then stay: the value
  before this one needs them, and so does any other attempt at these versions.

A snapshot is due when the frames since the last one are several times as large, or too many. A restart replays at
most that, and writing snapshots costs a small share of writing frames.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import pyarrow as pa
import xxhash

from nearcast.engine.shard_engine import ShardEngine
from nearcast.errors import StateError
from nearcast.jobs.block_files import BlockFiles
from nearcast.jobs.engine_cache import Cached, LocalEngineCache
from nearcast.jobs.folder import Folder
from nearcast.jobs.frame import Frame, epoch_of, pack_frames, unpack_frames
from nearcast.jobs.job import Job
from nearcast.jobs.shard import ShardCounts, apply
from nearcast.jobs.temporary_folder import temporary_folder
from nearcast.model import kinds

if TYPE_CHECKING:
    from nearcast.jobs.merge_partition import MergePartition

MANIFEST = (
    "version long, stamp string, messages long, log_bytes long, frames array<string>, "
    "snapshot string, snapshot_stamp string, snapshot_bytes long, epoch int, snapshot_batch long"
)

MIN_BYTES = 64 << 20
"""Bytes of frames that justify a snapshot of any size."""
MAX_TIMES = 4
"""How many times larger than the snapshot the frames may get."""

_FILE = re.compile(r"\.?(\d{8,})-[0-9a-f]+\.(frames|engine)")
"""The beginning of the name of a file, or of an unfinished one."""


class ShardManifest(NamedTuple):
    """The state of a shard in Spark's state store."""

    version: int = 0
    """Number of batches applied."""
    stamp: str = ""
    """The hash of their frames."""
    messages: int = 0
    """Messages of the stream so far: the base of `seq`."""
    log_bytes: int = 0
    """Bytes of frames since the last snapshot."""
    frames: Sequence[str] = ()
    """The files of frames since the last snapshot, one per version."""
    snapshot: str = ""
    """The file of the last snapshot; none for the empty engine."""
    snapshot_stamp: str = ""
    snapshot_bytes: int = 0
    epoch: int = 0
    """The epoch of the last batch, see `epochs`."""
    snapshot_batch: int = -1
    """The batch of the last snapshot; blocks of later ones are still needed, see `block_files`."""

    @property
    def snapshot_version(self) -> int:
        """The version of the last snapshot; 0 for the empty engine."""
        return self.version - len(self.frames)


C = TypeVar("C", bound=Cached)


class LoggedState(Generic[C]):
    """The state of one part of one query: what its frames lead to at a version, and its files."""

    def __init__(self, job: Job, folder: Folder, cache: LocalEngineCache[C], place: str) -> None:
        """`place` is the folder of the files within that of the query."""
        self._job, self._folder, self._engine_cache, self._place = job, folder, cache, place

    def open(self, manifest: ShardManifest) -> C:
        """Return what a manifest stands for."""
        cached = self._engine_cache.open(manifest.stamp)
        return self._rebuild(manifest) if cached is None else cached

    def _write(self, manifest: ShardManifest, frames: Sequence[Frame], *, referred: int = 0) -> ShardManifest:
        """Write frames; return the next manifest, given the bytes that they refer to."""
        packed = pack_frames(sorted(frames, key=lambda frame: frame[:3]))  # a shuffle keeps no order
        name = _new_name(manifest.version + 1, "frames")
        written = self._folder.write(self._at(name), packed)
        return manifest._replace(
            version=manifest.version + 1,
            stamp=_stamp(manifest.stamp, packed),
            epoch=epoch_of(frames),
            log_bytes=manifest.log_bytes + written + referred,
            frames=[*manifest.frames, name],
        )

    def close(self, manifest: ShardManifest, owner: C, *, batch: int = 0) -> ShardManifest:
        """Cache what a batch led to; return the manifest, with a snapshot if one was due."""
        due = manifest.log_bytes >= max(MAX_TIMES * manifest.snapshot_bytes, MIN_BYTES)
        if due or len(manifest.frames) >= self._job.batches_per_snapshot:
            manifest = self._save(manifest, owner, batch)
        self._engine_cache.seal(owner, manifest.stamp)
        return manifest

    def _save(self, manifest: ShardManifest, owner: C, batch: int) -> ShardManifest:
        name = _new_name(manifest.version, "engine")
        with temporary_folder() as local:
            owner.save(local / "engine")
            size = self._folder.write_tree(self._at(name), local / "engine")
        self._sweep(manifest.snapshot_version)
        return manifest._replace(
            log_bytes=0,
            frames=[],
            snapshot=name,
            snapshot_stamp=manifest.stamp,
            snapshot_bytes=size,
            snapshot_batch=batch,
        )

    def _sweep(self, last: int) -> None:
        """Remove the files that a snapshot, the last one, has replaced, whichever attempt wrote them."""
        for name in self._folder.names(self._place):
            if (file := _FILE.match(name)) is None:
                continue
            version, what = int(file[1]), file[2]
            if version < last or (version == last and what == "frames"):
                self._folder.remove([self._at(name)])

    def _rebuild(self, manifest: ShardManifest) -> C:
        self._folder.claim(self._job.fixed_settings)
        stamp = manifest.snapshot_stamp
        if manifest.snapshot:
            with temporary_folder() as local:
                self._folder.read_tree(self._at(manifest.snapshot), local / "engine")
                owner = self._engine_cache.load(local / "engine")
        else:
            owner = self._engine_cache.new()
        for name in manifest.frames:
            packed = self._folder.read(self._at(name))
            stamp, frames = _stamp(stamp, packed), unpack_frames(packed)
            for _ in self._replay(owner, frames):
                pass  # its updates were returned by the first run of the batch
        if stamp != manifest.stamp or not self._agrees(owner, manifest):
            where = f"state of shard {self._place} in {self._folder.path}"
            raise StateError(
                f"frames must lead to stamp {manifest.stamp} of version {manifest.version}; got {stamp} ({where})"
            )
        return owner

    def _replay(self, owner: C, frames: Sequence[Frame]) -> Iterable[pa.Table]:
        raise NotImplementedError

    def _agrees(self, owner: C, manifest: ShardManifest) -> bool:
        """Return whether what was rebuilt has the counts of a manifest."""
        return True

    def _at(self, name: str) -> str:
        return f"{self._place}/{name}"


class ShardState(LoggedState[ShardEngine]):
    """The state of one shard of one query: the engine of a version, and its files."""

    def __init__(
        self,
        job: Job,
        folder: Folder,
        engine_cache: LocalEngineCache[ShardEngine],
        shard: int,
        job_of: Callable[[int], Job] | None = None,
    ) -> None:
        """`job_of` returns the job of an epoch, if there are several."""
        super().__init__(job, folder, engine_cache, str(shard))
        self._shard, self._job_of = shard, job_of or (lambda _: job)
        self._blocks = BlockFiles(folder)

    def write(self, manifest: ShardManifest, frames: Sequence[Frame], engine: ShardEngine) -> ShardManifest:
        """Write the frames that an engine has applied; return the next manifest, its message count apart."""
        if not self._keeps_messages(engine):
            frames = [self._blocks.read(frame).only_counted() for frame in frames]
        referred = sum(self._blocks.size(frame) for frame in frames)  # a restart reads them too
        return self._write(manifest, frames, referred=referred)

    def _keeps_messages(self, engine: ShardEngine) -> bool:
        """Return whether the last messages changed the engine."""
        counts_by_kind = engine.stats().kinds
        return self._job.config.window is not None or any(
            counts_by_kind.get(k.kind) for k in kinds() if k.result_policy.is_stateful
        )

    def _save(self, manifest: ShardManifest, owner: ShardEngine, batch: int) -> ShardManifest:
        after = super()._save(manifest, owner, batch)
        self._blocks.release(self._shard, manifest.snapshot_batch + 1)
        if self._shard == 0:
            self._blocks.remove_unneeded(self._job.shards)
        return after

    def _replay(self, owner: ShardEngine, frames: Sequence[Frame]) -> Iterable[pa.Table]:
        job = self._job_of(epoch_of(frames))
        return apply(owner, map(self._blocks.read, frames), shard=self._shard, job=job, counts=ShardCounts())

    def _agrees(self, owner: ShardEngine, manifest: ShardManifest) -> bool:
        return owner.stats().messages == manifest.messages


class MergeState(LoggedState["MergePartition"]):
    """The state of one partition of the merge stage of one query."""

    def __init__(self, job: Job, folder: Folder, cache: LocalEngineCache[MergePartition], partition: int) -> None:
        super().__init__(job, folder, cache, f"merge/{partition}")
        self.blocks = BlockFiles.of_partition(folder, partition)

    def write(self, manifest: ShardManifest, frames: Sequence[Frame]) -> ShardManifest:
        """Write the frames that a partition has applied; return the next manifest."""
        return self._write(manifest, frames, referred=sum(map(self.blocks.size, frames)))

    def _save(self, manifest: ShardManifest, owner: MergePartition, batch: int) -> ShardManifest:
        after = super()._save(manifest, owner, batch)
        self.blocks.release(0, manifest.snapshot_batch + 1)
        self.blocks.remove_unneeded(1)
        return after

    def _replay(self, owner: MergePartition, frames: Sequence[Frame]) -> Iterable[pa.Table]:
        return owner.apply([self.blocks.read(frame) for frame in frames])


def _new_name(version: int, what: str) -> str:
    """Return a name that no other attempt at a version has."""
    return f"{version:08d}-{secrets.token_hex(8)}.{what}"


def _stamp(before: str, packed: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(before.encode() + b"\n" + packed)
