"""The public names of the package are those that it lists."""

import importlib
import pkgutil
import subprocess
import sys

import pytest

import nearcast

PACKAGES = [name for _, name, is_package in pkgutil.walk_packages(nearcast.__path__, "nearcast.") if is_package]


def test_public_names_are_exactly_the_exported_ones():
    shown = {name for name in vars(nearcast) if not name.startswith("_")}
    submodules = {name.split(".")[1] for name in sys.modules if name.startswith("nearcast.")}
    assert shown - submodules == set(nearcast.__all__) - {"__version__"}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_exports_what_it_lists(package):
    module = importlib.import_module(package)
    for name in getattr(module, "__all__", ()):
        assert hasattr(module, name), f"{package}.{name}"


@pytest.mark.parametrize("statement", ["import nearcast", "import nearcast.cli", "import nearcast.workload"])
def test_importing_the_package_loads_no_heavy_library(statement):
    heavy = "numba", "pyspark", "hypothesis", "pandas"
    code = f"import sys; {statement}; print([m for m in {heavy!r} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
