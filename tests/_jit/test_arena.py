import itertools
import json
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast._jit import Arena
from nearcast._jit.manifest import MANIFEST
from nearcast.errors import FormatError, InvalidInput, StateError

thorough = settings(max_examples=int(os.environ.get("NEARCAST_TEST_EXAMPLES", "50")), derandomize=True, database=None)

RECORD = np.dtype([("id", "<i8"), ("corner", "<f8", (2,)), ("inner", [("k", "<i4"), ("flag", "?")])])


@pytest.fixture(params=["heap", "folder"])
def arena(request, tmp_path):
    with Arena() if request.param == "heap" else Arena(tmp_path / "arena") as arena:
        yield arena


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "arena"


def files(folder):
    return sorted(path.name.split(".")[0] for path in folder.glob("*.array"))


def test_a_new_array_is_a_filled_writable_ndarray(arena):
    xs = arena.new("xs", np.float64, 5, fill=-2.5)
    assert type(xs) is np.ndarray
    assert xs.flags.writeable
    assert xs.flags.c_contiguous
    assert xs.tolist() == [-2.5] * 5
    xs[3] = 1
    assert arena["xs"][3] == 1


@pytest.mark.parametrize("fill", [0, 7, -1])
def test_growing_keeps_contents_and_fills_the_new_part(arena, fill):
    arena.new("xs", np.int32, 3, fill)[:] = 1, 2, 3
    grown = arena.grow("xs", 4)
    assert grown[:3].tolist() == [1, 2, 3]
    assert set(grown[3:].tolist()) == {fill}
    assert arena["xs"] is grown
    assert arena.grow("xs", 4) is grown


def test_growing_is_geometric(arena):
    arena.new("xs", np.int8, 0)
    lengths = {len(arena.grow("xs", at_least)) for at_least in range(1, 100_000, 100)}
    assert len(lengths) < 30


def test_rows_keep_their_columns(arena):
    arena.new("pairs", np.int64, 2, fill=9, columns=3)[:] = [[1, 2, 3], [4, 5, 6]]
    grown = arena.grow("pairs", 50)
    assert grown.shape[1] == 3
    assert grown[:3].tolist() == [[1, 2, 3], [4, 5, 6], [9, 9, 9]]


def test_renewing_gives_a_fresh_array_and_leaves_the_old_one_readable(arena):
    old = arena.new("xs", np.int64, 4, fill=5)
    old[:] = 1
    assert arena.renew("xs", 2).tolist() == [5, 5]
    assert old.tolist() == [1, 1, 1, 1]


def test_names_and_bytes(arena):
    arena.new("a", np.int64, 4)
    arena.new("b.c", np.uint8, 3)
    assert (arena.names, arena.nbytes, "a" in arena) == (("a", "b.c"), 35, True)
    arena.drop("a")
    assert (arena.names, arena.nbytes, "a" in arena) == (("b.c",), 3, False)
    with pytest.raises(KeyError, match=r"the arena holds no array 'a'; it holds b\.c"):
        arena["a"]


@pytest.mark.parametrize(
    ("name", "dtype", "length", "complaint"),
    [
        ("../x", np.int64, 1, r"name must match"),
        ("xs", np.int64, 1, r"name must be new to the arena; got 'xs'"),
        ("ys", object, 1, r"dtype must not hold Python objects; got dtype\('O'\) \(array 'ys'\)"),
        ("ys", np.int64, -1, r"length must be at least 0; got -1 \(array 'ys'\)"),
    ],
)
def test_bad_names_dtypes_and_shapes_are_refused(arena, name, dtype, length, complaint):
    arena.new("xs", np.int64, 1)
    with pytest.raises(InvalidInput, match=complaint):
        arena.new(name, dtype, length)
    assert arena.names == ("xs",)


def test_a_closed_arena_raises(arena):
    arena.new("xs", np.int64, 1)
    arena.close()
    for use in (lambda: arena["xs"], lambda: arena.new("ys", np.int64, 1), lambda: arena.save("anywhere")):
        with pytest.raises(StateError, match="the arena is closed"):
            use()


def test_a_view_outlives_the_arena(arena):
    xs = arena.new("xs", np.int64, 3, fill=4)
    arena.close()
    assert xs.sum() == 12


@thorough
@given(
    dtype=st.sampled_from(
        [np.dtype(name) for name in ("?", "u1", "<i4", "<i8", ">i8", "<f8", "S3", "<M8[us]")] + [RECORD]
    ),
    shape=st.tuples(st.integers(0, 5)) | st.tuples(st.integers(0, 5), st.integers(0, 3)),
    data=st.binary(min_size=5 * 3 * RECORD.itemsize, max_size=5 * 3 * RECORD.itemsize),
)
def test_every_dtype_and_shape_is_restored_byte_by_byte(tmp_path_factory, dtype, shape, data):
    folder = tmp_path_factory.mktemp("arena")
    arena = Arena()
    array = arena.new("x", dtype, shape[0], columns=shape[1] if len(shape) == 2 else None)
    array.view(np.uint8).reshape(-1)[:] = np.frombuffer(data, np.uint8)[: array.nbytes] if array.nbytes else 0
    arena.save(folder)
    for again in (Arena.load(folder), Arena.attach(folder)):
        assert (again["x"].dtype, again["x"].shape, again["x"].flags.writeable) == (dtype, shape, True)
        assert again["x"].tobytes() == array.tobytes()


@pytest.mark.parametrize("fill", [0, float("nan"), -0.0, float("inf")])
def test_the_fill_value_is_restored_exactly(folder, fill):
    arena = Arena()
    arena.new("xs", np.float64, 1, fill)
    arena.save(folder)
    for again in (Arena.load(folder), Arena.attach(folder)):
        assert again.grow("xs", 9).tobytes() == np.full(again["xs"].size, fill).tobytes()


def test_a_record_may_be_a_fill_value(arena):
    one = arena.new("records", RECORD, 1, fill=(7, (0.5, 1.5), (3, True)))[0].tobytes()
    assert [record.tobytes() for record in arena.grow("records", 2)[:2]] == [one, one]
    assert arena["records"]["corner"][1].tolist() == [0.5, 1.5]


def test_mapped_arrays_are_visible_after_attach(folder):
    first = Arena(folder)
    first.new("xs", np.int64, 4)[:] = 1, 2, 3, 4
    second = Arena.attach(folder)
    second["xs"][0] = 9
    assert first["xs"][0] == 9
    second.grow("xs", 100)[99] = 5
    second.new("ys", np.int8, 1)
    third = Arena.attach(folder)
    assert (third["xs"][0], third["xs"][99], third.names) == (9, 5, ("xs", "ys"))


def test_a_loaded_arena_is_a_copy(folder):
    mapped = Arena(folder)
    mapped.new("xs", np.int64, 1)
    loaded = Arena.load(folder)
    loaded["xs"][0] = 9
    loaded.grow("xs", 100)
    assert (mapped["xs"][0], Arena.load(folder)["xs"].size) == (0, 1)


def test_creating_an_arena_in_a_folder_that_holds_one_is_refused(folder):
    Arena(folder).close()
    with pytest.raises(StateError, match=r"holds an arena already; use Arena\.attach"):
        Arena(folder)


def test_dropped_and_renewed_files_are_deleted(folder):
    arena = Arena(folder)
    arena.new("xs", np.int64, 4)
    arena.new("ys", np.int64, 4)
    arena.renew("xs", 2)
    arena.drop("ys")
    assert files(folder) == ["xs"]


def test_saving_over_a_saved_arena_replaces_it(folder):
    for contents in ([1, 2], [3]):
        arena = Arena()
        arena.new(f"xs{len(contents)}", np.int64, len(contents))[:] = contents
        arena.save(folder)
    assert Arena.load(folder).names == ("xs1",)
    assert files(folder) == ["xs1"]


def test_a_failed_save_leaves_the_previous_one(folder, monkeypatch):
    arena = Arena()
    arena.new("xs", np.int64, 1)[:] = 1
    arena.save(folder)
    arena["xs"][:] = 2

    def fail(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        arena.save(folder)
    monkeypatch.undo()
    assert Arena.load(folder)["xs"][0] == 1
    arena.save(folder)
    assert Arena.load(folder)["xs"][0] == 2
    assert files(folder) == ["xs"]


def test_saving_a_mapped_arena_to_its_own_folder_keeps_it(folder):
    arena = Arena(folder)
    arena.new("xs", np.int64, 2)[:] = 1, 2
    arena.save(folder)
    assert Arena.load(folder)["xs"].tolist() == [1, 2]


def test_changes_made_together_are_seen_as_one(folder):
    arena = Arena(folder)
    arena.new("xs", np.int64, 2)[:] = 1, 2
    with arena.together():
        arena.renew("xs", 3)[:] = 4, 5, 6
        arena.new("ys", np.int64, 1)
        before = Arena.load(folder)
        assert (before.names, before["xs"].tolist()) == (("xs",), [1, 2])
    after = Arena.load(folder)
    assert (after.names, after["xs"].tolist()) == (("xs", "ys"), [4, 5, 6])


def test_changes_that_fail_together_are_undone(arena, tmp_path):
    old = arena.new("xs", np.int64, 2)
    arena.new("zs", np.int64, 2)
    with pytest.raises(InvalidInput, match="length"), arena.together():
        arena.renew("xs", 50)
        arena.grow("zs", 50)
        arena.new("ys", np.int64, -1)
    assert (arena.names, arena["xs"] is old, arena["zs"].size) == (("xs", "zs"), True, 2)
    assert set(arena.grow("zs", 50).tolist()) == {0}


def test_an_interrupted_growth_loses_nothing(folder):
    arena = Arena(folder)
    arena.new("xs", np.int64, 2)[:] = 1, 2
    arena.close()
    (path,) = folder.glob("*.array")
    with path.open("ab") as file:  # the file grew, the manifest did not
        file.write(b"\xff" * 80)
    again = Arena.attach(folder)
    assert again["xs"].tolist() == [1, 2]
    assert again.grow("xs", 8).tolist()[:8] == [1, 2, 0, 0, 0, 0, 0, 0]


LARGE = 300_000  # int64, more than the largest array that is copied


@pytest.fixture(params=["granted", "refused", "folder"])
def roomy(request, tmp_path, monkeypatch):
    """Arenas that grow large arrays in different ways."""
    if request.param == "refused":

        def refuse(*_, **__):
            raise OSError(12, "Cannot allocate memory")

        monkeypatch.setattr("nearcast._jit.reservation.mmap.mmap", refuse)
    with Arena(tmp_path / "arena") if request.param == "folder" else Arena() as arena:
        yield arena


@pytest.mark.parametrize("fill", [0, -1])
def test_a_large_array_grows_like_a_small_one(roomy, fill):
    xs = roomy.new("xs", np.int64, LARGE, fill, columns=2)
    xs[:, 0] = np.arange(LARGE)
    for at_least in (LARGE + 1, LARGE + 70_000, 3 * LARGE):
        before = roomy["xs"].shape[0]
        grown = roomy.grow("xs", at_least)
        assert grown.shape[0] >= at_least
        assert (grown[before:] == fill).all()
        assert roomy["xs"] is grown
    assert (grown[:LARGE, 0] == np.arange(LARGE)).all()
    assert (grown[:LARGE, 1] == fill).all()
    assert (grown.flags.c_contiguous, grown.flags.writeable, type(grown)) == (True, True, np.ndarray)
    assert xs[LARGE - 1, 0] == LARGE - 1


@pytest.mark.parametrize("fill", [0, 3])
def test_an_undone_growth_leaves_no_trace(roomy, fill):
    roomy.new("xs", np.int64, LARGE, fill)
    with pytest.raises(ZeroDivisionError), roomy.together():
        roomy.grow("xs", 2 * LARGE)[LARGE:] = 9
        raise ZeroDivisionError
    assert roomy["xs"].size == LARGE
    assert set(roomy.grow("xs", 3 * LARGE).tolist()) == {fill}


def test_arrays_that_grow_together_have_one_length(roomy):
    dtypes = {"bytes": np.uint8, "longs": np.int64, "floats": np.float32}
    for name, dtype in dtypes.items():
        roomy.new(name, dtype, 0, fill=1)
    for at_least in (1, 10, 1000, 60_000, 200_000, 200_001, 900_000, 1_500_000):
        roomy.grow_all(dtypes, at_least)
        lengths = {roomy[name].size for name in dtypes}
        assert len(lengths) == 1
        assert lengths.pop() >= at_least
    roomy.grow("bytes", 2_000_000)
    roomy.grow_all(dtypes, 5)
    assert len({roomy[name].size for name in dtypes}) == 1
    assert all((roomy[name] == 1).all() for name in dtypes)


def test_a_large_array_on_the_heap_grows_in_place_by_fixed_steps():
    arena = Arena()
    xs = arena.new("xs", np.int64, LARGE)
    addresses, lengths = {xs.ctypes.data}, [LARGE]
    for _ in range(20):
        grown = arena.grow("xs", lengths[-1] + 1)
        addresses.add(grown.ctypes.data)
        lengths.append(grown.size)
    grown[5] = 7
    assert xs[5] == 7  # the same bytes
    assert len(addresses) == 1
    assert len({b - a for a, b in itertools.pairwise(lengths)}) == 1  # by a fixed step
    assert arena.nbytes == grown.nbytes  # without the reserved addresses


def test_an_array_that_outgrows_its_reserved_addresses_moves(monkeypatch):
    monkeypatch.setattr("nearcast._jit.reservation._memory", lambda: 1)
    arena = Arena()
    xs = arena.new("xs", np.int64, LARGE, fill=2)  # twice as much is reserved
    xs[:] = 1
    assert arena.grow("xs", LARGE + 1).ctypes.data == xs.ctypes.data
    grown = arena.grow("xs", 3 * LARGE)
    assert grown.ctypes.data != xs.ctypes.data
    assert ((grown[:LARGE] == 1).all(), (grown[LARGE:] == 2).all()) == (True, True)


def test_small_arrays_reserve_nothing(monkeypatch):
    monkeypatch.setattr("nearcast._jit.arena.reserve", lambda nbytes: pytest.fail(f"reserved for {nbytes}"))
    arena = Arena()
    arena.new("xs", np.int64, 1)
    arena.grow("xs", 1 << 17)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="counts the mappings of the process")
def test_addresses_are_released_with_the_last_view():
    def mapped():
        with Path("/proc/self/maps").open() as maps:
            ranges = [line.split()[0].split("-") for line in maps]
        return sum(int(end, 16) - int(start, 16) for start, end in ranges)

    before = mapped()
    arena = Arena()
    view = arena.new("xs", np.int64, LARGE)[7:9]
    reserved = mapped() - before
    assert reserved > LARGE * 8
    little = reserved // 2  # what other parts of the process may map meanwhile
    arena.renew("xs", 3)
    assert mapped() > before + little
    del view
    assert mapped() < before + little
    arena.grow("xs", LARGE)
    assert mapped() > before + little
    arena.drop("xs")
    assert mapped() < before + little


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_process_with_many_large_arrays_can_still_fork():
    """Starting Spark forks. Reserved addresses are not committed memory, which a child would need again."""
    arena = Arena()
    for i in range(40):
        arena.new(f"xs{i}", np.int64, LARGE)
    child = os.fork()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_a_loaded_large_array_can_grow_in_place(folder):
    arena = Arena()
    arena.new("xs", np.int64, LARGE, fill=5)[:3] = 1, 2, 3
    arena.save(folder)
    loaded = Arena.load(folder)
    xs = loaded["xs"]
    grown = loaded.grow("xs", 2 * LARGE)
    assert (grown[:3].tolist(), set(grown[3:].tolist())) == ([1, 2, 3], {5})
    assert grown.ctypes.data == xs.ctypes.data


def change_manifest(folder, **changes):
    path = folder / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def truncate(folder):
    (path,) = folder.glob("*.array")
    os.truncate(path, 12)


@pytest.mark.parametrize("reopen", [Arena.load, Arena.attach])
@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda folder: (folder / MANIFEST).unlink(), r"must hold an arena; found no arena\.json"),
        (lambda folder: (folder / MANIFEST).write_text("{"), r"arena\.json must be JSON"),
        (lambda folder: (folder / MANIFEST).write_text("[]"), r"must be 'nearcast arena' version 1; found None"),
        (lambda folder: change_manifest(folder, version=9), r"version 1; found 'nearcast arena' version 9"),
        (lambda folder: change_manifest(folder, format="other"), r"found 'other' version 1"),
        (lambda folder: change_manifest(folder, arrays=[]), r"must list its arrays by name; found \[\]"),
        (lambda folder: change_manifest(folder, arrays={"xs": {}}), r"must describe array 'xs'; found \{\}"),
        (lambda folder: next(folder.glob("*.array")).unlink(), r"array 'xs' must be in .*; found no such file"),
        (truncate, r"must hold 16 bytes of array 'xs'; found 12"),
        (
            lambda folder: change_manifest(
                folder, arrays={"xs": {"dtype": "<i8", "shape": [1], "fill": "00" * 8, "file": "../x"}}
            ),
            r"array 'xs' must be a file of .* itself; found '\.\./x'",
        ),
    ],
)
def test_a_damaged_folder_is_refused_with_expected_and_actual_values(folder, reopen, damage, complaint):
    arena = Arena()
    arena.new("xs", np.int64, 2)
    arena.save(folder)
    damage(folder)
    with pytest.raises(FormatError, match=complaint):
        reopen(folder)


class TestBundles:
    class Points(NamedTuple):
        xs: np.ndarray
        ys: np.ndarray

    def made(self):
        arena = Arena()
        for name in ("p.xs", "p.ys", "other"):
            arena.new(name, np.float64, 2)
        return arena

    def test_a_bundle_is_the_same_until_an_array_changes(self):
        arena = self.made()
        bundle = arena.bundle("p", self.Points)
        assert arena.bundle("p", self.Points) is bundle
        arena.grow("p.xs", 100)
        assert arena.bundle("p", self.Points).xs is arena["p.xs"] is not bundle.xs

    @pytest.mark.parametrize("change", ["renew", "drop", "fail", "close"])
    def test_a_bundle_never_holds_an_array_that_was_replaced(self, change):
        arena = self.made()
        arena.bundle("p", self.Points)
        if change == "renew":
            arena.renew("p.ys", 5)
            assert len(arena.bundle("p", self.Points).ys) == 5
        elif change == "drop":
            arena.drop("p.ys")
            with pytest.raises(KeyError):
                arena.bundle("p", self.Points)
        elif change == "close":
            arena.close()
            with pytest.raises(StateError):
                arena.bundle("p", self.Points)
        else:
            with pytest.raises(ZeroDivisionError), arena.together():
                arena.renew("p.ys", 5)
                assert len(arena.bundle("p", self.Points).ys) == 5
                raise ZeroDivisionError
            assert len(arena.bundle("p", self.Points).ys) == 2
