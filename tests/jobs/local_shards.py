"""The shards of a job and the partitions that merge what they report, in memory."""

import random

import nearcast as nc
from nearcast.jobs.frame import pack_frames, unpack_frames
from nearcast.jobs.merge_partition import MergePartition
from nearcast.jobs.replica_frames import ReplicaReport
from nearcast.jobs.shard import ShardCounts, apply
from nearcast.model import KINDS
from nearcast.spark.merge import joined
from nearcast.spark.worker import addressed


def served(of, *, withdrawing=True):
    """Return the kinds that a job serves, by default one whose messages may be retracted, replaced or expire."""
    are_refused = of.merges and withdrawing
    return tuple(kind.kind for kind in KINDS if not (are_refused and kind.result_policy.must_be_saved))


class LocalShards:
    """Shards and merge partitions."""

    def __init__(self, of):
        self.of = of
        self.engines = [of.new_shard_engine() for _ in range(of.shards)]
        self.partitions = [MergePartition.create(of.config) for _ in range(of.n_tasks if of.merges else 0)]

    def run(self, frames_of_shards, counts=None):
        """Apply the frames of a batch, and return the updates."""
        of, groups, reported = self.of, [], [[] for _ in self.partitions]
        for number, frames in enumerate(frames_of_shards):
            given = counts[number] if isinstance(counts, list) else counts or ShardCounts()
            random.Random(number).shuffle(frames)  # a shuffle does not keep the order
            unpacked, report = unpack_frames(pack_frames(frames)), ReplicaReport.new()
            groups += apply(self.engines[number], unpacked, shard=number, job=of, counts=given, replicas=report)
            for partition, frame in report.frames(of, shard=number, epoch=0):
                reported[partition].append(frame)
        for partition, frames in zip(self.partitions, reported, strict=True):
            random.Random(len(groups)).shuffle(frames)
            groups += partition.apply(unpack_frames(pack_frames(frames)))
        if of.moves:
            groups = joined(addressed(one, 0, [0], of.scoring.hash_key) for one in groups)
        return [nc.ungroup(one) for one in groups]
