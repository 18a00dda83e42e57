"""Saved engines: damaged files and changed manifests are refused with `FormatError`, or mean exactly the same."""

import contextlib
import json
import random
import shutil

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nearcast as nc
from effort import search
from fuzz.test_spark_stages import damaged
from nearcast.engine.archive import digest_of
from nearcast.engine.folder import EngineFolder, Sealed
from nearcast.model import KINDS
from nearcast.testing import strategies


def small_engine(random_fields, **options):
    rng = random.Random(3)
    engine = nc.Engine(
        space=strategies.PLANE,
        vocabulary=strategies.vocabulary(),
        social=strategies.social_graph(),
        window=nc.CountWindow(7),
        **options,
    )
    engine.subscribe(
        strategies.make_subscription(
            kind.kind, i if i % 2 else f"s{i}", random_fields(kind.kind, strategies.PLANE, rng)
        )
        for i, kind in enumerate(KINDS * 2)
    )
    places = strategies.GRID[strategies.PLANE]
    engine.publish(
        nc.Message(i if i % 3 else f"m{i}", rng.choice(places), rng.choices(strategies.TERMS, k=3), place="p1")
        for i in range(12)
    )
    return engine


def state_of(engine):
    stats = engine.stats()
    results = {
        repr(one.id): engine.results(one.id) for one in engine.subscriptions() if one.result_policy.is_stateful
    }
    subscriptions = sorted(repr(one) for one in engine.subscriptions())
    return stats.messages, stats.late, stats.window, stats.updates, subscriptions, results


@pytest.fixture(scope="module")
def saved(random_fields, tmp_path_factory):
    """Return folders of saved engines with the state of each."""
    folder = tmp_path_factory.mktemp("saved")
    made = []
    for name, options in {"one": {}, "routed": {"workers": 2, "partitioner": "location"}}.items():
        with small_engine(random_fields, **options) as engine:
            engine.save(folder / name)
            made.append((folder / name, state_of(engine)))
    return made


def check_load(folder, expected):
    """Load an engine that is refused by an error of the project, or equal to what was saved."""
    try:
        loaded = nc.Engine.load(folder)
    except nc.FormatError as error:
        assert len(str(error)) < 5_000
        return False
    with loaded:
        assert expected is None or state_of(loaded) == expected
        with contextlib.suppress(nc.InvalidInput):  # a manifest may set other bounds and limits
            loaded.publish([nc.Message("next", (2, 4), "a b", at=1e9)])
    return True


def copy_of(folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    return copy


@search(usual=25)
@given(data=st.data())
def test_a_damaged_file_is_refused_or_loaded_exactly(saved, tmp_path_factory, data):
    folder, expected = data.draw(st.sampled_from(saved))
    copy = copy_of(folder, tmp_path_factory.getbasetemp())
    file = data.draw(st.sampled_from(sorted(copy.iterdir())))
    whole = file.read_bytes()
    how = data.draw(st.sampled_from(["damaged", "damaged", "other", "gone", "empty", "swapped"]))
    if how == "damaged":
        file.write_bytes(data.draw(damaged(whole)))
    elif how == "other":
        file.write_bytes(data.draw(st.binary(max_size=100)))
    elif how == "empty":
        file.write_bytes(b"")
    elif how == "gone":
        file.unlink()
    else:
        file.write_bytes(data.draw(st.sampled_from(sorted(copy.iterdir()))).read_bytes())
    check_load(copy, expected)


_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5),
    st.sampled_from([-1, 0, 1 << 31, 1 << 63, 1 << 64, 1e308, "boolean", "../x", "manifest.json"]),
)  # fmt: skip
_NESTED = st.lists(_SCALARS, max_size=3) | st.dictionaries(st.text(max_size=4), _SCALARS, max_size=3)
JSON = _SCALARS | _NESTED | st.lists(_NESTED, max_size=2)


def paths_of(value, path=()):
    """Yield the path of every value within JSON."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from paths_of(inner, (*path, key))


@search(usual=25)
@given(data=st.data())
def test_a_manifest_with_other_values_is_refused_or_makes_a_whole_engine(saved, tmp_path_factory, data):
    """Its checksum is right, as if another program had written it; what it then says may be another engine."""
    folder, _ = data.draw(st.sampled_from(saved))
    copy = copy_of(folder, tmp_path_factory.getbasetemp())
    manifest = json.loads((copy / "manifest.json").read_text())
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from([path for path in paths_of(manifest) if path]))
        outer = manifest
        for key in path[:-1]:
            outer = outer[key]
        change = data.draw(st.sampled_from(["set", "set", "remove", "add"]))
        if change == "set":
            outer[path[-1]] = data.draw(JSON)
        elif change == "remove":
            del outer[path[-1]]
        elif isinstance(outer, dict):
            outer[data.draw(st.text(max_size=4))] = data.draw(JSON)
    rewrite(copy, manifest)
    check_load(copy, None)


def rewrite(folder, manifest):
    """Write a manifest with the right checksum."""
    manifest["sha256"] = digest_of(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("table", "key", "value", "words"),
    [
        ("config", "attributes", {"price": "float"}, "could not be broadcast"),  # those of the window have no values
        ("config", "index", "boolean", "index 'boolean' does not serve kind"),
        ("counters", "seq", (1 << 63) - 1, "seq must be an integer from 0 to .*; got 9223372036854775807"),
        ("counters", "now_us", (1 << 63) - 1, "now_us must be an integer from .*; got 9223372036854775807"),
        ("counters", "late", -1, "late must be an integer from 0"),
        ("counters", "now_us", 0.5, "now_us must be an integer from"),
    ],
)
def test_a_manifest_that_does_not_fit_its_files_is_refused(saved, tmp_path, table, key, value, words):
    copy = copy_of(saved[0][0], tmp_path)
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest[table][key] = value
    rewrite(copy, manifest)
    with pytest.raises(nc.FormatError, match=f"is not a saved engine of version .*{words}"):
        nc.Engine.load(copy)


SEALED = {"counters": {"seq": 3}, "tables": {"results": pa.table({"a": [1, 2]})}}


@search(usual=40)
@given(data=st.data())
def test_a_damaged_seal_is_refused(tmp_path_factory, data):
    """A process that finds one builds its engine again."""
    path = tmp_path_factory.getbasetemp() / "sealed"
    folder = EngineFolder(path)
    folder.clear()
    folder.seal("mark", Sealed(**SEALED))
    name = data.draw(st.sampled_from(["seal.json", "seal.json", "results.arrow"]))
    whole = (path / name).read_bytes()
    texts = JSON.map(lambda value: json.dumps(value).encode()) | st.just(b"[" * 20_000)
    (path / name).write_bytes(data.draw(damaged(whole) | st.binary(max_size=30) | texts))
    assert folder.is_sealed("mark") in (True, False)
    try:
        EngineFolder(path).open("mark")
    except (nc.StateError, nc.FormatError) as error:
        assert len(str(error)) < 2_000


@search(usual=10)
@given(text=st.text(max_size=40) | JSON.map(json.dumps) | st.integers(1, 20_000).map(lambda n: "[" * n))
def test_any_text_in_place_of_a_manifest_is_refused(saved, tmp_path_factory, text):
    copy = copy_of(saved[0][0], tmp_path_factory.getbasetemp())
    (copy / "manifest.json").write_bytes(text.encode(errors="surrogatepass"))
    assert not check_load(copy, None)
