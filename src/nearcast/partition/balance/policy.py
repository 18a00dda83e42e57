"""When and how a routing is adjusted while a stream runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nearcast.errors import is_finite, require
from nearcast.partition.balance.selection import selection_named

SIGMA = 1.2
"""The accepted ratio of the busiest to the idlest shard."""
LOADS = ("pairs", "products")


@dataclass(frozen=True)
class Balance:
    """Adjust the routing when the busiest shard does more than `sigma` times the work of the idlest one.

    >>> Balance(sigma=1.5)
    Balance(sigma=1.5, selection='gr', every=10, load='pairs', messages=20000)
    >>> Balance(sigma=0.5)
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: sigma must be a number of 1 or more; got 0.5 (balance)
    """

    sigma: float = SIGMA
    """The accepted ratio of the busiest to the idlest shard."""
    selection: str = "gr"
    """How cells are chosen: `gr` (greedy), `dp` (exact), `si` (the largest) or `ra` (random)."""
    every: int = 10
    """The loads are measured in one batch of so many."""
    load: str = "pairs"
    """What a message costs: the `pairs` that an index compares it in, or, as in the paper, messages times
    subscriptions (`products`)."""
    messages: int = 20_000
    """What counts as a batch of an `Engine`, whose calls may be short. Jobs on Spark have batches of their own."""

    def __post_init__(self) -> None:
        ok = is_finite(self.sigma) and self.sigma >= 1
        require(ok, "sigma", "must be a number of 1 or more", self.sigma, subject="balance")
        selection_named(self.selection)
        for name in ("every", "messages"):
            value = getattr(self, name)
            ok = isinstance(value, int) and not isinstance(value, bool) and value >= 1
            require(ok, name, "must be an integer of 1 or more", value, subject="balance")
        require(self.load in LOADS, "load", f"must be one of {list(LOADS)}", self.load, subject="balance")

    @classmethod
    def of(cls, given: Any, *, subject: str = "job") -> Balance | None:
        """Return what an option says: None or False for no balance, True for the defaults, or a `Balance`."""
        if given is None or given is False:
            return None
        if given is True:
            return cls()
        require(isinstance(given, cls), "balance", "must be True, False or a Balance", given, subject=subject)
        return given  # type: ignore[no-any-return]
