"""Support for kernels: compilation, arrays that grow, and two data structures made of arrays.

    kernel       the decorator that compiles a loop         column      arrays as kernels take them
    cache        compiled code on disk                      table       int64 key -> int64 value
    fingerprint  what compiled code depends on              postings    many lists that grow at the end
    arena        arrays that grow                           prefetch    prefetching of cache lines
    manifest     the manifest of an arena's folder          blocks      runs of many lengths in one pool

A data structure consists of a NamedTuple of arrays, kernels over it that stop when it is full, and a small class that
owns it in an arena, grows it and continues. Only this package and the kernels import Numba.
"""

from nearcast._jit.arena import Arena
from nearcast._jit.cache import cache_folder
from nearcast._jit.column import column
from nearcast._jit.fingerprint import kernel_sources
from nearcast._jit.kernel import KernelStats, compiled_signatures, kernel, kernels, stats
from nearcast._jit.postings import (
    PostingArrays,
    Postings,
    postings_append,
    postings_append_many,
    postings_clear,
    postings_copy,
    postings_first,
    postings_next,
    postings_remove,
    postings_remove_at,
)
from nearcast._jit.prefetch import prefetch
from nearcast._jit.table import (
    FULL,
    INSERTED,
    REPLACED,
    Table,
    TableArrays,
    mix,
    table_find,
    table_first_slot,
    table_get,
    table_get_many,
    table_put,
    table_put_many,
    table_remove,
)

__all__ = [
    "FULL",
    "INSERTED",
    "REPLACED",
    "Arena",
    "KernelStats",
    "PostingArrays",
    "Postings",
    "Table",
    "TableArrays",
    "cache_folder",
    "column",
    "compiled_signatures",
    "kernel",
    "kernel_sources",
    "kernels",
    "mix",
    "postings_append",
    "postings_append_many",
    "postings_clear",
    "postings_copy",
    "postings_first",
    "postings_next",
    "postings_remove",
    "postings_remove_at",
    "prefetch",
    "stats",
    "table_find",
    "table_first_slot",
    "table_get",
    "table_get_many",
    "table_put",
    "table_put_many",
    "table_remove",
]
