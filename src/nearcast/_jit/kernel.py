"""The decorator `@kernel`, which compiles a plain Python loop.

    @kernel                                      euclidean = kernel(nearcast.space.metric.euclidean)
    def total(xs):                               compiles a function that is defined, and stays plain, elsewhere
        ...

A kernel is compiled on its first call, for the types of its arguments, and runs without the GIL. There is no
`fastmath`, since bounds and ties must be exact, and no `parallel`, since threads and shards are the parallelism. Code
is stored on disk (see `cache`), so a machine compiles it once. With `NUMBA_DISABLE_JIT=1` a kernel is the plain
function, and nothing is written.

Cost: a call from Python takes some microseconds, so a kernel should take a batch.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import itertools
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple, TypeVar, cast, overload

from numba.core import config as _config
from numba.core import types as _types
from numba.core.bytecode import FunctionIdentity
from numba.core.compiler_lock import global_compiler_lock
from numba.core.datamodel import models
from numba.core.datamodel.registry import register_default
from numba.core.errors import NumbaError
from numba.core.imputils import lower_constant
from numba.core.registry import CPUDispatcher

from nearcast._jit.cache import KernelCache, cache_folder

__all__ = ["Kernel", "KernelStats", "compiled_signatures", "kernel", "kernels", "stats"]

config: Any = _config  # Numba fills these modules at run time, unseen by mypy
types: Any = _types

F = TypeVar("F", bound=Callable[..., Any])

# `boundscheck=None` leaves the choice to NUMBA_BOUNDSCHECK. A wrapper for C callers would take a tenth of the
# compile time and is never used.
_OPTIONS = {"nopython": True, "nogil": True, "boundscheck": None, "no_cfunc_wrapper": True}

# What Numba says of a kernel that makes arrays without its runtime.
_REFUSALS = "Only accept returning of array passed into the function as argument", "NRT required but not enabled"


def _count_apart() -> None:
    """Make the numbers by which Numba distinguishes functions unique across processes.

    Numba counts from 1. A function that it generates itself, such as a step of a sort, is named by number and
    argument types, whatever it was generated from, and through the cache code of several processes meets in one.
    There the linker would merge two functions of the same name.
    """
    FunctionIdentity._unique_ids = itertools.count(secrets.randbits(60))


_count_apart()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_apart)

# Plain function to its kernel. Kernels live as long as the process, as modules do.
_KERNELS: dict[Callable[..., Any], Any] = {}


class Kernel(CPUDispatcher):
    """A Numba dispatcher that compiles under the lock of the cache, and pickles by name."""

    def __init__(self, function: Callable[..., Any], *, inline: bool, allocates: bool) -> None:
        options = {**_OPTIONS, "forceinline": inline, "_nrt": allocates}
        super().__init__(function, locals={}, targetoptions=options)
        self._allocates = allocates
        self._cache = KernelCache(function)

    @property
    def _numba_type_(self) -> Any:
        return KernelType(self)

    def compile(self, sig: Any) -> Any:
        """Load the code of a signature, or compile and store it; Numba calls this for callees too."""
        # Threads first, processes second, always in this order: Numba holds its lock when it compiles callees.
        with global_compiler_lock, self._cache.lock_if_missing(sig), _no_collection(), self._explaining():
            return super().compile(sig)

    def add_overload(self, cres: Any) -> None:
        """Add compiled code, unless it returns arrays and counts no references; then it is not stored either."""
        if not self._allocates and _has_arrays(cres.signature.return_type):
            raise TypeError(f"{self!r} returns arrays: declare it with allocates=True")
        super().add_overload(cres)

    @contextlib.contextmanager
    def _explaining(self) -> Iterator[None]:
        """Say in plain words why Numba refuses a kernel that makes arrays and does not say so."""
        try:
            yield
        except NumbaError as error:
            if self._allocates or not any(refusal in str(error) for refusal in _REFUSALS):
                raise
            raise TypeError(f"{self!r} makes arrays: declare it with allocates=True") from error

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Type a call from another kernel: `f(0)` and `f(slots[i])` are both `f(int64)`, compiled once."""
        return super().get_call_template(tuple(map(_widen, args)), {name: _widen(kind) for name, kind in kws.items()})

    def __reduce__(self) -> Any:
        # By name, not by value: a kernel that is an argument of a kernel has the same type in every process.
        return _by_name, (self.py_func.__module__, self.py_func.__qualname__)

    def __repr__(self) -> str:
        # Numba describes the type of a kernel argument with this, so it must not contain an address.
        return f"<kernel {self.py_func.__module__}.{self.py_func.__qualname__}>"


class KernelType(types.Dispatcher):  # type: ignore[misc]
    """The Numba type of a kernel. Its value is empty, since calls are bound by type.

    Numba's own value is the address of the dispatcher, which nothing reads, and code that holds an address of its
    process cannot be stored.
    """


register_default(KernelType)(models.OpaqueModel)


@lower_constant(KernelType)  # type: ignore[no-untyped-call]
def _lower_kernel(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    return context.get_dummy_value()


def _has_arrays(kind: Any) -> bool:
    """Return whether values of a type hold arrays."""
    parts = (kind.type,) if isinstance(kind, types.Optional) else getattr(kind, "types", ())
    return isinstance(kind, types.Array) or any(map(_has_arrays, parts))


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Disable garbage collection: the objects of a compiler live on, and collection takes a tenth of its time."""
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


@overload
def kernel(function: F) -> F: ...


@overload
def kernel(*, inline: bool = False, allocates: bool = False) -> Callable[[F], F]: ...


def kernel(function: Any = None, *, inline: bool = False, allocates: bool = False) -> Any:
    """Return the kernel of a plain function, always the same one.

    With `inline` it becomes part of the kernels that call it. This is for a small step of a hot loop that takes
    tuples of arrays: otherwise a call copies every field. Only a kernel that `allocates` may make or return arrays:
    the others borrow those of their callers and count no references, which would cost some 10 ns per array and call.

    >>> @kernel
    ... def add(a, b):
    ...     return a + b
    >>> add(2, 3)
    5
    >>> kernel(add) is add
    True
    """
    if function is None:
        return functools.partial(kernel, inline=inline, allocates=allocates)
    if isinstance(function, Kernel):
        return function
    if function.__closure__:
        names = ", ".join(function.__code__.co_freevars)
        raise TypeError(f"kernel {function.__qualname__} must not close over variables; it uses {names}")
    if function not in _KERNELS:
        made = (
            function
            if config.DISABLE_JIT
            else Kernel(_with_compiled_callees(function), inline=inline, allocates=allocates)
        )
        _KERNELS.setdefault(function, made)  # of two threads, both get the kernel that the first one stored
    return _KERNELS[function]


def _with_compiled_callees(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with plain functions of this package that it calls replaced by their kernels.

    So a plain function may call another, and their module stays free of Numba.
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
    """How kernels were obtained in this process."""

    folder: Path
    """The folder of compiled code."""
    hits: int
    """Signatures loaded from the folder."""
    misses: int
    """Signatures compiled by this process."""


def stats() -> KernelStats:
    """Return the numbers of signatures that this process loaded and compiled."""
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
