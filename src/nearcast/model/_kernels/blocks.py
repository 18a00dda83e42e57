"""Blocks of a pool for runs of many lengths, from `nearcast._jit.blocks`."""

from nearcast._jit.blocks import (
    EXACT,
    FIRST,
    NEEDED,
    STATE,
    USED,
    class_of,
    give_block,
    size_of,
    take_block,
)

__all__ = ["EXACT", "FIRST", "NEEDED", "STATE", "USED", "class_of", "give_block", "size_of", "take_block"]
