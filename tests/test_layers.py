"""Imports point one way: each package imports only from packages to its left."""

import ast
from pathlib import Path

import pytest

import nearcast

ROOT = Path(nearcast.__file__).parent
LAYERS = [
    {"errors"},
    {"ragged", "worker_pool"},
    {"_jit"},
    {"space", "social", "text"},
    {"model"},
    {"index", "window", "partition"},
    {"engine"},
    {"jobs"},
    {"spark"},
    {"workload", "testing"},
    {"advice"},
    {"service"},
    {"cli"},
]
LEVEL = {package: level for level, packages in enumerate(LAYERS) for package in packages}
FILES = sorted(
    p for p in ROOT.rglob("*.py") if p.parent != ROOT or p.name in ("errors.py", "ragged.py", "worker_pool.py")
)


def package_of(path):
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def modules_at_import(path):
    """Yield the imports at module level, without those inside functions."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_imports_only_from_its_left(path):
    own = package_of(path)
    assert own in LEVEL, f"{own} is not listed in the layers"
    for name in imports(path):
        if name.startswith("nearcast."):
            other = name.split(".")[1]
            if other != own:
                assert LEVEL[other] < LEVEL[own], f"{path.name} in {own} imports {name}"


LOADED_LATE = {
    "engine/registry.py", "engine/folder.py", "engine/expiry_heap.py", "engine/result_merger.py", "engine/replica_planner.py", "window/buffered.py", "window/lists.py", "window/key_lists.py", "window/heaps.py",
    "window/buffer_part.py", "window/heap_part.py", "window/own_matches.py", "window/held_messages.py", "window/candidates/source.py", "window/candidates/terms.py",
    "window/candidates/social.py", "model/profiles.py", "model/facets.py", "model/filters.py", "model/slot_words.py",
    "space/region_store.py", "jobs/merge_partition.py",
}  # fmt: skip
"""Modules that, like the indexes, are imported with the first subscription and not before."""


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_heavy_libraries_are_imported_only_where_allowed(path):
    own = package_of(path)
    in_kernels = own == "_jit" or "_kernels" in path.parts
    for name in imports(path):
        top = name.split(".")[0]
        assert top != "pyspark" or own == "spark", "only spark/ imports pyspark"
        assert not name.startswith("nearcast.spark") or own in ("spark", "cli"), (
            "only spark/ and cli/ import nearcast.spark"
        )
        assert top != "numba" or in_kernels, "only _jit/ and _kernels/ import numba"
    is_late = own == "index" or str(path.relative_to(ROOT)) in LOADED_LATE
    if own != "_jit" and not in_kernels and not is_late:
        assert not any(name.startswith("nearcast._jit") for name in modules_at_import(path))
