"""The boundary between the messages of a window that have expired and those that are alive."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel


class Horizon(NamedTuple):
    """Which messages are alive at one step; see `nearcast.window.policy` for keys and horizons."""

    first: int
    """The first number that may be alive."""
    keys: NDArray[np.int64]
    """int64 (a power of two,): expiry keys by number modulo the size."""
    key: int
    """The greatest key that has expired."""
    in_order: bool
    """True if messages expire in the order of arrival, so that `first` decides alone."""


@kernel(inline=True)
def is_dead(horizon: Horizon, number: int) -> bool:
    """Return whether a message has expired: it precedes the first, or its own key is at or below the horizon."""
    return number < horizon.first or (
        not horizon.in_order and horizon.keys[number & (horizon.keys.size - 1)] <= horizon.key
    )
