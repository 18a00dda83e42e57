"""Classes of blocks whose sizes are powers of two."""

from __future__ import annotations

from nearcast._jit import kernel


@kernel
def class_of_size(size: int) -> int:
    """Return the least class whose blocks, of 2**class items, hold `size` items."""
    size_class = 0
    while (1 << size_class) < size:
        size_class += 1
    return size_class
