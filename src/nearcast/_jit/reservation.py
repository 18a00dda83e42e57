"""Reserved address ranges, in which an array grows without a copy.

    reserved    [ in use so far ............ | never touched ......................................... ]
    the array   [ its items ............ ]     addresses without memory: a page is allocated on first write

A range is as long as the machine's memory, so an array hardly ever outgrows it. Where the system grants none (limits,
other platforms) the arena copies instead.

Cost: two system calls to reserve; growth costs only the pages that are touched, at any size.
"""

from __future__ import annotations

import mmap
import os
import platform
import sys
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast._jit.manifest import ArraySpec

__all__ = ["Reservation", "reserve"]

_MEMORY_IF_UNKNOWN = 64 << 30
_USUAL = ("x86_64", "aarch64", "riscv64", "s390x")  # the usual values on Linux


class Reservation:
    """Addresses for one array; they are released with the last view of them."""

    def __init__(self, mapping: mmap.mmap) -> None:
        self._mapping = mapping
        self._handed_out = 0

    @property
    def nbytes(self) -> int:
        """The most bytes of an array in this range."""
        return len(self._mapping)

    def array(self, spec: ArraySpec, *, keep: int) -> NDArray[Any]:
        """Return an array over the first bytes: `keep` rows as they are, the others filled."""
        array: NDArray[Any] = np.ndarray(spec.shape, spec.dtype, buffer=self._mapping)
        if any(spec.fill.tobytes()):
            array[keep:] = spec.fill
        else:  # zeros, except for what an undone growth has left
            array[keep : -(-self._handed_out * spec.shape[0] // max(spec.nbytes, 1))] = spec.fill
        self._handed_out = max(self._handed_out, spec.nbytes)
        return array


def reserve(nbytes: int) -> Reservation | None:
    """Reserve addresses for an array of the given size; None if that is impossible.

    >>> reserve(1 << 62) is None
    True
    """
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        return None
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _no_reserve()
    try:
        mapping = mmap.mmap(-1, max(_memory(), 2 * nbytes), flags=flags)
    except (OSError, OverflowError, ValueError):
        return None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without huge pages; NumPy requests the same for its large arrays
            mapping.madvise(mmap.MADV_HUGEPAGE)
    return Reservation(mapping)


def _no_reserve() -> int:
    """Return the flag by which addresses do not count as committed memory.

    Without it Linux refuses to fork once adjacent ranges together exceed its memory.
    """
    known: int = getattr(mmap, "MAP_NORESERVE", 0)  # Python has a name for it from 3.13 on
    if known == 0 and sys.platform == "linux" and platform.machine() in _USUAL:
        return 0x4000
    return known


def _memory() -> int:
    """Return the machine's memory in bytes."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return _MEMORY_IF_UNKNOWN
