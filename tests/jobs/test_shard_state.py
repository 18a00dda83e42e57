"""An engine always has the committed state, even if files are lost or incomplete or batches are replayed."""

import shutil
from dataclasses import replace

import pytest

import nearcast as nc
from jobs.test_shard import frames_of
from nearcast.engine import Engine
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
    with LocalEngineCache(tmp_path / "local", of.config) as at_home:
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


def another_worker(tmp_path):
    """Simulate that the next batch runs in another process of this host."""
    engine_cache._MAPPED.clear()


def another_host(tmp_path):
    """Simulate that the next batch runs on another host, or that the local folders were deleted."""
    engine_cache._MAPPED.clear()
    shutil.rmtree(tmp_path / "local", ignore_errors=True)


@pytest.mark.parametrize(
    "lose", [lambda tmp_path: None, another_worker, another_host], ids=["kept", "worker", "host"]
)
@pytest.mark.parametrize("again", [False, True], ids=["once", "each batch twice"])
def test_updates_are_the_same_after_any_loss_or_replay(shard, random_fields, tmp_path, lose, again):
    given = inputs.batches(8, random_fields, n=14)
    manifest, emitted = ShardManifest(), []
    for batch in given:
        lose(tmp_path)
        if again:
            run_batch(shard, manifest, batch)  # the state was not committed
            lose(tmp_path)
        manifest, updates = run_batch(shard, manifest, batch)
        emitted.append(updates)
    assert sum(emitted, start=emitted[0] - emitted[0]) == inputs.embedded(shard[1], given)
    assert manifest.version == 14


@pytest.mark.parametrize(
    "kinds, is_kept",
    [(("boolean", "similarity"), False), (("boolean", "nearest"), True)],
    ids=["nothing is kept", "the nearest are"],
)
def test_messages_are_logged_only_for_stateful_kinds_or_windows(tmp_path, random_fields, kinds, is_kept):
    of = inputs.job(shards=1, batches_per_snapshot=1_000)
    of = replace(of, config=replace(of.config, window=None))
    given = inputs.batches(8, random_fields, n=14, kinds=kinds, timed=True)
    manifest, emitted = ShardManifest(), []
    with LocalEngineCache(tmp_path / "local", of.config) as at_home:
        kept = ShardState(of, Folder(str(tmp_path)), at_home, 0), of
        for batch in given:
            another_host(tmp_path)
            manifest, updates = run_batch(kept, manifest, batch)
            emitted.append(updates)
    assert sum(emitted, start=emitted[0] - emitted[0]) == inputs.embedded(of, given)
    written = [unpack_frames(file.read_bytes()) for file in (tmp_path / "0").glob("*.frames")]
    assert len(written) == 14
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
        with LocalEngineCache(tmp_path / str(i), of.config) as at_home:
            for _ in range(2):  # the first time it was not committed
                after, updates = run_batch((ShardState(of, Folder(uri), at_home, 0), of), manifest, batch)
        engine_cache._MAPPED.clear()
        manifest = after
        emitted.append(updates)
    assert sum(emitted, start=emitted[0] - emitted[0]) == inputs.embedded(of, given)
    assert manifest.snapshot >= 6
    folder = Folder(uri)
    assert folder.size("0/00000001.frames") is None and folder.size("0/00000008.frames")


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
    with LocalEngineCache(tmp_path / "local", shard[1].config) as elsewhere:
        beside = ShardState(shard[1], Folder(str(tmp_path)), elsewhere, 0), shard[1]
        assert run_batch(beside, manifest, second) == run_batch(shard, manifest, second)
        assert not beside[0].open(manifest).is_sealed(manifest.stamp)


def test_an_engine_is_reused_after_a_successful_batch(shard, random_fields):
    (batch,) = inputs.batches(8, random_fields, n=1)
    manifest, _ = run_batch(shard, ShardManifest(), batch)
    engine = shard[0].open(manifest)
    shard[0].close(manifest, engine)
    assert shard[0].open(manifest) is engine


def test_old_files_are_removed_but_the_last_batch_can_be_run_again(shard, random_fields, tmp_path):
    given = inputs.batches(3, random_fields, n=20)
    manifest = ShardManifest()
    for batch in given:
        before, (manifest, updates) = manifest, run_batch(shard, manifest, batch)
        files = sorted(path.name for path in (tmp_path / "0").iterdir())
        assert len([name for name in files if name.endswith(".engine")]) <= 2
        assert len(files) <= 2 * 3 + 3
        another_host(tmp_path)
        assert run_batch(shard, before, batch)[1] == updates


def test_frames_that_outgrow_the_snapshot_make_a_new_one(shard, random_fields, monkeypatch, tmp_path):
    monkeypatch.setattr(shard_state, "LEAST_BYTES", 1)
    of, manifest = shard[1], ShardManifest()
    with LocalEngineCache(tmp_path / "other", of.config) as at_home:
        state_ = ShardState(replace(of, batches_per_snapshot=1_000), Folder(str(tmp_path / "r")), at_home, 0)
        for batch in inputs.batches(3, random_fields, n=12):
            manifest, _ = run_batch((state_, of), manifest, batch)
            assert manifest.log_bytes <= max(shard_state.MOST_TIMES * manifest.snapshot_bytes, 1)
    assert manifest.snapshot


def test_frames_of_another_run_are_refused(shard, random_fields, tmp_path):
    first, second, third = inputs.batches(5, random_fields, n=3)
    manifest, _ = run_batch(shard, ShardManifest(), first)
    after, _ = run_batch(shard, manifest, second)
    shutil.copy(tmp_path / "0" / "00000002.frames", tmp_path / "kept")
    run_batch(shard, manifest, third)  # a batch of the same number that was never committed
    another_host(tmp_path)
    with pytest.raises(StateError, match=r"frames must lead to stamp \w+ of version 2; got \w+"):
        shard[0].open(after)
    shutil.copy(tmp_path / "kept", tmp_path / "0" / "00000002.frames")
    assert isinstance(shard[0].open(after), Engine)


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
