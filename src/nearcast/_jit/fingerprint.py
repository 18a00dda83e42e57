"""What does compiled code depend on?

Numba's own cache looks at the one file a function stands in, so it misses a change in a callee, or in a constant, of
another file. Two hashes take its place:

    folder   every kernel source; python, numba, llvmlite, numpy; the CPU; the flags that change code
    entry    the bytecode of the kernel and of all kernels it calls; the constants they read; the argument types

The folder keeps versions apart and is thrown away as a whole. The entry covers what files cannot tell: code loaded
before its file was edited, a kernel outside the package (in a test, say), a constant that came from anywhere.

Cost: the sources are read once a process; a kernel's bytecode is walked once for every signature it is asked for.
"""

from __future__ import annotations

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

__all__ = ["entry_digest", "folder_digest", "kernel_sources", "machine"]

config: Any = _config  # Numba fills these modules behind mypy's back
types: Any = _types

PACKAGE = Path(__file__).parents[1]

_Constant = (bool, int, float, complex, str, bytes, np.generic, type(None))


def kernel_sources(package: Path = PACKAGE) -> list[Path]:
    """List the files whose functions may be compiled: `_jit/`, `space/`, `text/` and every `_kernels/`.

    >>> Path(__file__) in kernel_sources()
    True
    """

    def compiles(path: Path) -> bool:
        folders = path.relative_to(package).parts[:-1]
        return folders[:1] in {("_jit",), ("space",), ("text",)} or "_kernels" in folders

    return sorted(path for path in package.rglob("*.py") if compiles(path))


def machine() -> dict[str, Any]:
    """Name everything besides sources that decides which machine code comes out.

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
    """Hash the kernel sources of a package together with the machine.

    >>> len(folder_digest())
    24
    """
    sources = ((path.relative_to(package).as_posix(), path.read_bytes()) for path in kernel_sources(package))
    return _digest(part for source in (*sources, sorted(machine().items())) for part in source)


def entry_digest(function: Callable[..., Any], signature: Iterable[Any]) -> str:
    """Hash the code that `function` would run when called with arguments of these Numba types.

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
    """Hash parts so that no two different lists of parts are the same bytes."""
    state = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else repr(part).encode()
        state.update(b"%d:" % len(data))
        state.update(data)
    return state.hexdigest()[:24]


def _type_parts(argument: Any) -> Iterator[Any]:
    """Spell a Numba type; a NamedTuple's own spelling leaves out its field names and its module."""
    yield str(argument)
    if isinstance(argument, types.BaseNamedTuple):
        yield _class_parts(argument.instance_class)
    if isinstance(argument, types.BaseTuple):
        for inner in argument:
            yield from _type_parts(inner)
    elif isinstance(argument, types.Dispatcher):  # a kernel handed to a kernel
        yield from _code_parts(argument.dispatcher.py_func, set())


def _code_parts(function: Callable[..., Any], seen: set[int]) -> Iterator[Any]:
    """Yield what Numba freezes into the code of `function`, callees included."""
    if id(function) in seen:
        return
    seen.add(id(function))
    yield function.__module__, function.__qualname__, function.__defaults__
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
    """Spell a global that a kernel reads; `names` are the attributes it may read from a module."""
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


def _class_parts(kind: type) -> tuple[Any, ...]:
    return kind.__module__, kind.__qualname__, getattr(kind, "_fields", ())
