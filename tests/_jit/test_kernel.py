import json
import math
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from numba import config

import nearcast._jit
from effort import in_soak
from nearcast._jit import cache_folder, compiled_signatures, kernel, kernel_sources, kernels, stats
from nearcast._jit.fingerprint import folder_digest, machine, sources_behind
from nearcast.space.metric import euclidean

PACKAGE = Path(nearcast._jit.__file__).parents[1]
jit_is_off = bool(config.DISABLE_JIT)

REPORT = """
from nearcast._jit import compiled_signatures, stats
import json
print(json.dumps({"value": value, "compiled": compiled_signatures(), "hits": stats().hits,
                  "misses": stats().misses, "folder": stats().folder.name, "path": str(stats().folder)}))
"""

MATCH = "nearcast.index._kernels.top.match"

USE_A_TABLE = """
from nearcast._jit import Arena, Table
table = Table(Arena(), "t")
table.put(-5, 7)
value = table.get(-5)
"""


def start(script, cache, stdin=None, **environment):
    """Start a process that runs the script and reports which kernels were compiled or loaded."""
    defaults = {
        "NEARCAST_CACHE": os.fspath(cache),
        "PYTHONPATH": os.fspath(PACKAGE.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(script) + REPORT]
    return subprocess.Popen(
        command,
        env=os.environ | defaults | environment,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


COMPILING = "Nearcast compiles its kernels, once per machine; `nearcast warmup` does this in advance.\n"


def finish(process, typed=None):
    out, error = process.communicate(typed, timeout=600)
    assert process.returncode == 0, error
    assert error in ("", COMPILING)
    return json.loads(out.splitlines()[-1])


def run(script, cache, **environment):
    return finish(start(script, cache, **environment))


class Package:
    """A copy of the package in which kernel sources are added and changed."""

    def __init__(self, folder):
        self.folder, self.cache = folder, folder / "cache"
        self.package = folder / "nearcast"
        for name in ("_jit", "space"):
            shutil.copytree(PACKAGE / name, self.package / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("errors.py", "worker_pool.py"):
            shutil.copy(PACKAGE / name, self.package)
        (self.package / "__init__.py").touch()
        (self.package / "index" / "_kernels").mkdir(parents=True)

    def write(self, constant=None, **kernels):
        """Write `constant.py`, which is not a kernel source, and some kernel sources."""
        if constant is not None:
            (self.package / "constant.py").write_text(constant)
        for name, text in kernels.items():
            imports = "from nearcast._jit.kernel import kernel\n"
            (self.package / "index" / "_kernels" / f"{name}.py").write_text(imports + textwrap.dedent(text))

    def outcome(self, script):
        """Return the value of a script in its own process, and how many kernels were compiled."""
        report = run(script, self.cache, PYTHONPATH=os.fspath(self.folder))
        return report["value"], report["misses"]


@pytest.fixture
def package(tmp_path):
    return Package(tmp_path)


@kernel
def twice(x):
    return 2 * x


@kernel
def apply(function, x):
    return function(x) + 1


def hypotenuse(a, b):
    return math.sqrt(a * a + b * b)


class TestDecorator:
    def test_a_plain_function_has_one_kernel_and_stays_plain(self):
        compiled = kernel(hypotenuse)
        assert kernel(hypotenuse) is compiled
        assert kernel(compiled) is compiled
        assert compiled(3.0, 4.0) == hypotenuse(3.0, 4.0) == 5.0

    def test_a_metric_of_the_space_compiles_as_a_kernel(self):
        assert kernel(euclidean)(0.0, 0.0, 3.0, 4.0) == 5.0

    def test_a_closure_is_refused(self):
        factor = 3

        def scale(x):
            return factor * x

        with pytest.raises(TypeError, match="scale must not close over variables; it uses factor"):
            kernel(scale)

    def test_kernels_may_be_handed_to_kernels(self):
        assert apply(twice, 4) == 9

    @pytest.mark.skipif(jit_is_off, reason="compiles nothing")
    def test_a_kernel_is_always_inlined_if_it_asks_for_it(self, tmp_path):
        script = """
            from nearcast._jit import kernel

            @kernel
            def called(x): return x + 1

            @kernel(inline=True)
            def inlined(x): return x + 1

            assert called(1) == inlined(1) == 2
            value = ["alwaysinline" in f.inspect_llvm(f.signatures[0]) for f in (called, inlined)]
        """
        assert run(script, tmp_path)["value"] == [False, True]

    def test_a_kernel_pickles_by_name(self):
        assert pickle.loads(pickle.dumps(nearcast._jit.mix)) is nearcast._jit.mix

    def test_every_kernel_of_the_package_is_among_the_hashed_sources(self):
        sources = set(kernel_sources())
        ours = {name: made for name, made in kernels().items() if name.startswith("nearcast.")}
        assert "nearcast._jit.table.table_put" in ours
        files = {name: made.__code__.co_filename for name, made in ours.items()}
        missing = {name for name, file in files.items() if Path(file) not in sources and "<doctest" not in file}
        assert missing == set()

    @pytest.mark.skipif(jit_is_off, reason="nothing is compiled with the JIT off")
    def test_a_call_is_counted_once(self):
        @kernel
        def thrice(x):
            return 3 * x

        before = stats()
        assert (thrice(5), thrice(6)) == (15, 18)
        after = stats()
        assert after.hits + after.misses == before.hits + before.misses + 1
        assert len(compiled_signatures()) == after.misses


class TestFolder:
    def test_its_name_depends_on_the_compiler_and_the_machine(self, monkeypatch, tmp_path):
        shutil.copytree(PACKAGE / "_jit", tmp_path / "_jit", ignore=shutil.ignore_patterns("__pycache__"))
        first = folder_digest(tmp_path)
        assert first == folder_digest(PACKAGE) == cache_folder().name.removeprefix("kernels-")

        (tmp_path / "index" / "_kernels").mkdir(parents=True)
        (tmp_path / "index" / "_kernels" / "grid.py").write_text("A = 1\n")
        assert folder_digest(tmp_path) == first  # kernels are not part of the compiler

        with (tmp_path / "_jit" / "kernel.py").open("a") as file:
            file.write("A = 1\n")
        assert folder_digest(tmp_path) != first

        monkeypatch.setattr("nearcast._jit.fingerprint.machine", lambda: machine() | {"boundscheck": "other"})
        assert folder_digest(PACKAGE) != first

    def test_the_machine_includes_cpu_and_versions(self):
        assert {"python", "numba", "llvmlite", "numpy", "cpu", "boundscheck", "debug"} <= machine().keys()

    @pytest.mark.parametrize("place", ["under a file", "in the user's cache"])
    def test_a_fallback_is_used_silently_if_the_first_folder_is_not_writable(self, tmp_path, place):
        (tmp_path / "file").touch()
        script = "value = 0"
        if place == "under a file":
            found = run(script, tmp_path / "file" / "cache", TMPDIR=os.fspath(tmp_path))
            assert Path(found["path"]).parent == tmp_path / f"nearcast-{os.getuid()}"
            assert Path(found["path"]).parent.stat().st_mode & 0o077 == 0
        else:
            found = run(script, "", XDG_CACHE_HOME=os.fspath(tmp_path))
            assert Path(found["path"]).parent == tmp_path / "nearcast" / "kernels"

    def test_only_versions_unused_for_a_month_are_deleted(self, tmp_path):
        old, recent, foreign = (tmp_path / name for name in ("kernels-" + "0" * 24, "kernels-" + "1" * 24, "mine"))
        for folder in (old, recent, foreign):
            folder.mkdir()
        for folder in (old, foreign):
            os.utime(folder, (0, 0))
        used = run("value = 0", tmp_path)["folder"]
        assert {path.name for path in tmp_path.iterdir()} == {used, recent.name, foreign.name}


class TestSources:
    def test_the_sources_of_a_module_are_its_imports_up_to_kernel_sources(self, tmp_path):
        texts = {
            "index/_kernels/top/match.py": "from nearcast._jit import kernel\nfrom . import layout as l\nimport numpy\n",
            "index/_kernels/top/layout.py": "def f():\n    from nearcast.space import metric\n",
            "index/_kernels/top/__init__.py": "from nearcast.index._kernels.top.change import A\n",
            "index/_kernels/top/change.py": "from ..other import B\nfrom nearcast.model.message import C\n",
            "index/_kernels/other.py": "import nearcast.text.weights\n",
            "index/_kernels/apart.py": "from nearcast.index._kernels.top import match\n",
            "space/__init__.py": "",
            "space/metric.py": "from nearcast.space import metric\n",
            "space/box.py": "",
            "text/weights.py": "",
            "model/message.py": "from nearcast.index._kernels.apart import D\n",
            "_jit/__init__.py": "from nearcast.space import box\n",
        }
        for name, text in texts.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        behind = {path.relative_to(tmp_path).as_posix() for path in sources_behind(MATCH, tmp_path)}
        assert behind == texts.keys() - {
            "index/_kernels/apart.py",  # imports a source, but is not imported
            "space/box.py",  # not imported either
            "model/message.py",  # no kernels in it
            "_jit/__init__.py",  # part of the folder's name
        }

    def test_the_source_of_every_kernel_is_included(self):
        for name, made in kernels().items():
            file = Path(made.__code__.co_filename)
            if file in set(kernel_sources()) and PACKAGE / "_jit" not in file.parents:
                assert file in sources_behind(made.__module__), name


@pytest.mark.skipif(jit_is_off, reason="nothing is compiled with the JIT off")
class TestArrays:
    """Kernels that do not declare that they allocate."""

    def refuse_twice(self, made, argument, problem):
        for _ in range(2):  # what is refused must not be found among the compiled code
            with pytest.raises(TypeError, match=f"{problem} arrays: declare it with allocates=True"):
                made(argument)

    def test_one_that_returns_an_array_is_refused_at_every_call(self):
        @kernel
        def itself(xs):
            return xs

        self.refuse_twice(itself, np.arange(3), "returns")

    def test_one_that_returns_an_array_in_a_tuple_is_refused_at_every_call(self):
        @kernel
        def pair(xs):
            return xs, 1

        self.refuse_twice(pair, np.arange(3), "returns")

    def test_one_that_makes_an_array_is_refused_at_every_call(self):
        @kernel
        def doubled(xs):
            return (xs * 2).sum()

        self.refuse_twice(doubled, np.arange(3), "makes")

    def test_one_that_allocates_may_return_an_array(self):
        @kernel(allocates=True)
        def itself(xs):
            return xs

        assert itself(np.arange(3)).tolist() == [0, 1, 2]


@pytest.mark.skipif(jit_is_off, reason="nothing is compiled with the JIT off")
class TestCache:
    def test_the_second_process_compiles_nothing(self, tmp_path):
        first, second = run(USE_A_TABLE, tmp_path), run(USE_A_TABLE, tmp_path)
        assert (first["value"], second["value"]) == (7, 7)
        assert first["misses"] > 0
        assert any(name.startswith("nearcast._jit.table.mix(") for name in first["compiled"])
        assert (second["misses"], second["compiled"]) == (0, [])
        assert second["hits"] > 0

    def test_of_two_processes_that_start_at_once_one_compiles(self, tmp_path):
        reports = [finish(process) for process in [start(USE_A_TABLE, tmp_path), start(USE_A_TABLE, tmp_path)]]
        compiled = [name for report in reports for name in report["compiled"]]
        assert [report["value"] for report in reports] == [7, 7]
        assert compiled
        assert len(compiled) == len(set(compiled))

    def test_of_two_threads_one_compiles(self, tmp_path):
        report = run(
            """
            import threading
            from nearcast._jit import mix
            together, values = threading.Barrier(4), []
            def work():
                together.wait()
                values.append(mix(12345))
            threads = [threading.Thread(target=work) for _ in range(4)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            value = len(values) if len(set(values)) == 1 else 0
            """,
            tmp_path,
        )
        assert (report["value"], report["misses"]) == (4, 1)

    def test_literals_and_narrow_integers_are_not_specialised(self, tmp_path):
        report = run(
            """
            import numpy as np
            from nearcast._jit import kernel

            @kernel
            def twice(x): return 2 * x

            @kernel
            def total(slots, tags): return twice(1) + twice(2) + twice(slots[0]) + twice(tags[0])

            value = [int(total(np.array([-3], np.int32), np.array([200], np.uint8)))]
            value += [str(signature) for signature in twice.signatures]
            """,
            tmp_path,
        )
        assert report["value"] == [400, "(int64,)"]

    @pytest.mark.parametrize("damage", ["truncated", *in_soak([("garbage",), ("empty",)])])
    def test_damaged_files_are_compiled_again(self, tmp_path, damage):
        script = "from nearcast._jit import mix; value = mix(1)"
        first = run(script, tmp_path)
        (path,) = Path(first["path"]).glob("*.code")
        whole = path.read_bytes()
        path.write_bytes({"garbage": b"garbage" * 100, "truncated": whole[:-10], "empty": b""}[damage])
        second, third = run(script, tmp_path), run(script, tmp_path)
        assert first["value"] == second["value"] == third["value"]
        assert (second["misses"], third["misses"]) == (1, 0)

    def test_code_is_never_stale(self, package):
        """A callee, a constant and a field order change in other files; the caller's own file does not."""
        package.write(
            constant="FACTOR = 10\nFIELDS = ['a', 'b']\n",
            callee="@kernel\ndef callee(x): return x + 1\n",
            caller="""
                from nearcast.constant import FACTOR
                from nearcast.index._kernels.callee import callee

                @kernel
                def caller(pair): return callee(pair.a) * FACTOR
                """,
        )
        script = """
        from collections import namedtuple
        from nearcast.constant import FIELDS
        from nearcast.index._kernels.caller import caller
        import nearcast.constant
        nearcast.constant.Pair = Pair = namedtuple("Pair", FIELDS, module="nearcast.constant")
        value = caller(Pair(1, 2))
        """
        assert package.outcome(script) == (20, 2)
        assert package.outcome(script) == (20, 0)

        package.write(callee="@kernel\ndef callee(x): return x + 2\n")
        assert package.outcome(script) == (30, 2)

        package.write(
            constant="FACTOR = 100\nFIELDS = ['a', 'b']\n"
        )  # not a kernel source, and read by the caller only
        assert package.outcome(script) == (300, 1)

        package.write(constant="FACTOR = 100\nFIELDS = ['b', 'a']\n")
        assert package.outcome(script) == (400, 1)

    def test_a_change_recompiles_what_could_differ_and_nothing_else(self, package):
        package.write(
            low="@kernel\ndef low(x): return x + 1\n",
            high="from nearcast.index._kernels.low import low\n@kernel\ndef high(x): return low(x) * 10\n",
            apart="@kernel\ndef apart(x): return x + 1000\n",
        )
        script = """
        from nearcast.index._kernels.apart import apart
        from nearcast.index._kernels.high import high
        value = high(1) + apart(1)
        """
        assert package.outcome(script) == (1021, 3)
        package.write(apart="@kernel\ndef apart(x): return x + 2000\n")
        assert package.outcome(script) == (2021, 1)
        package.write(high="from nearcast.index._kernels.low import low\n@kernel\ndef high(x): return low(x) * 20\n")
        assert package.outcome(script) == (2041, 1)
        package.write(low="@kernel\ndef low(x): return x + 2\n")
        assert package.outcome(script) == (2061, 2)

    @pytest.mark.soak
    def test_code_of_intrinsics_is_never_stale(self, package):
        """An intrinsic is called by a kernel that imports it from a third file, and by one outside the package."""
        intrinsic = """
            from llvmlite import ir
            from numba.core import types
            from numba.extending import intrinsic

            @intrinsic
            def number(context):
                def generate(context, builder, signature, arguments):
                    return ir.Constant(ir.IntType(64), NUMBER)
                return types.int64(), generate
            """
        package.write(
            made=intrinsic.replace("NUMBER", "5"),
            handed="from nearcast.index._kernels.made import number\n",
            caller="from nearcast.index._kernels.handed import number\n@kernel\ndef caller(x): return x + number()\n",
        )
        script = """
        import sys
        sys.path.insert(0, OUTSIDE)
        from nearcast.index._kernels.caller import caller
        from outside import outer
        value = [caller(0), outer(0)]
        """.replace("OUTSIDE", repr(os.fspath(package.folder)))
        (package.folder / "outside.py").write_text(
            "from nearcast._jit.kernel import kernel\nfrom nearcast.index._kernels.handed import number\n"
            "@kernel\ndef outer(x): return x - number()\n"
        )
        assert package.outcome(script) == ([5, -5], 2)
        assert package.outcome(script) == ([5, -5], 0)
        package.write(made=intrinsic.replace("NUMBER", "6"))
        assert package.outcome(script) == ([6, -6], 2)

    def test_two_processes_compile_different_kernels_at_once(self, tmp_path):
        """One process holds the lock of a kernel while the other compiles another kernel."""
        script = """
        import sys
        from nearcast._jit import mix, table_first_slot
        from nearcast._jit.cache import KernelCache
        from numba import int64
        with KernelCache(mix.py_func).lock_if_missing((int64,)):
            print("held", flush=True)
            sys.stdin.readline()
        value = 0
        """
        holder = start(script, tmp_path, stdin=subprocess.PIPE)
        try:
            assert holder.stdout.readline() == "held\n"
            other = run("from nearcast._jit import kernel\n@kernel\ndef f(x): return x + 1\nvalue = f(1)\n", tmp_path)
            assert (other["value"], other["misses"]) == (2, 1)
        finally:
            finish(holder, "go on\n")

    @pytest.mark.soak
    def test_mutually_recursive_kernels_compile_in_two_processes_at_once(self, tmp_path):
        (tmp_path / "ring.py").write_text(
            textwrap.dedent(
                """
                from nearcast._jit import kernel

                @kernel
                def even(n):
                    if n == 0:
                        return True
                    return odd(n - 1)

                @kernel
                def odd(n):
                    if n == 0:
                        return False
                    return even(n - 1)
                """
            )
        )
        path = os.pathsep.join([os.fspath(tmp_path), os.fspath(PACKAGE.parent)])
        started = [
            start(
                f"import nearcast._jit.cache as c; c._PATIENCE_S = 1; import ring; value = ring.{name}(7)",
                tmp_path / "cache",
                PYTHONPATH=path,
            )
            for name in ("even", "odd")
        ]
        assert [finish(process)["value"] for process in started] == [False, True]

    @pytest.mark.soak
    def test_cached_code_of_two_processes_can_be_loaded_into_one(self, tmp_path):
        """Numba builds a sort from numbered functions; two processes give the same numbers to different functions."""
        (tmp_path / "orders.py").write_text(
            textwrap.dedent(
                """
                import numpy as np
                from nearcast._jit import kernel

                @kernel
                def put_in_order(xs):
                    xs.sort()

                @kernel
                def order_of(xs):
                    return np.argsort(xs)

                def both(first):
                    xs = np.random.default_rng(0).integers(0, 1000, 200)
                    for one in (put_in_order, order_of)[:: 1 if first == "sort" else -1]:
                        if one is put_in_order:
                            ys = xs.copy()
                            one(ys)
                        else:
                            ys = xs[one(xs)]
                        assert (np.diff(ys) >= 0).all(), one
                    return True
                """
            )
        )
        path = os.pathsep.join([os.fspath(tmp_path), os.fspath(PACKAGE.parent)])
        compiled = "import orders, numpy as np; value = orders.put_in_order(np.arange(9))"
        assert run(compiled, tmp_path / "cache", PYTHONPATH=path)["misses"] > 0
        assert run("import orders; value = orders.both('order')", tmp_path / "cache", PYTHONPATH=path)["value"]

    def test_no_lock_is_left_behind(self, tmp_path):
        assert {path.suffix for path in Path(run(USE_A_TABLE, tmp_path)["path"]).iterdir()} == {".code"}

    @pytest.mark.soak
    def test_code_unused_for_a_month_is_deleted_when_other_code_is_compiled(self, tmp_path):
        script = "from nearcast._jit import mix; value = mix(1)"
        folder = Path(run(script, tmp_path)["path"])
        (used,) = folder.glob("*.code")
        unused = folder / "nearcast.gone-0.code"
        for path in (used, unused):
            path.touch()
            os.utime(path, (0, 0))
        assert run(script, tmp_path)["misses"] == 0
        assert unused.exists()
        run(USE_A_TABLE, tmp_path)
        assert used.exists()
        assert not unused.exists()

    @pytest.mark.parametrize(("argument", "misses_again"), [("inc", 0), *in_soak([("local()", 1)])])
    def test_a_named_kernel_argument_is_cached(self, tmp_path, argument, misses_again):
        (tmp_path / "helper.py").write_text(
            textwrap.dedent(
                """
                from nearcast._jit import kernel

                @kernel
                def through(function, x): return function(x)

                @kernel
                def inc(x): return x + 1

                def local():
                    def inc(x): return x + 1
                    return kernel(inc)
                """
            )
        )
        script = f"import helper; value = helper.through(helper.{argument}, 3)"
        path = os.pathsep.join([os.fspath(tmp_path), os.fspath(PACKAGE.parent)])
        first, second = (run(script, tmp_path / "cache", PYTHONPATH=path) for _ in range(2))
        assert (first["value"], second["value"]) == (4, 4)
        assert (first["misses"], second["misses"]) == (2, misses_again)

    def test_a_kernel_that_passes_kernels_on_is_stored(self, tmp_path):
        (tmp_path / "helper.py").write_text(
            textwrap.dedent(
                """
                from typing import Any, NamedTuple
                from nearcast._jit import kernel

                class Steps(NamedTuple):
                    first: Any
                    second: Any

                @kernel
                def inc(x): return x + 1

                @kernel
                def double(x): return 2 * x

                @kernel
                def through(steps, x): return steps.second(steps.first(x))

                @kernel
                def total(x): return through(Steps(inc, double), x)
                """
            )
        )
        path = os.pathsep.join([os.fspath(tmp_path), os.fspath(PACKAGE.parent)])
        script = "import helper; value = helper.total(3)"
        first, second = (run(script, tmp_path / "cache", PYTHONPATH=path) for _ in range(2))
        assert (first["value"], second["value"]) == (8, 8)
        assert (first["misses"], second["misses"]) == (4, 0)

    def test_no_kernel_of_any_kind_is_compiled_twice(self):
        script = """
        from nearcast.cli.warmup import run_small_city
        value = run_small_city()
        """
        first = run(script, cache_folder().parent)  # compiles nothing after `nearcast warmup`
        assert first["compiled"] == [] or run(script, cache_folder().parent)["compiled"] == []

    def test_with_the_jit_off_nothing_is_written(self, tmp_path):
        script = """
        from nearcast._jit import kernels, mix
        assert kernels()["nearcast._jit.table.mix"] is mix
        value = mix(1)
        """
        cache = tmp_path / "cache"
        process = subprocess.run(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(script)],
            env=os.environ | {"NEARCAST_CACHE": os.fspath(cache), "NUMBA_DISABLE_JIT": "1"},
            check=True,
        )
        assert process.returncode == 0
        assert not cache.exists()
