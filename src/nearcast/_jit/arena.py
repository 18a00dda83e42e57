"""Where does all state live?

In named flat arrays that an arena hands out and grows: on the heap, or as memory-mapped files in a folder.
Whoever owns an array keeps its counters in arrays too, so a copy of the arena is a copy of everything.

    Arena()          heap        new, grow ──> ndarray
    Arena(folder)    files       new, grow ──> ndarray over a shared mapping
                     folder/
                     ├── arena.json               what the arrays are (see `manifest`)
                     └── <name>.<token>.array     their bytes, nothing else

`save` writes such a folder, `load` reads it to the heap, `attach` maps it in place and goes on. The manifest is
written last and replaced in one step: whatever happens in between, it never names more than the files hold, and what
is done `together` is there as a whole or not at all. What kernels write is there at once; an owner that must know
which moment a crash has left keeps a version elsewhere.

One process writes at a time. Another sees what the arrays hold at once, and that they grew after it attaches again.

Cost: a small array on the heap grows by half and is copied. One of more than a mebibyte lies in a range of addresses
of its own (see `reservation`) and grows by a step, with nothing moved: no pause grows with the array. In a folder it
grows by half and is mapped anew: nothing is copied either, but the disk is asked for the room.
"""

from __future__ import annotations

import mmap
import os
import re
import secrets
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

__all__ = ["Arena"]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_SMALLEST_GROWTH = 8
_SMALL = 1 << 20  # bytes up to which a heap array is copied when it grows
_STEP = 1 << 16  # rows by which others grow at most; in rows, so that arrays that belong together keep step

Bundle = TypeVar("Bundle", bound=tuple[Any, ...])


@dataclass(slots=True)
class _Entry:
    """An array, the mapping under it if it is a file, and its addresses if it is a large one on the heap."""

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
        self._files: set[str] = set()  # all that lie in the folder because of this arena
        self._changing = False
        self._closed = False
        self._folder = None if folder is None else Path(folder)
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            if (self._folder / MANIFEST).exists():
                raise StateError(f"{self._folder} holds an arena already; use Arena.attach to go on with it")
            write_manifest(self._folder, {})

    def new(
        self, name: str, dtype: DTypeLike, length: int, fill: Any = 0, *, columns: int | None = None
    ) -> NDArray[Any]:
        """Make an array of `length` items, or rows of `columns` items each, that holds `fill` everywhere."""
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
        return self._entry(name).array

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
        """Gather the arrays `prefix.field` in a NamedTuple, as kernels take them.

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
        return kind(*(self[f"{prefix}.{field}"] for field in cast(Any, kind)._fields))

    def grow(self, name: str, at_least: int) -> NDArray[Any]:
        """Return the array with room for `at_least` items or rows: contents kept, the new part filled.

        Views taken before are stale: of a small array on the heap they are another array, others end where they
        ended.
        """
        self.grow_all((name,), at_least)
        return self[name]

    def grow_all(self, names: Iterable[str], at_least: int) -> None:
        """Grow arrays that belong together: all of them have one length after it, so any one tells how much fits.

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
                    self._entries[name] = self._lengthened(entry, length)

    def renew(self, name: str, length: int) -> NDArray[Any]:
        """Put a fresh array of `length` under the name; whoever holds the old one may go on reading it.

        This is how a structure is rebuilt, larger or smaller, from its old arrays to new ones.
        """
        spec = self._entry(name).spec
        return self._put(name, spec._replace(shape=(int(length), *spec.shape[1:])))

    def drop(self, name: str) -> None:
        """Forget an array and give its room back."""
        self._entry(name)
        with self.together():
            del self._entries[name]

    @contextmanager
    def together(self) -> Iterator[None]:
        """Make all changes in the block one: the arena, and the folder if the process dies, has all or none of them.

        >>> arena = Arena()
        >>> with arena.together():
        ...     _ = arena.new("xs", np.float64, 4), arena.new("ys", np.float64, -4)
        Traceback (most recent call last):
            ...
        nearcast.errors.InvalidInput: length must be at least 0; got -4 (array 'ys')
        >>> arena.names
        ()
        """
        if self._changing:  # a change within a change: the outer one ends it
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
            raise
        finally:
            self._changing = False
            self._sweep()

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write all arrays to a folder, replacing in one step an arena that was saved there before.

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
        kept = {spec.file for spec in specs.values()}
        for stale in folder.glob("*.array"):
            if stale.name not in kept:
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
        """Map a folder in place: what is written here is there for whoever attaches next."""
        arena = cls()
        arena._folder = Path(folder)
        arena._entries = {name: _mapped(arena._folder, spec) for name, spec in read_manifest(arena._folder).items()}
        arena._files = {entry.spec.file for entry in arena._entries.values()}
        return arena

    def flush(self) -> None:
        """Write to disk what the system still holds in memory; other processes see it without."""
        for entry in self._entries.values():
            if entry.mapping is not None:
                entry.mapping.flush()

    def close(self) -> None:
        """Flush and let go of all arrays; a mapping ends when the last view of it does."""
        self.flush()
        self._entries.clear()
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
        """Make a filled array and put it under the name."""
        with self.together():
            if self._folder is None:
                self._entries[name] = _on_heap(spec, keep=0)
            else:
                spec = spec._replace(file=_file_name(name))
                self._files.add(spec.file)
                (self._folder / spec.file).touch(exist_ok=False)
                self._entries[name] = _mapped(self._folder, spec, fill_from=0)
        return self[name]

    def _next_length(self, entry: _Entry) -> int:
        """Return how long an array gets that is full: by half, or by a step at most where that costs no more."""
        length = entry.spec.shape[0]
        half = max(length // 2, _SMALLEST_GROWTH)
        is_cheap = self._folder is None and (entry.spec.nbytes <= _SMALL or entry.reservation is not None)
        return length + (min(half, _STEP) if is_cheap else half)

    def _lengthened(self, entry: _Entry, length: int) -> _Entry:
        spec, before = entry.spec._replace(shape=(length, *entry.spec.shape[1:])), entry.spec.shape[0]
        if self._folder is not None:
            # Cut first: a growth that was interrupted may have left a tail that is not zero.
            os.truncate(self._folder / spec.file, entry.spec.nbytes)
            return _mapped(self._folder, spec, fill_from=before)
        held = entry.reservation
        if held is not None and spec.nbytes <= held.nbytes:
            return _Entry(spec, held.array(spec, keep=before), reservation=held)
        moved = _on_heap(spec, keep=before)
        moved.array[:before] = entry.array
        return moved

    def _sweep(self) -> None:
        """Remove the files that no array is in any more; mappings of them live on until nobody looks."""
        if self._folder is not None:
            kept = {entry.spec.file for entry in self._entries.values()}
            for file in self._files - kept:
                (self._folder / file).unlink(missing_ok=True)
            self._files = kept


def _file_name(name: str) -> str:
    # A token, so that a new array never writes into a file that an older manifest names.
    return f"{name}.{secrets.token_hex(4)}.array"


def _on_heap(spec: ArraySpec, *, keep: int) -> _Entry:
    """Make an array on the heap; rows from `keep` on hold the fill, those before are for the caller to write."""
    reservation = reserve(spec.nbytes) if spec.nbytes > _SMALL else None
    if reservation is not None:
        return _Entry(spec, reservation.array(spec, keep=keep), reservation=reservation)
    # Zeros are left to the system, which hands out their pages when they are touched.
    array = np.full(spec.shape, spec.fill) if any(spec.fill.tobytes()) else np.zeros(spec.shape, spec.dtype)
    return _Entry(spec, array)


def _mapped(folder: Path, spec: ArraySpec, *, fill_from: int | None = None) -> _Entry:
    """Map a file, made longer if need be, and fill its rows from `fill_from` on.

    The array is a plain one and no `numpy.memmap`, which takes Numba longer to recognise at every call.
    """
    if spec.nbytes == 0:  # the system maps no empty file
        return _Entry(spec, np.empty(spec.shape, spec.dtype))
    with (folder / spec.file).open("r+b") as file:
        if os.fstat(file.fileno()).st_size < spec.nbytes:
            os.ftruncate(file.fileno(), spec.nbytes)
            if hasattr(os, "posix_fallocate"):
                # Reserve the room, do not only name it: a full disk is then an error here, no SIGBUS in some kernel.
                os.posix_fallocate(file.fileno(), 0, spec.nbytes)
        mapping = mmap.mmap(file.fileno(), spec.nbytes)
    array: NDArray[Any] = np.ndarray(spec.shape, spec.dtype, buffer=mapping)
    if fill_from is not None and any(spec.fill.tobytes()):  # new bytes of a file are zeros already
        array[fill_from:] = spec.fill
    return _Entry(spec, array, mapping)
