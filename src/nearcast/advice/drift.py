"""Dry runs of load adjustment: what would have moved while a recorded stream went by, and what it would have gained.

    periods of a stream    0 ── fit ── routing ──┬── loads of period 1, 2, ... if it stays as it is
                                                 └── loads of period 1, 2, ... adjusted after each of them

Decisions are those of a job with the same `Balance`, and replay from their JSON. Nothing is published: loads are
estimates from counts, so a dry run takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.advice.stream import Stream
from nearcast.errors import require
from nearcast.partition import Partitioner, Sample
from nearcast.partition.balance.adjust import adjust
from nearcast.partition.balance.adjustment import Adjustment
from nearcast.partition.balance.cells import Period, has_cells
from nearcast.partition.balance.policy import Balance
from nearcast.partition.balance.refit import refit, shard_loads

Floats = npt.NDArray[np.float64]

HEADINGS = (
    "busiest / idlest, as fitted",
    "adjusted",
    "gain",
    "subscriptions moved",
    "bytes moved",
    "steps",
    "gain of a fresh fit",
)


class DriftPeriod(NamedTuple):
    """One period of a dry run."""

    fixed: Floats
    """The load of each shard under the routing that was fitted to the first period."""
    adjusted: Floats
    """The load of each shard under the routing as it has been adjusted until now."""
    decision: Adjustment | None
    """What is adjusted after the period."""
    fresh: Floats
    """The load of each shard if all subscriptions were where a routing that is fitted to the period places them."""
    refit: Adjustment | None
    """The transition to that routing, if it pays after what is adjusted."""

    @property
    def gain(self) -> float:
        """The load of the busiest shard as fitted over that as adjusted."""
        return float(self.fixed.max() / max(self.adjusted.max(), 1e-300))

    @property
    def fresh_gain(self) -> float:
        """The load of the busiest shard as adjusted until now over that under a fresh routing."""
        return float(self.adjusted.max() / max(self.fresh.max(), 1e-300))


@dataclass(frozen=True)
class DriftReport:
    """What adjustments would have done."""

    stream: str
    partitioner: str
    shards: int
    balance: Balance
    messages_per_period: int
    periods: Sequence[DriftPeriod]

    @property
    def gain(self) -> float:
        """The load of the busiest shards of all periods as fitted over that as adjusted."""
        fixed, adjusted = (sum(float(loads.max()) for loads in some) for some in self._loads())
        return fixed / max(adjusted, 1e-300)

    @property
    def title(self) -> str:
        """What was tried."""
        periods = f"{len(self.periods)} periods of {self.messages_per_period:,} messages"
        return f"{self.stream}: {self.partitioner}, {self.shards} shards, {periods}"

    @property
    def summary(self) -> str:
        """What adjustments would have gained, in a sentence."""
        pays = [str(number) for number, period in enumerate(self.periods, 1) if period.refit is not None]
        after = f"after period{'' if len(pays) == 1 else 's'} {', '.join(pays)}" if pays else "after no period"
        return f"{self._adjusted}; a fresh routing (global adjustment) would pay {after}"

    @property
    def _adjusted(self) -> str:
        decisions = [period.decision for period in self.periods if period.decision is not None]
        if not decisions:
            return f"No period has a shard with more than {self.balance.sigma:g} times the load of the idlest one"
        moved = sum(decision.moved_subscriptions for decision in decisions)
        n = f"{len(decisions)} adjustment{'' if len(decisions) == 1 else 's'}"
        return f"{n}, {moved:,} subscriptions moved; the busiest shard would have had 1/{self.gain:.2f} of its load"

    def rows(self) -> list[tuple[str, ...]]:
        """Return a row of cells for each period."""
        return [
            (
                str(number),
                *(f"{ratio(loads):.2f}" for loads in (period.fixed, period.adjusted)),
                f"{period.gain:.2f}",
                *_moved(period.decision),
                f"{period.fresh_gain:.2f}" + (", pays" if period.refit is not None else ""),
            )
            for number, period in enumerate(self.periods, 1)
        ]

    def figures(self) -> dict[str, Any]:
        """Return the report as JSON values, with every decision as it can be replayed."""
        return {
            "stream": self.stream,
            "partitioner": self.partitioner,
            "shards": self.shards,
            "sigma": self.balance.sigma,
            "selection": self.balance.selection,
            "load": self.balance.load,
            "messages_per_period": self.messages_per_period,
            "gain": self.gain,
            "periods": [
                {
                    "loads_fixed": period.fixed.tolist(),
                    "loads_adjusted": period.adjusted.tolist(),
                    "gain": period.gain,
                    "loads_fresh": period.fresh.tolist(),
                    "refit": None if period.refit is None else period.refit.content(),
                    "decision": None if period.decision is None else period.decision.content(),
                }
                for period in self.periods
            ],
        }

    def _loads(self) -> tuple[list[Floats], list[Floats]]:
        return [period.fixed for period in self.periods], [period.adjusted for period in self.periods]


def try_adjusting(
    stream: Stream,
    partitioner: Partitioner,
    *,
    n_shards: int,
    balance: Balance,
    n_periods: int,
    watch: Callable[[str], None] = lambda what: None,
) -> DriftReport:
    """Divide a stream into periods, fit a partitioner to the first, and adjust its routing after each of the others.

    All subscriptions are there from the beginning and none goes, so a fresh routing never takes over: it is only
    compared. Cost: seconds per period for a hundred thousand subscriptions, most of it for the fresh fit.
    """
    footprints, messages = stream.sample
    rule = f"must be at least one for each of the {n_periods + 1} periods"
    require(len(messages) > n_periods, "messages", rule, len(messages), subject="drift")
    bounds = np.linspace(0, len(messages), n_periods + 2).astype(np.int64)
    parts = [messages.take(np.arange(start, stop)) for start, stop in pairwise(bounds.tolist())]
    watch(f"fitting {partitioner.name}")
    fitted = partitioner.fit(Sample(footprints, parts[0]), n_shards=n_shards)
    check_adjustable(fitted, partitioner.name)
    fixed = adjusted = fitted.fixed()
    periods = []
    for number, part in enumerate(parts[1:], 1):
        watch(f"{partitioner.name}, period {number} of {n_periods}")
        period = Period.of(part, footprints, counts_pairs=balance.load == "pairs")
        loads = shard_loads(fixed, period), shard_loads(adjusted, period)
        made = adjust(
            adjusted, period, sigma=balance.sigma, selection=balance.selection, most_moved=balance.most_moved
        )
        before, adjusted = adjusted, adjusted if made is None else made.routing
        fresh = partitioner.fit(Sample(footprints, part), n_shards=n_shards).fixed()
        pays = refit(before, adjusted, period, balance, fresh=fresh)
        decision = None if made is None else made.adjustment
        refitted = None if pays is None else pays.adjustment
        periods.append(DriftPeriod(*loads, decision, shard_loads(fresh, period), refitted))
    return DriftReport(stream.name, partitioner.name, n_shards, balance, len(parts[1]), periods)


def check_adjustable(routing: Any, name: str) -> None:
    """Raise `InvalidInput` for a routing whose load cannot be adjusted."""
    rule = "must divide its work into cells to be adjusted, as hybrid, space_kd or keyword do"
    require(has_cells(routing), "partitioner", rule, name, subject="drift")


def ratio(loads: Floats) -> float:
    """Return the load of the busiest shard over that of the idlest one."""
    return float(loads.max() / max(loads.min(), 1e-300))


def _moved(decision: Adjustment | None) -> tuple[str, str, str]:
    if decision is None:
        return "", "", ""
    return f"{decision.moved_subscriptions:,}", f"{decision.moved_bytes:,}", f"{len(decision.steps):,}"
