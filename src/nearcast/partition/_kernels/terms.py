"""Kernel of `nearcast.partition.text_metric`: the greedy assignment of terms to shards."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel
from nearcast.partition._kernels.masks import trailing_zeros


class TermMessages(NamedTuple):
    """Terms with their messages."""

    indptr: NDArray[np.int64]
    """int64 (n_terms + 1,): where the messages of each term begin."""
    rows: NDArray[np.int32]
    """int32 (n,): messages that hold the term."""
    held: NDArray[np.int64]
    """int64 (n_terms,): branches posted under the term."""
    order: NDArray[np.int64]
    """int64 (n_terms,): terms in the order of assignment."""


@kernel(allocates=True)
def gather_terms(
    terms: TermMessages,
    seen_by: NDArray[np.uint64],
    shards: NDArray[np.int32],
    most: float,
    loads: NDArray[np.float64],
    constants: tuple[float, float, float],
) -> bool:
    """Assign each term to the shard whose load grows least, among those that stay at or below `most`.

    `seen_by` holds the shards that see each message as masks, `shards` the shard of each term, and `loads` the loads
    of shards; all are written. Return whether all terms fit.
    """
    check, handle, insert = constants
    n_shards, n_words = loads.size, seen_by.shape[1]
    seen, held = np.zeros(n_shards, np.int64), np.zeros(n_shards, np.int64)
    known = np.zeros(n_shards, np.int64)
    seen_by[:] = 0
    loads[:] = 0.0
    for term in terms.order:
        first, end = terms.indptr[term], terms.indptr[term + 1]
        known[:] = 0
        for i in range(first, end):
            for word in range(n_words):
                left = seen_by[terms.rows[i], word]
                while left != 0:
                    known[word * 64 + trailing_zeros(left)] += 1
                    left &= left - np.uint64(1)
        best, best_load = -1, 0.0
        for shard in range(n_shards):
            messages, branches = seen[shard] + end - first - known[shard], held[shard] + terms.held[term]
            load = check * messages * branches + handle * messages + insert * branches
            if load <= most and (best < 0 or load - loads[shard] < best_load - loads[best]):
                best, best_load = shard, load
        if best < 0:
            return False
        shards[term] = best
        seen[best] += end - first - known[best]
        held[best] += terms.held[term]
        loads[best] = best_load
        for i in range(first, end):
            seen_by[terms.rows[i], best >> 6] |= np.uint64(1) << np.uint64(best & 63)
    return True
