"""The arena: named flat arrays that grow, on the heap or as memory-mapped files in a folder.

All counters of a data structure lie in arrays too, so a copy of the arena is a complete copy.

    Arena()          heap        new, grow ──> ndarray
    Arena(folder)    files       new, grow ──> ndarray over a shared mapping
                     folder/
                     ├── arena.json               names, types and files of the arrays (see `manifest`)
                     └── <name>.<token>.array     their bytes

`save` writes such a folder, `load` reads it to the heap, `attach` maps it in place. The manifest is written last and
replaced in one step: it never names more than the files hold, and changes made `together` are visible as a whole or
not at all. Writes of kernels are visible at once; a caller that must know which version a crash left keeps a version
elsewhere.

Several threads may grow arrays at once, each its own; a thread waits while another one's changes are under way.
One process writes at a time. Other processes see writes at once, and growth after they attach again.

Cost: a small array on the heap grows by half and is copied. One of more than a mebibyte has its own range of
addresses (see `reservation`) and grows in steps without a copy, so no pause grows with the array. In a folder an
array grows by half and is mapped again, also without a copy, but the disk space is allocated.
"""

from __future__ import annotations

import mmap
import os
import re
import secrets
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from nearcast._jit.manifest import MANIFEST, ArraySpec, read_manifest, write_manifest
from nearcast._jit.reservation import Reservation, reserve
from nearcast.errors import StateError, require
from nearcast.worker_pool import apart

__all__ = ["Arena"]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_SMALLEST_GROWTH = 8
_SMALL = 1 << 20  # bytes up to which an array on the heap is copied when it grows
_STEP = 1 << 16  # the most rows that a larger array grows by; in rows, so that related arrays stay equally long

Bundle = TypeVar("Bundle", bound=tuple[Any, ...])


@dataclass(slots=True)
class _Entry:
    """An array, its mapping if it is a file, and its reservation if it is large and on the heap."""

    spec: ArraySpec
    array: NDArray[Any]
    mapping: mmap.mmap | None = None
    reservation: Reservation | None = None


class Arena:
    """Named arrays that grow, on the heap or in a folder.

    >>> arena = Arena()
    >>> xs = arena.new("xs", np.float64, 2, fill=-1)
    >>> xs[:] = 3, 4
    >>> arena.grow("xs", 3)[:4]
    array([ 3.,  4., -1., -1.])
    >>> arena.names
    ('xs',)
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self._entries: dict[str, _Entry] = {}
        self._bundles: dict[tuple[str, type], Any] = {}  # since the last change of an entry
        self._files: set[str] = set()  # all files of this arena in the folder
        self._lock = threading.RLock()  # held while arrays change
        self._changing = False
        self._closed = False
        self._folder = None if folder is None else Path(folder)
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            if (self._folder / MANIFEST).exists():
                raise StateError(f"{self._folder} holds an arena already; use Arena.attach to continue with it")
            write_manifest(self._folder, {})

    def new(
        self, name: str, dtype: DTypeLike, length: int, fill: Any = 0, *, columns: int | None = None
    ) -> NDArray[Any]:
        """Create an array of `length` items, or rows of `columns` items each, filled with `fill`."""
        self._check_open()
        dtype = np.dtype(dtype)
        array = f"array {name!r}"
        require(_NAME.fullmatch(name) is not None, "name", f"must match {_NAME.pattern}", name)
        require(name not in self._entries, "name", "must be new to the arena", name)
        require(length >= 0, "length", "must be at least 0", length, subject=array)
        require(not dtype.hasobject, "dtype", "must not hold Python objects", dtype, subject=array)
        shape = (int(length),) if columns is None else (int(length), int(columns))
        return self._put(name, ArraySpec(dtype, shape, np.array(fill, dtype), ""))

    def __getitem__(self, name: str) -> NDArray[Any]:
        entry = self._entries.get(name)  # empty if the arena is closed
        return self._entry(name).array if entry is None else entry.array

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all arrays, oldest first."""
        return tuple(self._entries)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(entry.spec.nbytes for entry in self._entries.values())

    def bundle(self, prefix: str, kind: type[Bundle]) -> Bundle:
        """Return the arrays `prefix.field` as a NamedTuple, as kernels take them; the same until an array changes.

        >>> from typing import NamedTuple
        >>> class Points(NamedTuple):
        ...     xs: np.ndarray
        ...     ys: np.ndarray
        >>> arena = Arena()
        >>> for field in Points._fields:
        ...     _ = arena.new(f"points.{field}", np.float64, 1)
        >>> arena.bundle("points", Points)
        Points(xs=array([0.]), ys=array([0.]))
        """
        found = self._bundles.get((prefix, kind))
        if found is None:
            found = kind(*(self[f"{prefix}.{field}"] for field in cast(Any, kind)._fields))
            self._bundles[prefix, kind] = found
        return cast(Bundle, found)

    def grow(self, name: str, at_least: int) -> NDArray[Any]:
        """Return the array with room for `at_least` items or rows; contents stay, new rows hold the fill.

        Earlier views are stale: those of a small array on the heap show another array, others keep their old length.
        """
        self.grow_all((name,), at_least)
        return self[name]

    def grow_all(self, names: Iterable[str], at_least: int) -> None:
        """Grow related arrays; all of them have the same length afterwards.

        >>> arena = Arena()
        >>> xs, marks = arena.new("xs", np.float64, 2), arena.new("marks", np.uint8, 2)
        >>> arena.grow_all(("xs", "marks"), 3)
        >>> arena["xs"].size == arena["marks"].size >= 3
        True
        """
        entries = {name: self._entry(name) for name in names}
        length = max(entry.spec.shape[0] for entry in entries.values())
        if at_least > length:
            length = max(int(at_least), *(self._next_length(entry) for entry in entries.values()))
        shorter = {name: entry for name, entry in entries.items() if entry.spec.shape[0] < length}
        if shorter:
            with self.together():
                for name, entry in shorter.items():
                    self._set(name, self._lengthened(entry, length))

    def renew(self, name: str, length: int) -> NDArray[Any]:
        """Replace an array by a new one of `length`; existing views of the old one stay valid.

        A data structure is rebuilt this way, larger or smaller, from its old arrays to new ones.
        """
        spec = self._entry(name).spec
        return self._put(name, spec._replace(shape=(int(length), *spec.shape[1:])))

    def drop(self, name: str) -> None:
        """Remove an array and free its memory."""
        self._entry(name)
        with self.together():
            del self._entries[name]
            self._bundles.clear()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Apply all changes of the block as one: the arena, and the folder after a crash, has all of them or none.

        >>> arena = Arena()
        >>> with arena.together():
        ...     _ = arena.new("xs", np.float64, 4), arena.new("ys", np.float64, -4)
        Traceback (most recent call last):
            ...
        nearcast.errors.InvalidInput: length must be at least 0; got -4 (array 'ys')
        >>> arena.names
        ()
        """
        with self._lock:
            if self._changing:  # a nested block: the outer one commits
                yield
                return
            self._check_open()
            before = dict(self._entries)
            self._changing = True
            try:
                yield
                if self._folder is not None:
                    write_manifest(self._folder, {name: entry.spec for name, entry in self._entries.items()})
            except BaseException:
                self._entries = before
                self._bundles.clear()
                raise
            finally:
                self._changing = False
                self._sweep()

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write all arrays to a folder; an arena that was saved there is replaced in one step.

        >>> import tempfile
        >>> arena = Arena()
        >>> arena.new("seqs", np.int64, 3)[:] = 7, 8, 9
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     arena.save(folder)
        ...     Arena.load(folder)["seqs"]
        array([7, 8, 9])
        """
        self._check_open()
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if self._folder is not None and folder.samefile(self._folder):
            self.flush()
            return
        specs = {}
        for name, entry in self._entries.items():
            specs[name] = entry.spec._replace(file=_file_name(name))
            with (folder / specs[name].file).open("wb") as file:
                entry.array.tofile(file)
                os.fsync(file.fileno())
        write_manifest(folder, specs, durable=True)
        in_use = {spec.file for spec in specs.values()}
        for stale in folder.glob("*.array"):
            if stale.name not in in_use:
                stale.unlink()

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Read a folder to the heap."""
        arena = cls()
        for name, spec in read_manifest(Path(folder)).items():
            arena._entries[name] = entry = _on_heap(spec._replace(file=""), keep=spec.shape[0])
            with (Path(folder) / spec.file).open("rb") as file:
                file.readinto(cast(Any, entry.array.reshape(-1).view(np.uint8)))
        return arena

    @classmethod
    def attach(cls, folder: str | os.PathLike[str]) -> Self:
        """Map a folder in place; later `attach` calls see what is written here."""
        arena = cls()
        arena._folder = Path(folder)
        arena._entries = {name: _mapped(arena._folder, spec) for name, spec in read_manifest(arena._folder).items()}
        arena._files = {entry.spec.file for entry in arena._entries.values()}
        return arena

    def flush(self) -> None:
        """Write to disk what the system still caches; other processes see it anyway."""
        for entry in self._entries.values():
            if entry.mapping is not None:
                entry.mapping.flush()

    def close(self) -> None:
        """Flush and release all arrays; a mapping ends with its last view."""
        self.flush()
        self._entries.clear()
        self._bundles.clear()
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "heap" if self._folder is None else str(self._folder)
        return f"<Arena on {where}: {len(self._entries)} arrays, {self.nbytes:,} bytes>"

    def _check_open(self) -> None:
        if self._closed:
            raise StateError("the arena is closed")

    def _entry(self, name: str) -> _Entry:
        self._check_open()
        if name not in self._entries:
            raise KeyError(f"the arena holds no array {name!r}; it holds {', '.join(self._entries) or 'none'}")
        return self._entries[name]

    def _put(self, name: str, spec: ArraySpec) -> NDArray[Any]:
        """Create a filled array under a name."""
        with self.together():
            if self._folder is None:
                self._set(name, _on_heap(spec, keep=0))
            else:
                spec = spec._replace(file=_file_name(name))
                self._files.add(spec.file)
                (self._folder / spec.file).touch(exist_ok=False)
                self._set(name, _mapped(self._folder, spec, fill_from=0))
        return self[name]

    def _set(self, name: str, entry: _Entry) -> None:
        self._entries[name] = entry
        self._bundles.clear()

    def _next_length(self, entry: _Entry) -> int:
        """Return the next length of a full array: half as much again, at most one step where growth is free."""
        length = entry.spec.shape[0]
        half = max(length // 2, _SMALLEST_GROWTH)
        is_cheap = self._folder is None and (entry.spec.nbytes <= _SMALL or entry.reservation is not None)
        return length + (min(half, _STEP) if is_cheap else half)

    def _lengthened(self, entry: _Entry, length: int) -> _Entry:
        spec, before = entry.spec._replace(shape=(length, *entry.spec.shape[1:])), entry.spec.shape[0]
        if self._folder is not None:
            # Truncate first: an interrupted growth may have left a tail that is not zero.
            os.truncate(self._folder / spec.file, entry.spec.nbytes)
            return _mapped(self._folder, spec, fill_from=before)
        held = entry.reservation
        if held is not None and spec.nbytes <= held.nbytes:
            return _Entry(spec, held.array(spec, keep=before), reservation=held)
        moved = _on_heap(spec, keep=before)
        moved.array[:before] = entry.array
        return moved

    def _sweep(self) -> None:
        """Remove files that no array uses any more; existing mappings of them stay valid."""
        if self._folder is not None:
            in_use = {entry.spec.file for entry in self._entries.values()}
            for file in self._files - in_use:
                (self._folder / file).unlink(missing_ok=True)
            self._files = in_use


def _file_name(name: str) -> str:
    # A token ensures that a new array never writes into a file that an older manifest names.
    return f"{name}.{secrets.token_hex(4)}.array"


def _on_heap(spec: ArraySpec, *, keep: int) -> _Entry:
    """Return an array on the heap; rows from `keep` on hold the fill, the caller writes those before."""
    reservation = reserve(spec.nbytes) if spec.nbytes > _SMALL else None
    if reservation is not None:
        return _Entry(spec, reservation.array(spec, keep=keep), reservation=reservation)
    # Zeros are left to the system, which allocates pages on first use.
    array = apart(int(np.prod(spec.shape)), spec.dtype).reshape(spec.shape)
    if any(spec.fill.tobytes()):
        array[...] = spec.fill
    return _Entry(spec, array)


def _mapped(folder: Path, spec: ArraySpec, *, fill_from: int | None = None) -> _Entry:
    """Map a file, lengthened if necessary, and fill its rows from `fill_from` on.

    The result is a plain array and not a `numpy.memmap`, which Numba takes longer to recognise in every call.
    """
    if spec.nbytes == 0:  # empty files cannot be mapped
        return _Entry(spec, np.empty(spec.shape, spec.dtype))
    with (folder / spec.file).open("r+b") as file:
        if os.fstat(file.fileno()).st_size < spec.nbytes:
            os.ftruncate(file.fileno(), spec.nbytes)
            if hasattr(os, "posix_fallocate"):
                # Allocate the space instead of only setting the size: a full disk is then an error here, not a SIGBUS
                # in a kernel.
                os.posix_fallocate(file.fileno(), 0, spec.nbytes)
        mapping = mmap.mmap(file.fileno(), spec.nbytes)
    array: NDArray[Any] = np.ndarray(spec.shape, spec.dtype, buffer=mapping)
    if fill_from is not None and any(spec.fill.tobytes()):  # new bytes of a file are zero
        array[fill_from:] = spec.fill
    return _Entry(spec, array, mapping)
