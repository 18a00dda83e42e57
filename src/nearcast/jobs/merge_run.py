"""One partition of the merge stage in one micro-batch of a stream, as `shard_run` has it for shards.

    manifest ── partition of that version ── what replicas report ── updates
                                                    │
                                           log, partition, report ── manifest

Where replicas report nothing, nothing is opened or written: only updates of stateless kinds pass then.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import pyarrow as pa

from nearcast.engine.groups import count_updates
from nearcast.jobs import block_files
from nearcast.jobs.block_files import BlockFiles
from nearcast.jobs.engine_cache import LocalEngineCache
from nearcast.jobs.folder import Folder
from nearcast.jobs.frame import Frame
from nearcast.jobs.job import Job
from nearcast.jobs.reports import write_merge_report
from nearcast.jobs.shard_state import MergeState, ShardManifest


class MergeRun:
    """A partition of the merge stage in a batch."""

    def __init__(self, job: Job, partition: int, frames: list[Frame], *, query: str, batch: int, local: Path) -> None:
        """Take a job with a folder of state, and what replicas report; `local` is a folder on this host."""
        self._job, self._partition, self._frames = job, partition, frames
        self._folder, self._batch = Folder(f"{job.state}/{query}"), batch
        self._local = local / query / job.fingerprint / f"merge-{partition}"
        self.manifest: ShardManifest | None = None
        """The state of the partition after the batch, once all updates have been taken; None if it is as before."""

    def updates(self, stored: ShardManifest | None) -> Iterator[pa.Table]:
        """Merge what replicas report, yield groups of updates, and leave the next manifest."""
        if not self._frames:
            return
        from nearcast.jobs.merge_partition import MergePartition  # loads the kernels, so not before the first merge

        begun, n_updates, before = perf_counter(), 0, stored or ShardManifest()
        with LocalEngineCache(self._local, self._job.config, MergePartition) as cache:
            state = MergeState(self._job, self._folder, cache, self._partition)
            merging = state.open(before)
            for groups in merging.apply([state.blocks.read(frame) for frame in self._frames]):
                n_updates += count_updates(groups)
                yield groups
            self.manifest = state.close(state.write(before, self._frames), merging, batch=self._batch)
        report = {
            "merge": self._partition,
            "updates": n_updates,
            "state_bytes": self.manifest.log_bytes + self.manifest.snapshot_bytes,
            "changes": sum(frame.rows for frame in self._frames),
            "seconds": perf_counter() - begun,
        }
        write_merge_report(self._folder, self._batch, self._partition, report)


def by_reference(folder: Folder, partition: int, frame: Frame, *, batch: int) -> Frame:
    """Return a frame for a partition with its rows in a file, if they are worth one."""
    if len(frame.payload) < block_files.MIN_BYTES:
        return frame
    return BlockFiles.of_partition(folder, partition).write(frame, batch)
