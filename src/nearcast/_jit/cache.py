"""The cache of compiled code on disk, and the lock that lets one process compile each kernel.

    $NEARCAST_CACHE | $XDG_CACHE_HOME/nearcast/kernels | ~/.cache/nearcast/kernels | a private temp folder
    └── kernels-<folder digest>/
        ├── <module>.<kernel>-<entry digest>.code    sha256 of the rest, then a pickled compile result
        └── <module>.<kernel>-<entry digest>.lock    held by the process that compiles it, then removed

A file is written under another name and renamed, so an existing file is complete, and loading needs no lock. A
process that misses a file takes its lock and checks again before it compiles: of many processes that start at once,
one compiles a kernel while others compile other kernels. A damaged file fails its checksum and counts as missing. A
full or read-only disk costs time but is never an error. The same holds for a lock that cannot be taken: a lock that
is held for very long, perhaps by a process that waits for this one (kernels may call each other), is ignored.

Folders and files that are unused for a month are removed.

Cost: loading a kernel takes some milliseconds, compiling one takes some hundred.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import pickle
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from numba.core import sigutils
from numba.core.caching import _Cache
from numba.core.codegen import RuntimeLinker
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from nearcast._jit.fingerprint import entry_digest, folder_digest

__all__ = ["KernelCache", "cache_folder"]

_log = logging.getLogger(__name__)
_FOLDER = re.compile(r"kernels-[0-9a-f]{24}")
_STALE_AFTER_S = 30 * 24 * 3600
_PATIENCE_S = 300
_CHECKSUM_BYTES = hashlib.sha256().digest_size


class KernelCache(_Cache):
    """The files of one kernel, behind the interface of Numba's cache."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._stem = f"{function.__module__}.{function.__qualname__}".replace("<", "").replace(">", "")

    @property
    def cache_path(self) -> str:
        """Folder of the files."""
        return str(cache_folder())

    def lock_if_missing(self, signature: Any) -> AbstractContextManager[Any]:
        """Hold the lock of a missing signature while it is compiled; re-entrant, for recursive kernels."""
        path = self._path(signature)
        if path.exists():
            return contextlib.nullcontext()
        _report_compilation()
        return _locked(path.with_suffix(".lock"))

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compile result of `sig`, or None if there is no valid one."""
        target_context.refresh()
        try:
            path = self._path(sig)
            stored = path.read_bytes()
        except OSError:
            return None
        with contextlib.suppress(OSError):  # a read-only folder
            os.utime(path)
        checksum, data = stored[:_CHECKSUM_BYTES], stored[_CHECKSUM_BYTES:]
        if hashlib.sha256(data).digest() != checksum:
            return None
        try:
            signature, reduced = pickle.loads(data)
        except Exception:  # it names a class or a kernel that this process does not have
            return None
        # A class that pickles by value comes back as another class, which no call will match.
        if signature.args != _arguments(sig):
            return None
        return CompileResult._rebuild(target_context, *reduced)  # type: ignore[no-untyped-call]

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store a compile result, unless it holds addresses of this process or the disk refuses."""
        if data.lifted or data.library.has_dynamic_globals or _calls_in_a_circle(data.library):
            return
        payload = dumps((data.signature, data._reduce()))  # type: ignore[no-untyped-call]
        path = self._path(sig)
        beside = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(hashlib.sha256(payload).digest() + payload)
            beside.replace(path)
        except OSError:
            beside.unlink(missing_ok=True)
        _prune_files(path.parent)

    def flush(self) -> None:
        """Remove every signature of this kernel."""
        for path in cache_folder().glob(f"{self._stem}-*.code"):
            path.unlink(missing_ok=True)

    def enable(self) -> None:
        """Do nothing: the cache is always on."""

    def disable(self) -> None:
        """Do nothing: the cache is always on."""

    def _path(self, signature: Any) -> Path:
        digest = entry_digest(self._function, _arguments(signature))
        return cache_folder() / f"{self._stem}-{digest}.code"


@functools.cache
def _report_compilation() -> None:
    """Log once per process what the first calls wait for. Without a configured log, the line goes to stderr."""
    _log.warning("Nearcast compiles its kernels, once per machine; `nearcast warmup` does this in advance.")


def _calls_in_a_circle(library: Any) -> bool:
    """Return whether code reaches a kernel through a pointer that Numba sets only after compiling both."""
    return any(one.name.startswith(RuntimeLinker.PREFIX) for one in library._final_module.global_variables)


def _arguments(signature: Any) -> tuple[Any, ...]:
    return tuple(sigutils.normalize_signature(signature)[0])  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock, or continue without it after a long wait; the lock file is removed afterwards."""
    lock = _lock(path)
    try:
        lock.acquire(timeout=_PATIENCE_S)
    except (Timeout, OSError):
        yield
        return
    try:
        yield
    finally:
        # A waiting process finds the code written; a process that comes now creates a new lock file and finds it too.
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        lock.release()


@functools.cache
def _lock(path: Path) -> FileLock:
    return FileLock(path)


@functools.cache
def cache_folder() -> Path:
    """Return the writable folder for this version of the kernels on this machine.

    >>> cache_folder().name.startswith("kernels-")
    True
    """
    name = f"kernels-{folder_digest()}"
    for root in _roots():
        if _make_writable(root / name):
            _prune(root)
            return root / name
    return Path(tempfile.mkdtemp(prefix="nearcast-")) / name


def _roots() -> Iterator[Path]:
    """Yield possible roots of the cache, best first."""
    if chosen := os.environ.get("NEARCAST_CACHE"):
        yield Path(chosen).expanduser().absolute()
    else:
        with contextlib.suppress(RuntimeError):  # a user without a home folder
            yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nearcast" / "kernels"
    shared = Path(tempfile.gettempdir()) / f"nearcast-{os.getuid()}"
    if _is_private(shared):
        yield shared


def _is_private(folder: Path) -> bool:
    """Create a folder that only this user may write: its content will be executed."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


def _make_writable(folder: Path) -> bool:
    """Create the folder and return whether files can be written there; also marks it as used today."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        os.utime(folder)
    except OSError:
        return False
    return True


def _prune(root: Path) -> None:
    """Remove versions that no process has opened for a month."""
    for folder in root.iterdir():
        with contextlib.suppress(OSError):
            if _FOLDER.fullmatch(folder.name) and _is_stale(folder):
                shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def _prune_files(folder: Path) -> None:
    """Remove code that no process has loaded for a month; once per process, and only if it compiles."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            with contextlib.suppress(OSError):
                if _is_stale(path):
                    path.unlink()


def _is_stale(path: Path) -> bool:
    return path.stat().st_mtime < time.time() - _STALE_AFTER_S
