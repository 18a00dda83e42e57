"""Documents: messages with weighted terms, the input of reference scores."""

from __future__ import annotations

from typing import NamedTuple

from nearcast.model.identity import Id
from nearcast.space import Point


class Document(NamedTuple):
    """One message with its weighted terms."""

    seq: int
    """Position in the total order of messages."""
    id: Id
    location: Point
    at_us: int
    """Microseconds since the epoch, or NO_TIME."""
    place: Id | None
    units: dict[int, float]
    """Term id to tf-idf, in the order of ids; the vector has length 1."""
    weight: float
    """Sum of the idf of its terms, in that order."""
    codes: tuple[int, ...] = ()
    """The values of the engine's attributes, see `Attributes`."""
    order: tuple[int, ...] = ()
    """The term ids in the order of the text, repetitions included; phrases need it."""
