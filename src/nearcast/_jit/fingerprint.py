"""Fingerprints of compiled code: digests of everything that it depends on.

Numba's own cache checks only the file of a function, so it misses a change of a callee or a constant in another file.
Two digests replace it:

    folder   how code is made: the sources of `_jit`; python, numba, llvmlite, numpy; the CPU; flags that change code
    entry    which code: the kernel and all kernels it calls, each with its bytecode, the constants it reads, its
             source and all kernel sources that it imports, transitively; the argument types

A change of one source therefore recompiles the kernels that it may affect and no others. Sources and bytecode
complement each other: a source covers what a kernel was made with although no name in it says so; bytecode covers
what files cannot tell: code loaded before its file was edited, a kernel outside the package (in a test, for example),
a constant from elsewhere.

Cost: each source is read once per process; the bytecode of a kernel is walked once per signature.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numba
import numpy as np
from numba.core import config as _config
from numba.core import types as _types
from numba.core.registry import cpu_target

__all__ = ["entry_digest", "folder_digest", "kernel_sources", "machine", "sources_behind"]

config: Any = _config  # Numba fills these modules at run time, unseen by mypy
types: Any = _types

PACKAGE = Path(__file__).parents[1]
_PACKAGE_NAME = __name__.partition(".")[0]

_Constant = (bool, int, float, complex, str, bytes, np.generic, type(None))


def kernel_sources(package: Path = PACKAGE) -> list[Path]:
    """List the files whose functions may be compiled: `_jit/`, `space/`, `text/` and every `_kernels/`.

    >>> Path(__file__) in kernel_sources()
    True
    """
    return sorted(path for path in package.rglob("*.py") if _compiles(path, package))


def _compiles(path: Path, package: Path) -> bool:
    folders = path.relative_to(package).parts[:-1]
    return folders[:1] in {("_jit",), ("space",), ("text",)} or "_kernels" in folders


def sources_behind(module: str, package: Path = PACKAGE) -> list[Path]:
    """List the kernel sources that code of a module may come from: its own, and its imports, transitively.

    Those of `_jit` are left out: all code depends on them.

        >>> [path.name for path in sources_behind("nearcast.space.metric")]
        ['metric.py']
        >>> sources_behind("another.package")
        []
    """
    found: set[Path] = set()
    todo = [module]
    while todo:
        path = _source(todo.pop(), package)
        if path is not None and path not in found:
            found.add(path)
            todo.extend(_imports(path, package))
    return sorted(found)


def _source(module: str, package: Path) -> Path | None:
    """Return the kernel source of a module, or None if it has none."""
    first, *rest = module.split(".")
    if first != _PACKAGE_NAME or rest[:1] == ["_jit"]:
        return None
    path = package.joinpath(*rest)
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return path if path.is_file() and _compiles(path, package) else None


@functools.cache  # many modules import the same ones
def _imports(path: Path, package: Path) -> tuple[str, ...]:
    """Return the names that a source may import a module by; some are not modules."""
    here, found = [_PACKAGE_NAME, *path.relative_to(package).parts[:-1]], []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = here[: len(here) + 1 - node.level] if node.level else []
            origin = [*origin, *([node.module] if node.module else [])]
            found += [".".join(origin), *(".".join([*origin, alias.name]) for alias in node.names)]
    return tuple(found)


def machine() -> dict[str, Any]:
    """Return everything besides sources that determines the machine code.

    >>> machine()["numba"] == numba.__version__
    True
    """
    return {
        "python": sys.version,
        "numba": numba.__version__,
        "llvmlite": importlib.metadata.version("llvmlite"),
        "numpy": np.__version__,
        "cpu": cpu_target.target_context.codegen().magic_tuple(),  # triple, name and features
        "boundscheck": config.BOUNDSCHECK,
        "debug": config.DEBUGINFO_DEFAULT,
        "optimise": (str(config.OPT), config.LOOP_VECTORIZE, config.SLP_VECTORIZE),
    }


def folder_digest(package: Path = PACKAGE) -> str:
    """Hash how code is made: the sources of `_jit`, and the machine.

    >>> len(folder_digest())
    24
    """
    return _digest([*_contents(sorted((package / "_jit").rglob("*.py")), package), *sorted(machine().items())])


@functools.cache
def _sources_digest(module: str) -> str:
    return _digest(_contents(sources_behind(module), PACKAGE))


def _contents(paths: Iterable[Path], package: Path) -> Iterator[Any]:
    for path in paths:
        yield path.relative_to(package).as_posix()
        yield path.read_bytes()


def entry_digest(function: Callable[..., Any], signature: Iterable[Any]) -> str:
    """Hash the code that `function` runs for arguments of these Numba types.

    >>> def double(x): return 2 * x
    >>> def triple(x): return 3 * x
    >>> entry_digest(double, [types.int64]) == entry_digest(triple, [types.int64])
    False
    """
    parts: list[Any] = list(_code_parts(function, set()))
    for argument in signature:
        parts.extend(_type_parts(argument))
    return _digest(parts)


def _digest(parts: Iterable[Any]) -> str:
    """Hash parts so that different lists of parts never give the same bytes."""
    state = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else repr(part).encode()
        state.update(b"%d:" % len(data))
        state.update(data)
    return state.hexdigest()[:24]


def _type_parts(argument: Any) -> Iterator[Any]:
    """Describe a Numba type; the description of a NamedTuple by Numba omits field names and module."""
    yield str(argument)
    if isinstance(argument, types.BaseNamedTuple):
        yield _class_parts(argument.instance_class)
    if isinstance(argument, types.BaseTuple):
        for inner in argument:
            yield from _type_parts(inner)
    elif isinstance(argument, types.Dispatcher):  # a kernel as an argument of a kernel
        yield from _code_parts(argument.dispatcher.py_func, set())


def _code_parts(function: Callable[..., Any], seen: set[int]) -> Iterator[Any]:
    """Yield what Numba freezes into the code of `function`, callees included."""
    if id(function) in seen:
        return
    seen.add(id(function))
    yield function.__module__, function.__qualname__, function.__defaults__
    yield _sources_digest(function.__module__)
    for code in _nested(function.__code__):
        yield code.co_code
        yield code.co_exceptiontable
        yield code.co_names, code.co_varnames, code.co_argcount
        yield [value for value in code.co_consts if not isinstance(value, CodeType)]
        for name in code.co_names:
            yield from _value_parts(function.__globals__.get(name), code.co_names, seen)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _nested(value)


def _value_parts(value: Any, names: tuple[str, ...], seen: set[int]) -> Iterator[Any]:
    """Describe a global that a kernel reads; `names` are the attributes it may read from a module."""
    if isinstance(value, _Constant):
        yield type(value).__name__, repr(value)
    elif isinstance(value, tuple):
        for inner in value:
            yield from _value_parts(inner, names, seen)
    elif isinstance(value, np.ndarray):
        yield value.dtype.descr, value.shape
        yield value.tobytes()
    elif isinstance(value, ModuleType):
        if id(value) not in seen:
            seen.add(id(value))
            for name in names:  # `vars`, not `getattr`: a module's own __getattr__ may warn
                yield from _value_parts(vars(value).get(name), names, seen)
            seen.discard(id(value))
    elif isinstance(value, type):
        yield _class_parts(value)
    elif hasattr(value, "py_func"):
        yield from _code_parts(value.py_func, seen)
    elif callable(value):  # an object that generates code itself, without bytecode to walk
        yield _sources_digest(str(getattr(value, "__module__", None)))


def _class_parts(kind: type) -> tuple[Any, ...]:
    return kind.__module__, kind.__qualname__, getattr(kind, "_fields", ())
