"""One shard in one micro-batch of a stream: from its last manifest to the next one.

    manifest ── engine of that version ── moves, if an epoch begins ── frames ── updates
                                                                         │
                                   moves, if the next epoch waits ── log, engine, report ── manifest

Spark replays a batch that was not committed. What a run leaves behind besides the manifest is then harmless, see
`shard_state` and `moves`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from time import perf_counter, time

import pyarrow as pa

from nearcast.engine.period_sampler import PeriodSampler
from nearcast.engine.shard_engine import ShardEngine
from nearcast.jobs.batch_time import with_time
from nearcast.jobs.block_files import BlockFiles
from nearcast.jobs.engine_cache import UNUSED_S, LocalEngineCache, remove_unused
from nearcast.jobs.epochs import epochs_of
from nearcast.jobs.folder import Folder
from nearcast.jobs.frame import Frame, epoch_of
from nearcast.jobs.job import Job
from nearcast.jobs.moves import ReadMoves, read_moves, remove_moves, write_moves
from nearcast.jobs.periods import remove_parts, write_part
from nearcast.jobs.rejections import write_rejections
from nearcast.jobs.replica_frames import ReplicaReport
from nearcast.jobs.reports import write_report
from nearcast.jobs.shard import ShardCounts, apply
from nearcast.jobs.shard_state import ShardManifest, ShardState
from nearcast.model import NO_TIME


@dataclass
class ShardReport(ShardCounts):
    """The report of a shard for one micro-batch; see `progress`."""

    shard: int = field(kw_only=True)
    epoch: int = 0
    subscriptions: int = 0
    state_bytes: int = 0
    moved_bytes: int = 0
    """Bytes of what moves to other shards when an epoch ends."""
    seconds: float = 0.0
    """Seconds in all."""
    opening: float = 0.0
    """Seconds to open the engine."""
    logging: float = 0.0
    """Seconds to write the frames, and what moves."""
    sealing: float = 0.0
    """Seconds to seal the engine, with a snapshot if one was due."""


class ShardRun:
    """A shard in a batch."""

    def __init__(self, job: Job, shard: int, frames: list[Frame], *, query: str, batch: int, local: Path) -> None:
        """Take a job with a folder of state, and the frames of the batch; `local` is a folder on this host."""
        assert job.state is not None
        self._epochs = epochs_of(job.state, query)
        self._base, self._frames, self._query, self._batch = job, frames, query, batch
        self._in_force, self._state, self._local = self._epochs.in_force(batch), job.state, local
        self._folder = Folder(f"{job.state}/{query}")
        self._epoch = epoch_of(frames)
        self.job = self._job_of(self._epoch)
        """The job in the epoch of the batch."""
        self.report = ShardReport(shard=shard, epoch=self._epoch)
        self.manifest = ShardManifest()
        """The state of the shard after the batch, once all updates have been taken."""

    def updates(self, stored: ShardManifest | None, replicas: ReplicaReport | None = None) -> Iterator[pa.Table]:
        """Apply the frames to the engine of a manifest, yield groups of updates, and leave the next manifest.

        Where results are merged, `replicas` takes what is to be merged.
        """
        job, report, shard = self.job, self.report, self.report.shard
        place = self._local / self._query / job.fingerprint / str(shard)
        with LocalEngineCache(place, job.shard_config, job.shard_engine) as engine_cache:
            state = ShardState(job, self._folder, engine_cache, shard, self._job_of)
            blocks = BlockFiles(self._folder)
            clock = [perf_counter()]
            if stored is None:  # a new query: what others have left is removed
                remove_unused(self._local, before=time() - UNUSED_S)
            before, moves = self._begin(stored)
            engine = state.open(before)
            frames = moves.frames + self._frames
            if job.is_clocked:
                frames = with_time(frames, max(engine.now_us, moves.now_us), max_ahead_s=job.ahead_s)
            clock.append(perf_counter())
            sampler = engine.begin_period(job.placement, shard=shard) if self._is_measured(before) else None
            arrived = map(blocks.read, frames)
            yield from apply(engine, arrived, shard=shard, job=job, counts=report, sampler=sampler, replicas=replicas)
            self._write_part(sampler)
            report.subscriptions = len(engine)
            clock.append(perf_counter())
            after = state.write(before, frames, engine)
            self._write_moves(engine)
            clock.append(perf_counter())
            self.manifest = state.close(after._replace(messages=engine.stats().messages), engine, batch=self._batch)
            clock.append(perf_counter())
        if shard == 0 and before.epoch == self._epoch and self.manifest.snapshot != before.snapshot:
            self._remove_retired()
        report.state_bytes = self.manifest.log_bytes + self.manifest.snapshot_bytes
        report.opening, _, report.logging, report.sealing = (b - a for a, b in pairwise(clock))
        report.seconds = clock[-1] - clock[0]
        self._write_report()

    def _job_of(self, epoch: int, *, seq: int | None = None) -> Job:
        """Return the job in an epoch, given the number of messages so far if it has not begun yet."""
        log = self._epochs.log
        before = log.read(epoch - 1) if epoch else None
        return self._base.at(log.read(epoch), since=self._epochs.since(epoch, seq=seq), before=before)

    def _begin(self, stored: ShardManifest | None) -> tuple[ShardManifest, ReadMoves]:
        """Return the manifest to begin with, and what moves to the shard if an epoch begins."""
        before, number = stored or ShardManifest(), self._epoch
        if number == before.epoch:
            return before, ReadMoves([], NO_TIME)
        is_new = stored is None or before.epoch < number - 1  # it did not exist in the epoch before
        if is_new:
            before = ShardManifest(version=before.version)
        if self.report.shard == 0:  # all shards have begun the epoch before this one
            remove_moves(self._folder, number - 1)
            remove_parts(self._folder, epoch=number - 1)
        return before, read_moves(
            self._folder,
            shard=self.report.shard,
            before=self._job_of(number - 1),
            number=number,
            batch=self._in_force.exported,
            is_new=is_new,
        )

    def _is_measured(self, before: ShardManifest) -> bool:
        """Return whether this batch is one that the routing may be adjusted to."""
        balance, is_settled = self.job.balance, before.epoch == self._epoch and not self._in_force.is_ending
        return balance is not None and is_settled and (self._batch + 1) % balance.every == 0

    def _write_part(self, sampler: PeriodSampler | None) -> None:
        """Write what a sampler took, for the driver."""
        if sampler is not None and self.job.balance is not None:
            write_part(
                self._folder,
                sampler.end(),
                epoch=self._epoch,
                batch=self._batch,
                shard=self.report.shard,
                every=self.job.balance.every,
            )

    def _write_moves(self, engine: ShardEngine) -> None:
        """Write what moves to other shards if this batch is the last one of an epoch."""
        if not self._in_force.is_ending:
            return
        started = perf_counter()
        self.report.moved_bytes = write_moves(
            self._folder,
            engine,
            shard=self.report.shard,
            before=self.job,
            after=self._job_of(self._epoch + 1, seq=engine.seq),
            number=self._epoch + 1,
            batch=self._batch,
        )
        self.report.moving += perf_counter() - started

    def _remove_retired(self) -> None:
        """Remove the files of shards that do not exist in this epoch, whose first batch is committed."""
        for name in self._folder.names(""):
            if name.isdigit() and int(name) >= self.job.shards:
                self._folder.remove_folder(name)

    def _write_report(self) -> None:
        written = asdict(self.report)
        written["rejected"] = len(written.pop("rejections"))
        write_rejections(self._state, self._query, self._batch, self.report.shard, self.report.rejections)
        write_report(self._folder, self._batch, self.report.shard, written)
