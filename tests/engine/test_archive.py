"""A saved engine continues where it stopped, and anything else is refused."""

import json
import random
import shutil
from pathlib import Path

import pytest

import nearcast as nc
from nearcast.engine.archive import VERSION, digest_of
from nearcast.model import KINDS
from nearcast.testing import strategies


def busy_engine(random_fields, **options):
    rng = random.Random(11)
    engine = nc.Engine(
        space=strategies.GLOBE,
        vocabulary=nc.Vocabulary(documents=1000, frequencies={"a": 17, "b": 3}),
        window=nc.TimeWindow(7.25),
        social=nc.SocialGraph([*strategies.EDGES, (7, "p1"), ("7", 8)]),
        text_similarity="jaccard",
        limits=nc.Limits(k=99),
        **options,
    )
    engine.subscribe(
        strategies.make_subscription(
            kind.kind, i if i % 2 else f"s{i}", random_fields(kind.kind, strategies.GLOBE, rng)
        )
        for i, kind in enumerate(KINDS * 4)
    )
    engine.publish(stream(rng, 0, 30))
    return engine


def stream(rng, start, n):
    return [
        nc.Message(
            i if i % 3 else f"m{i}",
            rng.choice(strategies.GRID[strategies.GLOBE]),
            rng.choices(strategies.TERMS, k=3),
            at=1.7e9 + i * 0.3 - rng.choice([0, 0, 5]),
            place=rng.choice([None, 8, *strategies.PLACES]),
        )
        for i in range(start, start + n)
    ]


@pytest.mark.parametrize("workers", [1, 3])
def test_a_loaded_engine_continues_exactly(random_fields, tmp_path, workers):
    engine = busy_engine(random_fields, workers=workers)
    engine.save(tmp_path / "saved")
    loaded = nc.Engine.load(tmp_path / "saved")
    rng = random.Random(5)
    for step in range(4):
        batch = stream(rng, 100 + 10 * step, 10)
        emitted, updates_again = engine.publish(batch), loaded.publish(batch)
        key = lambda u: (u.seq, str(u.subscription), str(u.message), u.change)  # noqa: E731
        assert sorted(emitted, key=key) == sorted(updates_again, key=key)
        assert emitted, "the test needs updates"
    a, b = engine.stats(), loaded.stats()
    assert (a.messages, a.late, a.updates, a.window, a.kinds) == (b.messages, b.late, b.updates, b.window, b.kinds)
    matched = [{kind: work.matched for kind, work in stats.work.items()} for stats in (a, b)]
    assert matched[0] == matched[1], "the work may differ, since buffers are filled again"
    for i in range(20):
        id_ = i if i % 2 else f"s{i}"
        assert engine.results(id_) == loaded.results(id_)


def test_saving_twice_writes_the_same_engine(random_fields, tmp_path):
    engine = busy_engine(random_fields)
    engine.save(tmp_path / "one")
    nc.Engine.load(tmp_path / "one").save(tmp_path / "two")
    one, two = (json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("one", "two"))
    for manifest in (one, two):
        manifest.pop("sha256")
    for name, entry in one["files"].items():
        written = [tmp_path / "one" / entry.pop("file"), tmp_path / "two" / two["files"][name].pop("file")]
        assert written[0].read_bytes() == written[1].read_bytes(), name
    assert one == two


def test_saving_over_a_saved_engine_replaces_it_as_a_whole(random_fields, tmp_path):
    engine = busy_engine(random_fields)
    engine.save(tmp_path / "saved")
    engine.unsubscribe(["s0"])
    engine.save(tmp_path / "saved")
    assert "s0" not in nc.Engine.load(tmp_path / "saved")
    assert [p.name for p in tmp_path.iterdir()] == ["saved"], "no temporary files are left"


def test_a_failed_save_leaves_the_previous_one(random_fields, tmp_path, monkeypatch):
    engine = busy_engine(random_fields)
    engine.save(tmp_path / "saved")
    monkeypatch.setattr("nearcast.engine.archive.table_of_results", lambda rows: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        engine.save(tmp_path / "saved")
    monkeypatch.undo()
    assert len(nc.Engine.load(tmp_path / "saved")) == 20
    assert [p.name for p in tmp_path.iterdir()] == ["saved"]


def test_a_save_that_cannot_be_moved_into_place_leaves_the_previous_one(random_fields, tmp_path, monkeypatch):
    engine = busy_engine(random_fields)
    engine.save(tmp_path / "saved")
    before = {file.name: file.read_bytes() for file in (tmp_path / "saved").iterdir()}

    def fail(self, target):
        raise OSError("no")

    monkeypatch.setattr(Path, "replace", fail)
    for name in ("saved", "new"):
        with pytest.raises(OSError, match="no"):
            engine.save(tmp_path / name)
    monkeypatch.undo()
    assert {file.name: file.read_bytes() for file in (tmp_path / "saved").iterdir()} == before
    assert [p.name for p in tmp_path.iterdir()] == ["saved"]


def test_what_an_interrupted_save_left_is_removed_by_the_next_one(random_fields, tmp_path):
    engine = busy_engine(random_fields)
    engine.save(tmp_path / "saved")
    left = [tmp_path / "saved" / name for name in ("window-0123abcd.arrow", "manifest.json-0123abcd")]
    for file in left:
        file.write_bytes(b"half")
    (tmp_path / "saved" / "notes.txt").write_text("mine")
    assert len(nc.Engine.load(tmp_path / "saved")) == 20
    engine.save(tmp_path / "saved")
    assert not any(file.exists() for file in left) and (tmp_path / "saved" / "notes.txt").exists()
    manifest = json.loads((tmp_path / "saved" / "manifest.json").read_text())
    named = {entry["file"] for entry in manifest["files"].values()}
    assert {file.name for file in (tmp_path / "saved").iterdir()} == named | {"manifest.json", "notes.txt"}


def test_any_changed_digit_of_a_manifest_is_refused(saved):
    file = saved / "manifest.json"
    text = file.read_text()
    for at, character in enumerate(text):
        if character.isdigit():
            file.write_text(f"{text[:at]}{(int(character) + 1) % 10}{text[at + 1 :]}")
            with pytest.raises(nc.FormatError):
                nc.Engine.load(saved)


def test_saving_over_a_folder_of_other_files_is_refused(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.txt").write_text("years of work")
    with pytest.raises(nc.FormatError, match="must be new or hold a saved engine"):
        nc.Engine(space=strategies.PLANE).save(tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter1.txt").read_text() == "years of work"


@pytest.fixture
def saved(random_fields, tmp_path):
    folder = tmp_path / "saved"
    busy_engine(random_fields).save(folder)
    return folder


def edit(folder, change):
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    manifest["sha256"] = digest_of(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def refused(folder, match):
    with pytest.raises(nc.FormatError, match=match):
        nc.Engine.load(folder)


def test_loading_anything_but_a_saved_engine_is_refused(tmp_path):
    refused(tmp_path / "nothing", "has no manifest")
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "manifest.json").write_text("{")
    refused(tmp_path / "x", "must be JSON")
    (tmp_path / "x" / "manifest.json").write_text("[]")
    refused(tmp_path / "x", "format must be 'nearcast-engine'")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda m: m.update(format="other"), "format must be 'nearcast-engine'; got 'other'"),
        (lambda m: m.update(version=1), f"version must be {VERSION}; got 1"),
        (lambda m: m.pop("version"), f"version must be {VERSION}; got None"),
        (lambda m: m.update(extra=1), "extra"),
        (lambda m: m.pop("work"), "must hold"),
        (lambda m: m["config"].update(partitioner="magic"), "partitioner must be one of"),
        (lambda m: m["config"].update(index="magic"), "index must be one of"),
        (lambda m: m["config"].update(colour="red"), "colour"),
        (lambda m: m["config"]["window"].update(kind="magic"), "magic"),
        (lambda m: m["config"]["space"].update(metric="magic"), "metric must be one of"),
        (lambda m: m["config"]["limits"].update(moons=1), "moons"),
        (lambda m: m["counters"].update(moons=1), "moons"),
        (lambda m: m["files"].pop("window"), "window"),
    ],
)
def test_a_manifest_with_unknown_or_missing_entries_is_refused(saved, change, match):
    edit(saved, change)
    refused(saved, match)


@pytest.mark.parametrize("name", ["vocabulary", "graph", "results", "window", *(kind.kind for kind in KINDS)])
def test_a_missing_truncated_or_changed_file_is_refused(saved, name, tmp_path):
    (file,) = saved.glob(f"{name}-*.arrow")
    whole = file.read_bytes()
    file.write_bytes(whole[:-9])
    refused(saved, f"{file.name} is not as it was written")
    middle = len(whole) // 2
    file.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    refused(saved, f"{file.name} is not as it was written")
    file.unlink()
    refused(saved, f"{file.name} is missing")


def test_an_engine_can_be_moved(saved, tmp_path):
    shutil.move(saved, tmp_path / "elsewhere")
    assert len(nc.Engine.load(tmp_path / "elsewhere")) == 20
