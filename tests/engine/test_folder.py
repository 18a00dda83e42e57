"""Several processes use an engine in a folder in turn, and an incomplete one is refused."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import nearcast as nc
from nearcast.engine import EngineConfig, folder
from nearcast.engine.shard_engine import ShardEngine
from nearcast.errors import FormatError, StateError
from nearcast.testing import strategies

OPTIONS = {
    "space": strategies.PLANE,
    "vocabulary": strategies.vocabulary(),
    "social": strategies.social_graph(),
    "window": nc.CountWindow(3),
}
SUBSCRIPTIONS = [
    nc.BooleanSubscription("b", region=nc.Box(0, 0, 8, 8), keywords="a OR b"),
    nc.SimilaritySubscription(7, location=(1, 1), keywords="a", delta=0.5, tau=0.3),
    nc.TopKSubscription("t", location=(1, 1), keywords="a b", k=2, alpha=0.5),
    nc.NearestSubscription("n", location=(1, 1), keywords="a", k=2),
    nc.SocialSubscription(
        "g", location=(1, 1), keywords=["b"], k=1, user=next(iter(strategies.social_graph().users))
    ),
]
STREAM = [nc.Message(f"m{i}", (i % 8, i % 5), ["a", "b"][i % 2]) for i in range(24)]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("index", ["auto", "scan"])
def test_an_engine_in_a_folder_emits_the_updates_of_one_in_memory(tmp_path, workers, index):
    options = OPTIONS | {"workers": workers, "index": index}
    memory, mapped = nc.Engine(**options), ShardEngine.create(EngineConfig.of(options), folder=tmp_path / "e")
    assert mapped.subscribe(SUBSCRIPTIONS) == memory.subscribe(SUBSCRIPTIONS)
    for step in range(0, len(STREAM), 4):
        assert mapped.publish(STREAM[step : step + 4]) == memory.publish(STREAM[step : step + 4])
        extra = replace(SUBSCRIPTIONS[step // 4 % 5], id=f"extra{step}")
        assert mapped.subscribe([extra]) == memory.subscribe([extra])
        mapped.seal(str(step))
        mapped.close()
        mapped = ShardEngine.attach(tmp_path / "e", str(step), EngineConfig.of(options))
    ids = [s.id for s in SUBSCRIPTIONS]
    assert [mapped.results(id_) for id_ in ids] == [memory.results(id_) for id_ in ids]
    assert replace(mapped.stats(), memory_bytes=0) == replace(memory.stats(), memory_bytes=0)


def test_another_process_continues_with_a_sealed_folder(tmp_path):
    engine = ShardEngine.create(EngineConfig(space=strategies.PLANE), folder=tmp_path / "e")
    engine.subscribe(SUBSCRIPTIONS[:1])
    engine.seal("one")
    script = (
        "import nearcast as nc, sys\n"
        "from nearcast.engine import EngineConfig\n"
        "from nearcast.engine.shard_engine import ShardEngine\n"
        "from nearcast.testing import strategies\n"
        "engine = ShardEngine.attach(sys.argv[1], 'one', EngineConfig(space=strategies.PLANE))\n"
        "engine.subscribe([nc.BooleanSubscription(f's{i}', region=nc.Box(0, 0, 8, 8), keywords='a') for i in range(300)])\n"
        "engine.seal('two')\n"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path / "e"], check=True)
    with pytest.raises(StateError, match=r"sealed with mark 'one'; got 'two'"):
        ShardEngine.attach(tmp_path / "e", "one", EngineConfig(space=strategies.PLANE))
    engine = ShardEngine.attach(tmp_path / "e", "two", EngineConfig(space=strategies.PLANE))
    assert len(engine.publish([nc.Message("m", (1, 1), "a")])) == 301


@pytest.mark.parametrize(
    "change",
    [
        lambda e: e.subscribe(SUBSCRIPTIONS[3:4]),
        lambda e: e.unsubscribe(["b"]),
        lambda e: e.publish(STREAM[:1]),
        lambda e: e.advance(5.0),
    ],
    ids=["subscribe", "unsubscribe", "publish", "advance"],
)
def test_the_first_change_breaks_the_seal(tmp_path, change):
    engine = ShardEngine.create(EngineConfig.of(OPTIONS), folder=tmp_path / "e")
    engine.subscribe(SUBSCRIPTIONS)
    engine.seal("whole")
    ShardEngine.attach(tmp_path / "e", "whole", EngineConfig.of(OPTIONS))
    change(engine)
    with pytest.raises(StateError, match="must hold a sealed engine"):
        ShardEngine.attach(tmp_path / "e", "whole", EngineConfig.of(OPTIONS))


def test_an_engine_detects_that_its_folder_was_attached_since(tmp_path):
    mine = ShardEngine.create(EngineConfig.of(OPTIONS), folder=tmp_path / "e")
    assert not mine.is_sealed("a")
    mine.seal("a")
    assert mine.is_sealed("a") and not mine.is_sealed("b")
    other = ShardEngine.attach(tmp_path / "e", "a", EngineConfig.of(OPTIONS))
    assert mine.is_sealed("a") and other.is_sealed("a")
    other.publish(STREAM[:1])
    assert not mine.is_sealed("a") and not other.is_sealed("a")
    other.seal("a")
    assert other.is_sealed("a") and not mine.is_sealed("a")
    assert not ShardEngine.create(EngineConfig.of(OPTIONS)).is_sealed("a")


def test_refused_input_does_not_break_the_seal(tmp_path):
    engine = ShardEngine.create(EngineConfig.of(OPTIONS), folder=tmp_path / "e")
    engine.seal("whole")
    with pytest.raises(nc.InvalidInput):
        engine.publish([nc.Message("m", (99, 0), "a")])
    ShardEngine.attach(tmp_path / "e", "whole", EngineConfig.of(OPTIONS))


def test_a_seal_from_before_a_reboot_is_invalid(tmp_path, monkeypatch):
    engine = ShardEngine.create(EngineConfig.of(OPTIONS), folder=tmp_path / "e")
    engine.seal("whole")
    monkeypatch.setattr("nearcast.engine.folder._boot", lambda: "another")
    with pytest.raises(StateError, match="must be sealed with boot 'another'"):
        ShardEngine.attach(tmp_path / "e", "whole", EngineConfig.of(OPTIONS))


def test_a_seal_names_the_version_and_the_sources_of_the_package(tmp_path, monkeypatch):
    engine = ShardEngine.create(EngineConfig.of(OPTIONS), folder=tmp_path / "e")
    engine.seal("whole")
    version, digest = json.loads((tmp_path / "e" / "seal.json").read_text())["package"].split()
    assert version == nc.__version__
    for changed in (f"9.9.9 {digest}", f"{version} 0123"):
        monkeypatch.setattr("nearcast.engine.folder._package", lambda changed=changed: changed)
        with pytest.raises(StateError, match=f"must be sealed with package '{changed}'"):
            ShardEngine.attach(tmp_path / "e", "whole", EngineConfig.of(OPTIONS))


def test_a_change_of_any_source_changes_the_package(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "PACKAGE", tmp_path)
    digests = set()
    for content in ("xs = 1", "xs = 2"):
        (tmp_path / "arrays.py").write_text(content)
        digests.add(folder._package.__wrapped__())
    assert len(digests) == 2


def flip(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def truncate(file):
    file.write_bytes(file.read_bytes()[:-1])


def replace_by_nonsense(file):
    file.write_text('["nonsense"]')


@pytest.mark.parametrize("damage", [flip, truncate, Path.unlink, replace_by_nonsense])
def test_damage_to_any_file_is_detected(tmp_path, damage):
    """Large arrays are the exception: of them, only names and sizes are checked."""
    options = OPTIONS | {"index": "scan"}  # with results outside the arenas
    engine = ShardEngine.create(EngineConfig.of(options), folder=tmp_path / "e")
    engine.subscribe(SUBSCRIPTIONS)
    engine.publish(STREAM)
    engine.seal("whole")
    names = [path.relative_to(tmp_path / "e") for path in (tmp_path / "e").rglob("*") if path.is_file()]
    assert {"seal.json", "arena.json", "results.arrow"} <= {name.name for name in names}
    for name in names:
        file = tmp_path / "e" / name
        intact = file.read_bytes()
        if not intact:
            continue
        damage(file)
        expected = StateError if (name.name, damage) == ("seal.json", Path.unlink) else FormatError
        if file.suffix == ".array" and damage is flip and len(intact) >= folder._LARGE:
            continue
        with pytest.raises(expected):
            ShardEngine.attach(tmp_path / "e", "whole", EngineConfig.of(options))
        file.write_bytes(intact)
    ShardEngine.attach(tmp_path / "e", "whole", EngineConfig.of(options))


def test_a_saved_engine_can_continue_in_a_folder(tmp_path):
    engine = nc.Engine(**OPTIONS)
    engine.subscribe(SUBSCRIPTIONS)
    engine.publish(STREAM[:7])
    engine.save(tmp_path / "saved")
    ShardEngine.load(tmp_path / "saved", folder=tmp_path / "e").seal("here")
    again = ShardEngine.attach(tmp_path / "e", "here", EngineConfig.of(OPTIONS))
    assert again.publish(STREAM[7:]) == engine.publish(STREAM[7:])


def test_an_engine_in_memory_cannot_be_sealed():
    with pytest.raises(StateError, match="must live in a folder"):
        ShardEngine.create(EngineConfig.of(OPTIONS)).seal("x")


@pytest.mark.parametrize(
    "seal", ["", "{", "[]", "{}", "7", "[" * 20_000, '{"mark": "m", "boot": 7}'], ids=lambda seal: seal[:9]
)
def test_a_damaged_seal_is_refused(tmp_path, seal):
    engine = ShardEngine.create(EngineConfig.of(OPTIONS), folder=tmp_path / "e")
    engine.subscribe(SUBSCRIPTIONS)
    engine.seal("one")
    (tmp_path / "e" / "seal.json").write_text(seal)
    assert not engine.is_sealed("one")
    with pytest.raises(FormatError, match=r"must be JSON|its checksum differs"):
        ShardEngine.attach(tmp_path / "e", "one", EngineConfig.of(OPTIONS))
