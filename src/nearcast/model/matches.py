"""Matches: what an index hands to a result store."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Matches(NamedTuple):
    """Pairs of message and subscription, in the order of the messages."""

    rows: npt.NDArray[np.int64]
    """Row of the message in its batch, ascending."""
    slots: npt.NDArray[np.int32]
    """Slot of the subscription."""
    scores: npt.NDArray[np.float64]
    """The exact score, as the kind defines it."""
