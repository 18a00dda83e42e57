"""The ground for kernels: how loops are compiled, where their arrays live, and three structures made of arrays.

    kernel       a plain loop becomes a kernel              column      what a kernel may be handed
    cache        where its code stays between runs          table       int64 key -> int64 value
    fingerprint  what that code depends on                  heap        the k best of a stream
    arena        where arrays live and grow                 postings    many lists that grow at the end
    manifest     what the folder of an arena says           prefetch    memory asked for in time

A structure is three things: a NamedTuple of arrays, kernels over it that stop where the room ends, and a small class
that owns it in an arena, grows it and goes on. Importing this package imports Numba; nothing outside kernels does.
"""

from nearcast._jit.arena import Arena
from nearcast._jit.cache import cache_folder
from nearcast._jit.column import column
from nearcast._jit.fingerprint import kernel_sources
from nearcast._jit.heap import (
    ENTERED,
    EVICTED,
    GREATEST,
    REFUSED,
    SMALLEST,
    HeapArrays,
    Heaps,
    heap_allot,
    heap_push,
    heap_remove,
    heap_replace,
    heap_sorted,
    heap_worst,
)
from nearcast._jit.kernel import KernelStats, compiled_signatures, kernel, kernels, stats, warm
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
    table_get,
    table_get_many,
    table_home,
    table_put,
    table_put_many,
    table_remove,
)

__all__ = [
    "ENTERED",
    "EVICTED",
    "FULL",
    "GREATEST",
    "INSERTED",
    "REFUSED",
    "REPLACED",
    "SMALLEST",
    "Arena",
    "HeapArrays",
    "Heaps",
    "KernelStats",
    "PostingArrays",
    "Postings",
    "Table",
    "TableArrays",
    "cache_folder",
    "column",
    "compiled_signatures",
    "heap_allot",
    "heap_push",
    "heap_remove",
    "heap_replace",
    "heap_sorted",
    "heap_worst",
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
    "table_get",
    "table_get_many",
    "table_home",
    "table_put",
    "table_put_many",
    "table_remove",
    "warm",
]
