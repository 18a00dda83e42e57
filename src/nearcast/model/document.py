"""What does a subscription see of a message? Its place, its time and its weighted terms."""

from __future__ import annotations

from typing import NamedTuple

from nearcast.model.identity import Id
from nearcast.space import Point


class Document(NamedTuple):
    """One message as the reference scores see it."""

    seq: int
    """Its place in the total order."""
    id: Id
    location: Point
    at_us: int
    """Microseconds since the epoch, or NO_TIME."""
    place: Id | None
    units: dict[int, float]
    """Term number -> tf-idf in a vector of length 1, in the order of the numbers."""
    weight: float
    """Sum of the idf of its terms, in that order."""
