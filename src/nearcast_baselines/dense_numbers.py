"""Dense numbers of keys: 0, 1, 2, ... in the order in which keys are added to a table."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import Table


def number_keys(table: Table, keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers of keys; new keys get the next numbers."""
    distinct, inverse = np.unique(keys, return_inverse=True)
    numbers = table.get_many(distinct)
    new = np.flatnonzero(numbers < 0)
    numbers[new] = np.arange(len(table), len(table) + len(new))
    table.put_many(distinct[new], numbers[new])
    return numbers[inverse]
