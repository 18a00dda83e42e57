"""Dense numbers of terms: 64-bit term ids numbered 0, 1, 2, ... in the order of their first appearance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import TableArrays, kernel, prefetch, table_find, table_first_slot, table_get, table_put

_AHEAD = 16  # terms whose table entries are prefetched


@kernel
def number_terms(table: TableArrays, term_ids: NDArray[np.int64], numbers: NDArray[np.int32]) -> None:
    """Write the dense number of every term, and number the new ones. The table must have room for all of them."""
    for i in range(term_ids.size):
        number = table_get(table, term_ids[i], -1)
        if number < 0:
            number = table.n_taken[0]
            table_put(table, term_ids[i], number)
        numbers[i] = number


@kernel
def find_numbers(table: TableArrays, term_ids: NDArray[np.int64], missing: int, numbers: NDArray[np.int32]) -> None:
    """Write the dense number of every term, `missing` for terms that are not in the table."""
    last = term_ids.size - 1
    for i in range(term_ids.size):
        upcoming = table_first_slot(table, term_ids[min(i + _AHEAD, last)])
        prefetch(table.tags, upcoming)
        prefetch(table.entries, upcoming)
        slot = table_find(table, term_ids[i])
        numbers[i] = table.entries[slot, 1] if slot >= 0 else missing
