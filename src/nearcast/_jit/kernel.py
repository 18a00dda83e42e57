"""How does a plain Python loop become a kernel?

    @kernel                                      euclidean = kernel(nearcast.space.metric.euclidean)
    def total(xs):                               compiles a function that is defined, and stays plain, elsewhere
        ...

A kernel is compiled for the types it is called with, on its first call, and runs without the GIL; no `fastmath`,
since bounds and ties must be exact; no `parallel`, since threads and shards are the parallelism. The code is kept on
disk (see `cache`), so a machine compiles once. With `NUMBA_DISABLE_JIT=1` a kernel is the plain function and nothing
is written.

Cost: a call from Python takes some microseconds, so a kernel should get a batch.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import itertools
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple, TypeVar, cast

from numba.core import config as _config
from numba.core import event
from numba.core import types as _types
from numba.core.bytecode import FunctionIdentity
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher

from nearcast._jit.cache import KernelCache, cache_folder

__all__ = ["Kernel", "KernelStats", "compiled_signatures", "kernel", "kernels", "stats", "warm"]

config: Any = _config  # Numba fills these modules behind mypy's back
types: Any = _types

F = TypeVar("F", bound=Callable[..., Any])

# `boundscheck=None` leaves the choice to NUMBA_BOUNDSCHECK. A wrapper for callers in C would be a tenth of the time
# that compiling takes, and nobody calls it.
_OPTIONS = {"nopython": True, "nogil": True, "boundscheck": None, "no_cfunc_wrapper": True}


def _count_apart() -> None:
    """Let the numbers by which Numba tells functions apart be those of no other process.

    It counts from 1. A function that it makes itself, as a step of a sort, is named by number and argument types,
    whatever it was made of; and by the cache, code of several processes meets in one. There the linker takes one of
    two functions of the same name for both.
    """
    FunctionIdentity._unique_ids = itertools.count(secrets.randbits(60))


_count_apart()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_apart)

# Plain function -> its kernel. Kernels live as long as the process, as modules do.
_KERNELS: dict[Callable[..., Any], Any] = {}


class Kernel(CPUDispatcher):
    """A Numba dispatcher that compiles under the lock of the cache, and pickles by name."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function, locals={}, targetoptions=dict(_OPTIONS))
        self._cache = KernelCache(function)

    def compile(self, sig: Any) -> Any:
        """Load the code for a signature, or compile it and keep it; Numba calls this for callees too."""
        # Threads first, processes second, always in this order: Numba holds its lock when it compiles our callees.
        with global_compiler_lock, self._cache.lock_if_missing(sig), _no_collection():
            return super().compile(sig)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Type a call from another kernel: `f(0)` and `f(slots[i])` are both `f(int64)`, compiled once."""
        return super().get_call_template(tuple(map(_widen, args)), {name: _widen(kind) for name, kind in kws.items()})

    def __reduce__(self) -> Any:
        # By name, not by value: a kernel that is an argument of a kernel then has the same type in every process.
        return _by_name, (self.py_func.__module__, self.py_func.__qualname__)

    def __repr__(self) -> str:
        # Numba spells the type of a kernel argument with this: it must not hold an address.
        return f"<kernel {self.py_func.__module__}.{self.py_func.__qualname__}>"


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Look for no garbage meanwhile: what a compiler makes lives on, and a tenth of its time would go there."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _widen(argument: Any) -> Any:
    """Return int64 for literals and for narrower integers, and other types as they are."""
    plain = types.unliteral(argument)
    return types.int64 if isinstance(plain, types.Integer) and plain.bitwidth < types.int64.bitwidth else plain


def kernel(function: F) -> F:
    """Make a kernel of a plain function; the same kernel every time.

    >>> @kernel
    ... def add(a, b):
    ...     return a + b
    >>> add(2, 3)
    5
    >>> kernel(add) is add
    True
    """
    if isinstance(function, Kernel):
        return function
    if function.__closure__:
        names = ", ".join(function.__code__.co_freevars)
        raise TypeError(f"kernel {function.__qualname__} must not close over variables; it uses {names}")
    if function not in _KERNELS:
        made = function if config.DISABLE_JIT else Kernel(_with_compiled_callees(function))
        _KERNELS.setdefault(function, made)  # of two threads, both get what the first one stored
    return cast(F, _KERNELS[function])


def _with_compiled_callees(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with the plain functions of this package that it calls replaced by their kernels.

    So a plain function may call another: the module they stand in stays free of Numba.
    """
    package = __name__.partition(".")[0] + "."
    plain = {
        name: value
        for name in function.__code__.co_names
        if isinstance(value := function.__globals__.get(name), FunctionType)
        and value is not function
        and value.__module__.startswith(package)
    }
    if not plain:
        return function
    compiled = {name: kernel(value) for name, value in plain.items()}
    made = FunctionType(function.__code__, {**function.__globals__, **compiled}, argdefs=function.__defaults__)
    return functools.update_wrapper(made, function)


def _by_name(module: str, qualname: str) -> Any:
    found = functools.reduce(getattr, qualname.split("."), importlib.import_module(module))
    return kernel(cast(Any, found))


def kernels() -> dict[str, Callable[..., Any]]:
    """Return the plain functions of all kernels made so far, by full name.

    >>> @kernel
    ... def negate(a):
    ...     return -a
    >>> kernels()["nearcast._jit.kernel.negate"](4)
    -4
    """
    return {f"{function.__module__}.{function.__qualname__}": function for function in _KERNELS}


class KernelStats(NamedTuple):
    """How kernels came to be in this process."""

    folder: Path
    """Where their code is kept."""
    hits: int
    """Signatures loaded from there."""
    misses: int
    """Signatures compiled by this process."""


def stats() -> KernelStats:
    """Count what this process loaded and what it had to compile."""
    made = [made for made in _KERNELS.values() if isinstance(made, Kernel)]
    return KernelStats(
        cache_folder(),
        hits=sum(sum(one.stats.cache_hits.values()) for one in made),
        misses=sum(sum(one.stats.cache_misses.values()) for one in made),
    )


def compiled_signatures() -> list[str]:
    """List what this process compiled itself, as `module.name(types)`."""
    return [
        f"{name}{signature}"
        for name, function in kernels().items()
        if isinstance(_KERNELS[function], Kernel)
        for signature in _KERNELS[function].stats.cache_misses
    ]


def warm(calls: Iterable[Callable[[], Any]], progress: Callable[[str], Any] | None = None) -> None:
    """Run calls that exercise kernels, so that later calls find them ready.

    `progress` gets one line, and only if something has to be compiled.

    >>> warm([lambda: None], progress=print)
    """
    with event.install_listener("numba:compile", _Announce(progress)):
        for call in calls:
            call()


class _Announce(event.Listener):
    """Says so, once, when something is compiled."""

    def __init__(self, progress: Callable[[str], Any] | None) -> None:
        self._progress = progress

    def on_start(self, event: Any) -> None:
        progress, self._progress = self._progress, None
        if progress is not None:
            progress("compiling kernels (once per machine)...")

    def on_end(self, event: Any) -> None:
        pass
