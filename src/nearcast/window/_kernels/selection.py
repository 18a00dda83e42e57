"""Selection of messages of the window by their terms."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel, prefetch
from nearcast.window.store import WindowArrays

_AHEAD = 16  # messages whose terms are prefetched


@kernel
def mark_with_any_term(
    window: WindowArrays, numbers: NDArray[np.int64], wanted: NDArray[np.int64], marks: NDArray[np.bool_]
) -> None:
    """Mark the messages that hold one of some terms, which ascend as those of a message do."""
    starts, n_terms, term_ids = window.term_starts, window.n_terms, window.term_ids
    mask, lane, last = starts.size - 1, term_ids.size - 1, numbers.size - 1
    for i in range(numbers.size):
        prefetch(term_ids, starts[numbers[min(i + _AHEAD, last)] & mask] & lane)
        place = numbers[i] & mask
        at, other = starts[place] & lane, 0
        stop = at + n_terms[place]
        while at < stop and other < wanted.size and not marks[i]:
            term, want = term_ids[at], wanted[other]
            marks[i] = term == want
            at += term <= want
            other += want <= term
