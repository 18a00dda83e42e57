"""An engine always has the committed state, even if files are lost or incomplete or batches are replayed."""

import os
import shutil
from collections import Counter
from dataclasses import fields, replace

import pytest

import nearcast as nc
from effort import effort, sampled
from jobs.test_order import fitted
from jobs.test_shard import frames_of
from nearcast.engine import Engine
from nearcast.engine.shard_engine import ShardEngine
from nearcast.errors import InvalidInput, StateError
from nearcast.jobs import engine_cache, shard_state
from nearcast.jobs.engine_cache import LocalEngineCache
from nearcast.jobs.folder import Folder
from nearcast.jobs.frame import unpack, unpack_frames
from nearcast.jobs.shard import ShardCounts, apply
from nearcast.jobs.shard_state import ShardManifest, ShardState
from spark import inputs


@pytest.fixture
def shard(tmp_path):
    of = inputs.job(shards=1, batches_per_snapshot=3)
    with LocalEngineCache(tmp_path / "local", of.shard_config, ShardEngine) as at_home:
        yield ShardState(of, Folder(str(tmp_path)), at_home, 0), of
    engine_cache._MAPPED.clear()


def run_batch(shard, manifest, batch):
    """Run a batch as the worker does; return the new manifest and the updates."""
    kept, of = shard
    (frames,) = frames_of(batch, of)
    engine, counts = kept.open(manifest), ShardCounts()
    emitted = [nc.ungroup(groups) for groups in apply(engine, frames, shard=0, job=of, counts=counts)]
    after = kept.write(manifest, frames, engine)
    after = after._replace(messages=manifest.messages + counts.messages)
    return kept.close(after, engine), inputs.counted(emitted)


def keep_all(tmp_path):
    """Simulate that the next batch runs in the same process."""


def another_worker(tmp_path):
    """Simulate that the next batch runs in another process of this host."""
    engine_cache._MAPPED.clear()


def another_host(tmp_path):
    """Simulate that the next batch runs on another host, or that the local folders were deleted."""
    engine_cache._MAPPED.clear()
    shutil.rmtree(tmp_path / "local", ignore_errors=True)


@pytest.mark.parametrize(("lose", "is_repeated"), sampled([another_host, another_worker, keep_all], [False, True]))
def test_updates_are_the_same_after_any_loss_or_replay(shard, random_fields, tmp_path, lose, is_repeated):
    given = inputs.batches(8, random_fields, n=effort(5, 14))
    manifest, emitted = ShardManifest(), []
    for batch in given:
        lose(tmp_path)
        if is_repeated:
            run_batch(shard, manifest, batch)  # the state was not committed
            lose(tmp_path)
        manifest, updates = run_batch(shard, manifest, batch)
        emitted.append(updates)
    assert sum(emitted, start=emitted[0] - emitted[0]) == inputs.embedded(shard[1], given)
    assert manifest.version == len(given)


@pytest.mark.parametrize("partitioner", ["keyword", "hybrid"])
def test_snapshots_of_shards_keep_all_their_replicas(tmp_path, random_fields, partitioner):
    """A subscription in several shards is in the snapshot of each: any of them may be the first that sees a message."""
    given = inputs.batches(8, random_fields, n=effort(5, 8), kinds=("boolean", "similarity"))
    of = fitted(inputs.job(shards=3, partitioner=partitioner, batches_per_snapshot=2), given)
    manifests, emitted = [ShardManifest()] * of.shards, Counter()
    for i, batch in enumerate(given):
        another_host(tmp_path)
        for number, frames in enumerate(frames_of(batch, of)):
            with LocalEngineCache(tmp_path / "local" / f"{i}.{number}", of.shard_config, ShardEngine) as at_home:
                shard, counts = ShardState(of, Folder(str(tmp_path)), at_home, number), ShardCounts()
                engine = shard.open(manifests[number])
                groups = apply(engine, frames, shard=number, job=of, counts=counts)
                emitted += inputs.counted([nc.ungroup(one) for one in groups])
                after = shard.write(manifests[number], frames, engine)
                n_messages = manifests[number].messages + counts.messages
                manifests[number] = shard.close(after._replace(messages=n_messages), engine)
    assert emitted == inputs.embedded(of, given)
    assert all(manifest.snapshot for manifest in manifests)


def test_rows_in_the_order_of_their_times_give_the_same_updates_and_stamp_again(shard, random_fields, tmp_path):
    given = inputs.batches(5, random_fields, n=effort(4, 9), timed=True)
    manifest, emitted = ShardManifest(), []
    for batch in given:
        attempts = []
        for lose in (keep_all, another_worker, another_host):
            lose(tmp_path)
            attempts.append(run_batch(shard, manifest, batch))
        assert len({after.stamp for after, _ in attempts}) == 1
        assert all(updates == attempts[0][1] for _, updates in attempts)
        manifest, updates = attempts[-1]
        emitted.append(updates)
    assert sum(emitted, start=emitted[0] - emitted[0]) == inputs.embedded(shard[1], given)


@pytest.mark.parametrize(
    "kinds, is_kept",
    [(("boolean", "similarity"), False), (("boolean", "nearest"), True)],
    ids=["nothing is kept", "the nearest are"],
)
def test_messages_are_logged_only_for_stateful_kinds_or_windows(tmp_path, random_fields, kinds, is_kept):
    of = inputs.job(shards=1, batches_per_snapshot=1_000)
    of = replace(of, config=replace(of.config, window=None))
    given = inputs.batches(8, random_fields, n=effort(5, 14), kinds=kinds, timed=True)
    manifest, emitted = ShardManifest(), []
    with LocalEngineCache(tmp_path / "local", of.shard_config, ShardEngine) as at_home:
        kept = ShardState(of, Folder(str(tmp_path)), at_home, 0), of
        for batch in given:
            another_host(tmp_path)
            manifest, updates = run_batch(kept, manifest, batch)
            emitted.append(updates)
    assert sum(emitted, start=emitted[0] - emitted[0]) == inputs.embedded(of, given)
    written = [unpack_frames(file.read_bytes()) for file in (tmp_path / "0").glob("*.frames")]
    assert len(written) == len(given)
    rows = sum(unpack(f.payload).num_rows for frames in written for f in frames if f.source == "message")
    n = sum(len(batch.messages) for batch in given)
    assert manifest.messages == n and (rows > n // 2 if is_kept else rows == 0)


@pytest.mark.parametrize("scheme", ["file", "memory"])
def test_state_may_be_on_any_file_system(scheme, tmp_path, random_fields):
    """With snapshots, removed files, and batches that run again on a host without local files."""
    if scheme == "memory":
        pytest.importorskip("fsspec", reason="file systems that Arrow does not know need fsspec")
    uri = f"{scheme}://{tmp_path}/state" if scheme == "file" else f"memory://{tmp_path.name}"
    of = inputs.job(shards=1, batches_per_snapshot=3)
    given = inputs.batches(8, random_fields, n=8)
    manifest, emitted = ShardManifest(), []
    for i, batch in enumerate(given):
        with LocalEngineCache(tmp_path / str(i), of.shard_config, ShardEngine) as at_home:
            for _ in range(2):  # the first time it was not committed
                after, updates = run_batch((ShardState(of, Folder(uri), at_home, 0), of), manifest, batch)
        engine_cache._MAPPED.clear()
        manifest = after
        emitted.append(updates)
    assert sum(emitted, start=emitted[0] - emitted[0]) == inputs.embedded(of, given)
    assert manifest.snapshot_version >= 6
    versions = {int(name[:8]) for name in Folder(uri).names("0")}
    assert versions == {3, 4, 5, 6, 7, 8}, "the snapshot before the last, and what came since"


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_object_stores_have_the_names_of_hadoop_and_of_arrow(scheme):
    folder = Folder(f"{scheme}://bucket/state?region=us-east-1&endpoint_override=localhost:1")
    assert (folder.files.type_name, folder.path) == ("s3", "bucket/state")


def test_an_engine_that_is_ahead_of_the_state_is_not_used(shard, random_fields):
    first, second = inputs.batches(8, random_fields, n=2)
    manifest, _ = run_batch(shard, ShardManifest(), first)
    _, once = run_batch(shard, manifest, second)
    _, twice = run_batch(shard, manifest, second)
    assert once == twice


def test_an_engine_with_a_failed_batch_is_not_used_again(shard, random_fields):
    first, second = inputs.batches(8, random_fields, n=2)
    manifest, _ = run_batch(shard, ShardManifest(), first)
    shard[0].close(manifest, shard[0].open(manifest))
    engine = shard[0].open(manifest)
    assert engine is not shard[0].open(manifest)  # the first one was never returned
    assert run_batch(shard, manifest, second)[1]


def test_a_locked_shard_uses_an_engine_in_memory(shard, random_fields, tmp_path):
    first, second = inputs.batches(8, random_fields, n=2)
    manifest, _ = run_batch(shard, ShardManifest(), first)
    with LocalEngineCache(tmp_path / "local", shard[1].config, ShardEngine) as elsewhere:
        beside = ShardState(shard[1], Folder(str(tmp_path)), elsewhere, 0), shard[1]
        (own, updates), (other, same) = run_batch(shard, manifest, second), run_batch(beside, manifest, second)
        assert (own.stamp, updates) == (other.stamp, same)
        assert beside[0].open(other)._folder is None
        assert list((tmp_path / "local").glob("seal.json")), "of the worker that holds the lock"


def test_an_engine_is_reused_after_a_successful_batch(shard, random_fields):
    (batch,) = inputs.batches(8, random_fields, n=1)
    manifest, _ = run_batch(shard, ShardManifest(), batch)
    engine = shard[0].open(manifest)
    shard[0].close(manifest, engine)
    assert shard[0].open(manifest) is engine


def test_old_files_are_removed_but_the_last_batch_can_be_run_again(shard, random_fields, tmp_path):
    given = inputs.batches(3, random_fields, n=effort(8, 20))
    manifest = ShardManifest()
    for batch in given:
        before, (manifest, updates) = manifest, run_batch(shard, manifest, batch)
        another_host(tmp_path)
        assert run_batch(shard, before, batch)[1] == updates
        files = [path.name for path in (tmp_path / "0").iterdir()]
        assert len([name for name in files if name.endswith(".engine")]) <= 2 * 2
        assert len(files) <= 2 * (2 + 2 * 3), "two attempts at each version"


def test_frames_that_outgrow_the_snapshot_make_a_new_one(shard, random_fields, monkeypatch, tmp_path):
    monkeypatch.setattr(shard_state, "MIN_BYTES", 1)
    of, manifest = shard[1], ShardManifest()
    with LocalEngineCache(tmp_path / "other", of.shard_config, ShardEngine) as at_home:
        state_ = ShardState(replace(of, batches_per_snapshot=1_000), Folder(str(tmp_path / "r")), at_home, 0)
        for batch in inputs.batches(3, random_fields, n=12):
            manifest, _ = run_batch((state_, of), manifest, batch)
            assert manifest.log_bytes <= max(shard_state.MAX_TIMES * manifest.snapshot_bytes, 1)
    assert manifest.snapshot_version


def test_an_attempt_that_is_not_committed_changes_nothing_that_is(shard, random_fields, tmp_path):
    """A task that was abandoned may still write, after its batch and even the next snapshot were committed."""
    given = inputs.batches(5, random_fields, n=4)
    manifest, emitted, abandoned = ShardManifest(), [], ShardManifest()
    for batch in given:
        before = manifest
        manifest, updates = run_batch(shard, before, batch)
        emitted.append(updates)
        for late in (before, abandoned):
            run_batch(shard, late, given[0])  # the source may give it other rows
        abandoned = before
        another_host(tmp_path)
    assert sum(emitted, start=emitted[0] - emitted[0]) == inputs.embedded(shard[1], given)
    assert manifest.snapshot_version == 3 and shard[0].open(manifest).stats().messages == manifest.messages


def test_another_attempt_at_a_batch_has_the_same_stamp(shard, random_fields, tmp_path):
    (batch,) = inputs.batches(5, random_fields, n=1)
    first, second = (run_batch(shard, ShardManifest(), batch)[0] for _ in range(2))
    assert first.stamp == second.stamp and first.frames != second.frames
    assert {path.name for path in (tmp_path / "0").iterdir()} == {*first.frames, *second.frames}


def test_a_snapshot_removes_leftovers_of_all_attempts_before_the_last_one(shard, random_fields, tmp_path):
    given = inputs.batches(5, random_fields, n=6)
    manifest, files = ShardManifest(), set()
    for batch in given:
        run_batch(shard, manifest, batch)  # not committed
        manifest, _ = run_batch(shard, manifest, batch)
        (tmp_path / "0" / f".{manifest.version:08d}-0123.frames.host-17").touch()  # its writer was killed
        files = {path.name for path in (tmp_path / "0").iterdir()}
    assert manifest.snapshot_version == 6
    assert {int(name.lstrip(".")[:8]) for name in files if "frames" in name} == {4, 5, 6}
    assert {int(name[:8]) for name in files if name.endswith(".engine")} == {3, 6}


def test_frames_that_were_replaced_are_refused(shard, random_fields, tmp_path):
    first, second, third = inputs.batches(5, random_fields, n=3)
    manifest, _ = run_batch(shard, ShardManifest(), first)
    after, _ = run_batch(shard, manifest, second)
    other, _ = run_batch(shard, manifest, third)
    another_host(tmp_path)
    shutil.copy(tmp_path / "0" / other.frames[-1], tmp_path / "0" / after.frames[-1])
    with pytest.raises(StateError, match=r"frames must lead to stamp \w+ of version 2; got \w+"):
        shard[0].open(after)


SMALLEST = nc.Limits(**{limit.name: 1 for limit in fields(nc.Limits)})


@pytest.mark.parametrize("lose", [another_host, another_worker, keep_all])
@pytest.mark.parametrize(
    "options", [{"index": "scan"}, {"limits": SMALLEST}, {"threads": 3}], ids=["index", "limits", "threads"]
)
def test_a_job_may_continue_with_another_index_smaller_limits_or_more_threads(
    shard, random_fields, tmp_path, options, lose
):
    """Whether or not a snapshot lies behind; frames that were written before were checked before."""
    of = shard[1]
    given = inputs.batches(8, random_fields, n=5)
    of_engine = {name: value for name, value in options.items() if name != "threads"}
    changed = replace(of, config=replace(of.config, **of_engine), threads=options.get("threads", of.threads))
    assert changed.fixed_settings == of.fixed_settings
    manifest, emitted = ShardManifest(), []
    shard[0]._engine_cache.__exit__()
    for i, batch in enumerate(given):
        job = (of, changed)[i in (1, 3)]  # before the first snapshot, and after it
        with LocalEngineCache(tmp_path / "local", job.shard_config, ShardEngine) as local:
            state = ShardState(job, Folder(str(tmp_path)), local, 0)
            manifest, updates = run_batch((state, of), manifest, batch)
        emitted.append(updates)
        lose(tmp_path)
    assert sum(emitted, start=emitted[0] - emitted[0]) == inputs.embedded(of, given)
    assert manifest.snapshot_version == 3


def test_a_damaged_engine_is_rebuilt(shard, random_fields, tmp_path, caplog):
    given = inputs.batches(8, random_fields, n=10)
    damages = {
        "seal.json": [b"", b"{", b"[]", b"{}", b"null", b"\xff\xfe"],
        "arena.json": [b"", b"{}", b'{"format": "nearcast arena", "version": 1, "arrays": {}}'],
    }
    manifest, emitted = ShardManifest(), []
    for batch, (name, content) in zip(
        given,
        [(name, content) for name, contents in damages.items() for content in contents] + [("", b"")],
        strict=True,
    ):
        manifest, updates = run_batch(shard, manifest, batch)
        emitted.append(updates)
        another_worker(tmp_path)
        for file in (tmp_path / "local").rglob(name or "*.array"):
            file.write_bytes(content)
        caplog.clear()
        engine = shard[0].open(manifest)
        assert engine.stats().messages == manifest.messages
        assert "is damaged and will be rebuilt" in caplog.text, (name, content)
        shard[0].close(manifest, engine)
    assert sum(emitted, start=emitted[0] - emitted[0]) == inputs.embedded(shard[1], given)


def test_the_engine_of_another_package_is_rebuilt(shard, random_fields, tmp_path, monkeypatch):
    given = inputs.batches(8, random_fields, n=2)
    manifest, first = run_batch(shard, ShardManifest(), given[0])
    another_worker(tmp_path)
    monkeypatch.setattr("nearcast.engine.folder._package", lambda: "0.0.9 0123")
    monkeypatch.setattr("nearcast.engine.shard_engine.ShardEngine._set_up", refuse_old_arrays(tmp_path / "local"))
    _, second = run_batch(shard, manifest, given[1])
    assert first + second == inputs.embedded(shard[1], given)


def refuse_old_arrays(folder):
    """Return a method that sets up an engine, but none of the arrays that are in a folder now."""
    old, original = {path.name for path in folder.rglob("*.array")}, Engine._set_up

    def set_up(engine, state):
        assert old and not old & {path.name for path in folder.rglob("*.array")}
        original(engine, state)

    return set_up


def test_engines_that_no_query_uses_are_removed(tmp_path):
    old, used, new = (tmp_path / "local" / query / "settings" / "0" for query in ("old", "used", "new"))
    for folder in (old, used, new):
        folder.mkdir(parents=True)
        os.utime(folder, (1_000, 1_000 if folder is not new else 3_000))
    with LocalEngineCache(used, inputs.job().config, ShardEngine):
        engine_cache.remove_unused(tmp_path / "local", before=2_000)
    assert [path.name for path in sorted((tmp_path / "local").iterdir())] == ["new", "used"]
    engine_cache.remove_unused(tmp_path / "local", before=2_000)
    assert [path.name for path in (tmp_path / "local").iterdir()] == ["new"]


def test_a_file_gets_its_name_only_when_it_is_complete(tmp_path):
    folder = Folder(str(tmp_path))
    folder.write("0/a", b"old")

    class Broken:
        def __len__(self):
            raise OSError("no room")

    with pytest.raises(TypeError):
        folder.write("0/a", Broken())
    assert folder.read("0/a") == b"old"
    assert [path.name for path in (tmp_path / "0").iterdir()] == ["a"]


def test_folders_are_named_by_path_or_address(tmp_path):
    Folder(str(tmp_path)).write("a", b"1")
    assert Folder(f"file://{tmp_path}").read("a") == b"1"
    with pytest.raises(InvalidInput, match=r"state must be a folder that Arrow can open .*; got 'nowhere://x'"):
        Folder("nowhere://x")


def test_the_options_of_a_query_are_stored(tmp_path):
    folder = Folder(str(tmp_path))
    folder.claim({"shards": 2, "window": "w"})
    folder.claim({"shards": 2, "window": "w"})
    with pytest.raises(StateError, match="shards must be 2, as when the query was first started; got 3"):
        folder.claim({"shards": 3, "window": "w"})
