"""The updates of a stream do not depend on how many shards it has, when that changes, and what is lost on the way."""

import random
import shutil
from collections import Counter
from dataclasses import replace
from functools import partial

import pyarrow.compute as pc
import pytest

import nearcast as nc
from effort import effort
from jobs.local_shards import served
from jobs.test_shard import NAMES, fitted, frames_of
from nearcast.engine.matcher import Matcher
from nearcast.errors import FormatError, StateError
from nearcast.jobs import block_files, engine_cache, epochs
from nearcast.jobs.block_files import BlockFiles
from nearcast.jobs.epochs import EpochLog, QueryEpochs
from nearcast.jobs.folder import Folder
from nearcast.jobs.frame import Frame, epoch_of, unpack_frames
from nearcast.jobs.merge_run import MergeRun, by_reference
from nearcast.jobs.replica_frames import ReplicaReport
from nearcast.jobs.shard_run import ShardRun
from nearcast.model import Footprints
from nearcast.partition.balance.adjust import adjust
from nearcast.partition.balance.cells import Period, can_cut
from nearcast.partition.balance.steps import Cut
from nearcast.partition.serialization import pack, unpack
from nearcast.spark import dispatch
from nearcast.spark.merge import joined
from nearcast.spark.worker import addressed
from spark import inputs


class Cluster:
    """The shards of a query without Spark: a batch is dispatched, runs shard by shard, and is committed or not."""

    def __init__(self, folder, of, given):
        self.folder, self.given = folder, given
        self.of = replace(fitted(of, given), state=str(folder / "state"), tasks=2)
        self.log = EpochLog(self.of.state)
        self.log.add(shards=of.shards, tasks=2, routing=self.of.fitted)
        self.manifests, self.batch = {}, 0
        self.merged = {}
        """The manifests of the merge stage."""
        self.epochs = []
        """The epoch of each batch."""

    def rescale(self, shards):
        """Add an epoch, as the driver does."""
        routing = fitted(replace(self.of, shards=shards, fitted=None), self.given).fitted
        self.log.add(shards=shards, tasks=2, routing=routing)

    def adjust(self, batch, rng):
        """Add an epoch whose routing is adjusted to a batch, after a few cuts and moves."""
        newest = self.log.newest()
        routing = unpack(newest.routing)
        for _ in range(3):
            if can_cut(routing) and len(routing.cell_shards) < 40:
                cell = rng.randrange(len(routing.cell_shards))
                cut = Cut(int(routing.cell_leaves[cell]), rng.randrange(2), rng.uniform(0, 8))
                routing = cut.apply(routing)
        shards = routing.cell_shards.copy()
        for cell in rng.sample(range(len(shards)), k=len(shards) // 3):
            shards[cell] = rng.randrange(newest.shards)
        routing = routing.reassigned(shards)
        comes = batch.subscriptions.filter(pc.fill_null(pc.equal(batch.subscriptions["op"], "subscribe"), True))
        footprints = Footprints.joined(
            [some.footprints for some in self.of.admission.admit(comes.drop_columns(["op"]))]
        )
        messages = batch.messages.filter(pc.fill_null(pc.not_equal(batch.messages["op"], "retract"), True))
        period = Period.of(self.of.read_messages(messages), footprints)
        made = adjust(routing, period, sigma=1.0)
        routing = routing if made is None else made.routing
        self.log.add(shards=newest.shards, tasks=2, requested=newest.requested, routing=pack(routing))
        return made is not None

    def restart(self):
        """Forget what processes remember."""
        engine_cache._MAPPED.clear()
        epochs.epochs_of.cache_clear()

    def lose_host(self):
        """Lose the files of the host, too."""
        self.restart()
        shutil.rmtree(self.folder / "local", ignore_errors=True)

    def run(self, batch, *, n_runs=None):
        """Run a batch, commit it and return its updates; with `n_runs`, it breaks off after that many shards."""
        in_force = QueryEpochs(self.of.state, "q").in_force(self.batch)
        job = self.of.at(self.log.read(in_force.number))
        share = partial(BlockFiles(Folder(f"{self.of.state}/q")).write, batch=self.batch)
        frames_of_shards = frames_of(
            batch, job, blocks=2, epoch=in_force.number, is_ending=in_force.is_ending, share=share
        )
        manifests, loose, reported = dict(self.manifests), [], {}
        for shard, frames in enumerate(frames_of_shards):
            if not frames:
                continue
            run = ShardRun(self.of, shard, frames, query="q", batch=self.batch, local=self.folder / "local")
            report = ReplicaReport.new()
            loose += run.updates(manifests.get(shard), report)
            manifests[shard] = run.manifest
            for partition, frame in report.frames(job, shard=shard, epoch=in_force.number):
                frame = by_reference(Folder(f"{self.of.state}/q"), partition, frame, batch=self.batch)
                reported.setdefault(partition, []).append(frame)
            n_runs = None if n_runs is None else n_runs - 1
            if n_runs == 0:
                break
        merged, groups = self.merge(reported)
        if n_runs is not None:
            return None
        loose += groups
        self.manifests, self.merged, self.batch = manifests, merged, self.batch + 1
        self.epochs.append(in_force.number)
        groups = joined(addressed(one, 0, [0], job.scoring.hash_key) for one in loose) if job.moves else loose
        return inputs.counted(map(nc.ungroup, groups))

    def merge(self, reported):
        """Merge what shards report in a batch; return the next manifests, and the updates."""
        merged, groups = dict(self.merged), []
        for partition, frames in reported.items():
            run = MergeRun(self.of, partition, frames, query="q", batch=self.batch, local=self.folder / "local")
            groups += run.updates(merged.get(partition))
            merged[partition] = run.manifest
        return merged, groups


def everything(seed, random_fields, *, kinds, n):
    """Draw batches with times, retractions, replacements, edges, ends and bodies."""
    given = inputs.batches(seed, random_fields, n=n, timed=True, withdrawn=0.2, kinds=kinds)
    return inputs.with_ends(inputs.with_edges(given, seed, timed=True), seed)


USUAL = ("hash", "location", "hybrid")
"""Messages to all shards, placed by key or not, and messages to some; `make soak` tries all partitioners."""


@pytest.mark.parametrize(
    "window", [nc.CountWindow(7), pytest.param(nc.TimeWindow(9), marks=pytest.mark.soak)], ids=repr
)
@pytest.mark.parametrize(
    "name", [name if name in USUAL else pytest.param(name, marks=pytest.mark.soak) for name in NAMES]
)
def test_updates_do_not_depend_on_moves(name, window, random_fields, tmp_path, monkeypatch):
    """With a rescale, a crash, a replay or a lost host before any batch, and with small and large blocks."""
    for module in (dispatch, block_files):
        monkeypatch.setattr(module, "MIN_BYTES", 2_000)
    for seed in range(1, effort(2, 8)):
        rng, folder = random.Random(seed), tmp_path / str(seed)
        of = inputs.job(window=window, shards=rng.randint(1, 3), partitioner=name, bodies=True, has_edges=True,
                        batches_per_snapshot=3)  # fmt: skip
        given = everything(seed, random_fields, n=effort(9, 16), kinds=served(of))
        cluster, updates = Cluster(folder, of, given), Counter()
        for batch in given:
            if rng.random() < 0.5:
                cluster.rescale(rng.randint(1, 4))
            if rng.random() < 0.3:
                cluster.run(batch, n_runs=rng.randint(1, 5))
            rng.choice([cluster.restart, cluster.lose_host, lambda: None])()
            updates += cluster.run(batch)
        assert updates == inputs.embedded(cluster.of, given), f"seed {seed}"
        assert len(set(cluster.epochs)) > 2, "epochs have begun"


@pytest.mark.parametrize("name", ["keyword", pytest.param("space_kd", marks=pytest.mark.soak)])
def test_merged_results_beyond_the_window_outlast_moves(name, random_fields, tmp_path):
    """A replica that moves takes only its own messages along, so the merge stage keeps the results."""
    for seed in range(effort(1, 6)):
        rng, of = random.Random(seed), inputs.job(shards=3, partitioner=name, batches_per_snapshot=2)
        given = inputs.batches(seed, random_fields, n=effort(8, 14), kinds=("nearest", "nearest", "topk"))
        cluster, updates = Cluster(tmp_path / str(seed), of, given), Counter()
        for number, batch in enumerate(given):
            if number % 2:
                cluster.rescale(rng.randint(1, 4))
            rng.choice([cluster.restart, cluster.lose_host])()
            updates += cluster.run(batch)
        assert updates == inputs.embedded(cluster.of, given), f"seed {seed}"
        assert len(set(cluster.epochs)) > 2, "epochs have begun"


def test_what_replicas_report_is_in_files_until_a_snapshot_has_it(random_fields, tmp_path, monkeypatch):
    """As long as a restart may replay it, but no longer."""
    monkeypatch.setattr(block_files, "MIN_BYTES", 1)
    of = inputs.job(shards=2, partitioner="keyword", window=nc.CountWindow(7), batches_per_snapshot=3)
    given = inputs.batches(3, random_fields, n=14, kinds=("topk",))
    cluster, updates = Cluster(tmp_path, of, given), Counter()
    for batch in given:
        cluster.lose_host()
        updates += cluster.run(batch)
    assert updates == inputs.embedded(cluster.of, given)
    for partition, manifest in cluster.merged.items():
        blocks = (tmp_path / "state" / "q" / "merge" / str(partition) / "blocks").iterdir()
        kept = sorted(int(place.name) for place in blocks if place.is_dir())
        assert manifest.snapshot_batch >= 6, "several snapshots were written"
        assert manifest.snapshot_batch - 9 < kept[0] <= manifest.snapshot_batch


ADJUSTABLE = (
    "hybrid",
    "space_grid",
    *(pytest.param(name, marks=pytest.mark.soak) for name in ("space_rtree", "space_kd")),
)


@pytest.mark.parametrize(
    "window", [nc.CountWindow(7), pytest.param(nc.TimeWindow(9), marks=pytest.mark.soak)], ids=repr
)
@pytest.mark.parametrize("name", ADJUSTABLE)
def test_updates_do_not_depend_on_adjustments(name, window, random_fields, tmp_path):
    """With an adjusted routing, a crash, a replay or a lost host before any batch."""
    n_adjusted = 0
    for seed in range(effort(1, 6)):
        rng, folder = random.Random(seed), tmp_path / str(seed)
        of = inputs.job(window=window, shards=3, partitioner=name, bodies=True, batches_per_snapshot=3)
        given = everything(seed, random_fields, n=effort(6, 16), kinds=served(of))
        cluster, updates = Cluster(folder, of, given), Counter()
        for batch in given:
            if rng.random() < 0.6:
                n_adjusted += cluster.adjust(batch, rng)
            if rng.random() < 0.3:
                cluster.run(batch, n_runs=rng.randint(1, 3))
            rng.choice([cluster.restart, cluster.lose_host, lambda: None])()
            updates += cluster.run(batch)
        assert updates == inputs.embedded(cluster.of, given), f"seed {seed}"
        assert len(set(cluster.epochs)) > 2, "epochs have begun"
    assert n_adjusted, "some routing was adjusted to its load"


def test_a_batch_that_was_merged_and_not_committed_gives_the_same_updates_again(tmp_path, random_fields):
    given = inputs.batches(7, random_fields, n=7, kinds=("topk", "nearest", "social"))
    of = inputs.job(window=nc.CountWindow(5), shards=3, partitioner="space_grid", batches_per_snapshot=2)
    cluster, updates = Cluster(tmp_path, of, given), Counter()
    for batch in given:
        before = dict(cluster.manifests), dict(cluster.merged), cluster.batch
        first = cluster.run(batch)
        cluster.manifests, cluster.merged, cluster.batch = before
        cluster.lose_host()
        assert cluster.run(batch) == first
        updates += first
    assert updates == inputs.embedded(cluster.of, given)
    assert any(manifest.snapshot for manifest in cluster.merged.values()), "some were restored from a snapshot"


@pytest.fixture
def stream(tmp_path, random_fields):
    """A cluster of two shards, and batches that reach every shard."""
    given = [batch for batch in inputs.batches(3, random_fields, n=20) if len(batch.messages)]
    of = inputs.job(shards=2, batches_per_snapshot=2)
    return Cluster(tmp_path, of, given), iter(given)


def test_an_epoch_begins_once_all_shards_have_written_what_moves(stream):
    cluster, batches = stream
    cluster.run(next(batches))
    cluster.rescale(3)
    batch = next(batches)
    cluster.run(batch, n_runs=1)  # one of two shards
    cluster.run(batch)
    cluster.run(next(batches))
    assert cluster.epochs == [0, 0, 1]
    assert sorted(cluster.manifests) == [0, 1, 2]
    assert {manifest.epoch for manifest in cluster.manifests.values()} == {1}


def test_the_batch_that_wrote_what_moves_is_replayed_in_its_own_epoch(stream):
    """A driver may die after a sink has the updates of a batch and before Spark knows it."""
    cluster, batches = stream
    cluster.run(next(batches))
    cluster.rescale(3)
    before, batch = dict(cluster.manifests), next(batches)
    updates = cluster.run(batch)
    cluster.manifests, cluster.batch = before, cluster.batch - 1
    assert cluster.run(batch) == updates
    assert QueryEpochs(cluster.of.state, "q").in_force(cluster.batch).number == 1
    assert QueryEpochs(cluster.of.state, "q").in_force(cluster.batch - 1).number == 0
    assert cluster.epochs == [0, 0, 0]


def test_what_moves_is_written_for_the_subscriptions_that_move(stream, monkeypatch):
    """From two to three shards a third of the subscriptions moves, all to the new shard."""
    cluster, batches = stream
    wanted = {"kind": "boolean", "keywords": "a", "xmin": 0.0, "ymin": 0.0, "xmax": 8.0, "ymax": 8.0}
    many = inputs.table([wanted | {"op": "subscribe", "id": f"many{i}"} for i in range(600)], inputs.SUBSCRIPTIONS)
    first = next(batches)
    cluster.run(inputs.Batch(first.messages, many))
    moved = []
    for name in ("delete", "insert"):
        original = getattr(Matcher, name)

        def noted(matcher, given, *arguments, name=name, original=original):
            moved.append((name, len(given)))
            return original(matcher, given, *arguments)

        monkeypatch.setattr(Matcher, name, noted)
    cluster.rescale(3)
    cluster.run(inputs.Batch(first.messages, many.slice(0, 0)))
    moved.clear()
    cluster.run(inputs.Batch(first.messages, many.slice(0, 0)))
    n_deleted, n_inserted = (sum(n for what, n in moved if what == name) for name in ("delete", "insert"))
    assert n_deleted == n_inserted, "those that stay are left alone"
    assert 120 < n_inserted < 280


def test_what_has_moved_is_removed_when_the_next_epoch_begins(stream):
    cluster, batches = stream
    for shards in (3, 1):
        cluster.rescale(shards)
        cluster.run(next(batches))
        cluster.run(next(batches))
    moves = cluster.folder / "state" / "q" / "moves"
    assert cluster.epochs == [0, 1, 1, 2]
    assert list(moves.glob("00000002/*.transfer")) and not list(moves.glob("00000001/*.transfer"))
    assert list(moves.glob("00000001/*.done")), "they say when the epoch began"
    cluster.run(next(batches))
    cluster.run(next(batches))
    shards = sorted(path.name for path in moves.parent.iterdir() if path.name.isdigit())
    assert shards == ["0"], "the files of shards that have retired are removed with a snapshot"


def test_a_shard_that_retired_begins_anew_when_it_returns(stream):
    cluster, batches = stream
    for shards in (1, 2):
        cluster.rescale(shards)
        cluster.run(next(batches))
        cluster.run(next(batches))
    assert cluster.epochs == [0, 1, 1, 2]
    assert cluster.manifests[1].messages == cluster.manifests[0].messages


def test_blocks_are_written_once_and_removed_when_no_shard_needs_them(stream, monkeypatch):
    monkeypatch.setattr(dispatch, "MIN_BYTES", 1)
    cluster, batches = stream
    of, blocks, updates, given = cluster.of, cluster.folder / "state" / "q" / "blocks", Counter(), []
    for _ in range(9):
        given.append(next(batches))
        cluster.lose_host()
        updates += cluster.run(given[-1])
        logged = [frame for shard in (0, 1) for frame in last_log(cluster, shard) if frame.source == "message"]
        assert {frame.payload for frame in logged} == {b""}, "the log has their names"
        assert len({frame.file for frame in logged}) == len(logged) / 2, "both shards read the same files"
    assert updates == inputs.embedded(of, given)
    assert sorted(int(path.name) for path in blocks.glob("0*")) == [4, 5, 6, 7, 8], (
        "since the snapshot before the one that all shards have"
    )


def last_log(cluster, shard):
    """Return the frames of the last batch, as a shard has logged them."""
    files = (cluster.folder / "state" / "q" / str(shard)).glob("*.frames")
    return unpack_frames(max(files, key=lambda file: file.name).read_bytes())


def test_a_changed_block_is_refused(stream, monkeypatch):
    monkeypatch.setattr(dispatch, "MIN_BYTES", 1)
    cluster, batches = stream
    cluster.run(next(batches))
    cluster.lose_host()
    for file in (cluster.folder / "state" / "q" / "blocks").rglob("*.block"):
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(StateError, match=r"\.block is not as it was written: its checksum differs"):
        cluster.run(next(batches))


def test_frames_of_two_epochs_fail_the_batch():
    with pytest.raises(StateError, match=r"the frames of a batch must have one epoch; got \[0, 1\]"):
        epoch_of([Frame("message", 0, 0, 0, None, b"", epoch=number) for number in (1, 0)])


def test_a_broken_transfer_is_refused(stream):
    cluster, batches = stream
    cluster.rescale(3)
    cluster.run(next(batches))
    for file in (cluster.folder / "state" / "q" / "moves").rglob("*.transfer"):
        file.write_bytes(b"no transfer")
    with pytest.raises(FormatError, match="bytes must be those of a transfer of subscriptions"):
        cluster.run(next(batches))


def test_an_engine_may_have_more_shards_than_a_word_has_bits(tmp_path, random_fields):
    given = inputs.batches(1, random_fields, n=6)
    of = inputs.job(shards=2, partitioner="hybrid", window=nc.CountWindow(5))
    cluster, updates = Cluster(tmp_path, of, given), Counter()
    for batch, shards in zip(given, (None, 70, None, 3, None, None), strict=True):
        if shards is not None:
            cluster.rescale(shards)
        updates += cluster.run(batch)
    assert cluster.epochs == [0, 0, 1, 1, 2, 2]
    assert updates == inputs.embedded(cluster.of, given)
