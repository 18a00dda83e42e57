"""Common order of terms: by falling weight, terms of equal weight by position.

A prefix filter holds only if a subscription and a message order their terms in the same way. Terms arrive in
ascending number, so an insertion sort that moves only smaller weights keeps equal ones in that order. Lists have a
few terms each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel


@kernel
def insert_in_order(weights: NDArray[np.float64], position: int, order: NDArray[Any], n: int) -> None:
    """Insert a position into the first `n` of `order`, which stand by falling weight."""
    at = n
    while at > 0 and weights[order[at - 1]] < weights[position]:
        order[at] = order[at - 1]
        at -= 1
    order[at] = position


@kernel
def order_by_weight(weights: NDArray[np.float64], first: int, stop: int, order: NDArray[Any]) -> None:
    """Write the positions from `first` to `stop` by falling weight to the start of `order`."""
    for i in range(first, stop):
        insert_in_order(weights, i, order, i - first)
