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

    >>> Balance(sigma=1.5).selection
    'gr'
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
    refit_every: int = 0
    """A fresh routing is tried in one measurement of so many; 0 for never. It takes over as subscriptions come and
    go, so it helps only where they do."""
    refit_gain: float = 1.2
    """A fresh routing pays if the busiest shard would do so many times less than after a local adjustment."""
    retire_below: float = 0.1
    """The old routing retires when at most this share of the subscriptions is left of it."""
    most_moved: float = 1.0
    """The share of the subscriptions, in bytes, that moves in one adjustment at most. With less, the batch in which
    they move is shorter, and it takes more adjustments to make shards even."""

    def __post_init__(self) -> None:
        ok = is_finite(self.sigma) and self.sigma >= 1
        require(ok, "sigma", "must be a number of 1 or more", self.sigma, subject="balance")
        selection_named(self.selection)
        for name in ("every", "messages"):
            value = getattr(self, name)
            ok = isinstance(value, int) and not isinstance(value, bool) and value >= 1
            require(ok, name, "must be an integer of 1 or more", value, subject="balance")
        every = self.refit_every
        ok = isinstance(every, int) and not isinstance(every, bool) and every >= 0
        require(ok, "refit_every", "must be an integer of 0 or more", every, subject="balance")
        ok = is_finite(self.refit_gain) and self.refit_gain > 0
        require(ok, "refit_gain", "must be a number above 0", self.refit_gain, subject="balance")
        ok = is_finite(self.retire_below) and 0 <= self.retire_below <= 1
        require(ok, "retire_below", "must be a number between 0 and 1", self.retire_below, subject="balance")
        ok = is_finite(self.most_moved) and 0 < self.most_moved <= 1
        rule = "must be a number above 0 and at most 1"
        require(ok, "most_moved", rule, self.most_moved, subject="balance")
        require(self.load in LOADS, "load", f"must be one of {list(LOADS)}", self.load, subject="balance")

    def tries_fresh(self, n_periods: int) -> bool:
        """Return whether a fresh routing is tried in a measurement, given its number from 1."""
        return self.refit_every > 0 and n_periods % self.refit_every == 0

    @classmethod
    def of(cls, given: Any, *, subject: str = "job") -> Balance | None:
        """Return what an option says: None or False for no balance, True for the defaults, or a `Balance`."""
        if given is None or given is False:
            return None
        if given is True:
            return cls()
        require(isinstance(given, cls), "balance", "must be True, False or a Balance", given, subject=subject)
        return given  # type: ignore[no-any-return]
