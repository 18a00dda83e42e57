"""The report: all estimates, the measurements, and the recommendation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from nearcast.advice.shard_costs import Adjusting, ShardCosts, adjusting_of, measure_shard_costs
from nearcast.advice.stream import Stream
from nearcast.advice.trial import Trial, measure_constants, try_out
from nearcast.partition import Partitioner, Routing
from nearcast.partition import partitioners as all_partitioners
from nearcast.partition.balance.policy import Balance
from nearcast.partition.estimate import Constants, Estimate, Evenness, estimate_partitioners, recommend

HEADINGS = (
    "replicas", "reach", "busiest µs", "merging µs", "adjusted µs", "max/ mean", "max/ min", "load s", "fit s",
    "messages/s",
)  # fmt: skip
"""Headings of the table, after the name."""

COLUMNS_EXPLAINED = (
    "replicas: shards that hold a subscription; reach: shards that receive a message; busiest: estimated time per "
    "message of the busiest shard; merging: what of it merges results of replicas; adjusted: the same with load "
    "adjustment, moves included; max/mean and max/min: how evenly the shards are busy; load: PS2Stream's cost of "
    "the whole sample; fit: time to fit the routing; messages/s: measured in a short run"
)
"""What the headings mean."""

_ROUNDS = 2  # short runs per partitioner, in turns, because other work on the machine comes and goes
_CLEARLY = 1.1  # a run must be this many times as fast before a simpler partitioner is given up


@dataclass(frozen=True)
class AdviceReport:
    """Estimates and trials of partitioners for one stream."""

    stream: Stream
    n_shards: int
    in_threads: bool
    """True if shards are threads of one engine, false if they are processes."""
    constants: Constants
    estimates: list[Estimate]
    costs: ShardCosts
    """What moving and merging cost, as measured."""
    adjustings: dict[str, Adjusting]
    """Name to what an adjustment does, for partitioners whose load can be adjusted and is not even."""
    trials: dict[str, Trial]
    """Name to the best of its short runs; empty if shards are processes."""
    taken: Estimate
    reason: str

    def routing(self, partitioners: Sequence[Partitioner] | None = None) -> Routing:
        """Return the recommended routing, fitted to the whole stream."""
        (partitioner,) = (one for one in partitioners or all_partitioners() if one.name == self.taken.name)
        return partitioner.fit(self.stream.sample, n_shards=self.n_shards)

    @property
    def adjusted_us(self) -> dict[str, float]:
        """Microseconds per message of the busiest shard with load adjustment, moves included, by name."""
        return adjusted_costs(self.estimates, self.adjustings, self.costs)

    @property
    def costs_explained(self) -> str:
        """What was measured of moving and merging, as a sentence."""
        move, merging = self.costs
        moves = f"A subscription that moves costs {move:.3g} µs"
        if merging is None:
            return f"{moves}."
        return (
            f"{moves}, a change of a replica that is merged {merging.change_us:.3g} µs; a message makes "
            f"{merging.changes:,.1f} changes of results."
        )

    @property
    def title(self) -> str:
        """What was compared, as one line."""
        n_subscriptions, n_messages = (len(part) for part in self.stream.sample)
        subscriptions = f"{n_subscriptions:,} {' and '.join(self.stream.kinds)} subscriptions"
        shards = f"{self.n_shards} {'threads' if self.in_threads else 'processes'}"
        return f"{self.stream.name}: {subscriptions}, {n_messages:,} messages, {shards}"

    def rows(self) -> list[tuple[str, list[str]]]:
        """Return the name of each partitioner and the cells of its row."""
        rows = []
        for estimate in self.estimates:
            busy, trial = Evenness.of(estimate.busy_us), self.trials.get(estimate.name)
            cells = [f"{estimate.replication:.2f}", f"{estimate.reach:.2f}"]
            adjusted = self.adjusted_us.get(estimate.name)
            cells += [f"{estimate.busiest_us:.3g}", f"{estimate.merging_us:.3g}" if estimate.merging_us else "-"]
            cells += ["-" if adjusted is None else f"{adjusted:.3g}"]
            cells += [f"{busy.max_over_mean:.2f}", f"{busy.max_over_min:.2f}"]
            cells += [f"{estimate.total_load / 1e6:,.2f}", f"{estimate.fit_seconds:.2f}"]
            rows.append((estimate.name, [*cells, "-" if trial is None else f"{trial.messages_per_second:,.0f}"]))
        return rows

    def figures(self) -> dict[str, Any]:
        """Return everything as plain values."""
        sample = self.stream.sample
        return {
            "stream": self.stream.name,
            "kinds": self.stream.kinds,
            "subscriptions": len(sample.footprints),
            "messages": len(sample.messages),
            "shards": self.n_shards,
            "in_threads": self.in_threads,
            "constants": self.constants._asdict(),
            "move_us": self.costs.move_us,
            "merging": None if self.costs.merging is None else self.costs.merging._asdict(),
            "partitioners": [self._figures(estimate) for estimate in self.estimates],
            "recommended": self.taken.name,
            "reason": self.reason,
        }

    def _figures(self, estimate: Estimate) -> dict[str, Any]:
        trial, adjusting = self.trials.get(estimate.name), self.adjustings.get(estimate.name)
        balances = {
            "busy": Evenness.of(estimate.busy_us),
            "load": Evenness.of(estimate.loads),
            "own_load": Evenness.of(estimate.own_loads),
        }
        return {
            "name": estimate.name,
            "replication": round(estimate.replication, 3),
            "reach": round(estimate.reach, 3),
            "dropped": round(estimate.dropped, 4),
            "busiest_us": estimate.busiest_us,
            "merging_us": estimate.merging_us,
            "adjusted_us": self.adjusted_us.get(estimate.name),
            "moved_per_message": None if adjusting is None else adjusting.moved,
            "total_load": estimate.total_load,
            **{
                f"{name}_{ratio}": value if isfinite(value) else None  # JSON has no infinity
                for name, balance in balances.items()
                for ratio, value in balance._asdict().items()
            },
            "fit_seconds": round(estimate.fit_seconds, 4),
            "placed_per_second": round(estimate.placed_per_second),
            "routed_per_second": round(estimate.routed_per_second),
            "messages_per_second": None if trial is None else round(trial.messages_per_second, 1),
            "replicas_after_run": None if trial is None else round(trial.replicas, 3),
        }


def advise(
    stream: Stream,
    *,
    n_shards: int,
    workers: int,
    in_threads: bool = True,
    partitioners: Sequence[Partitioner] | None = None,
    watch: Callable[[str], None] = lambda what: None,
) -> AdviceReport:
    """Estimate and run every partitioner that serves a stream; `watch` is called with the current step."""
    watch("reading the stream")
    sample = stream.sample
    partitioners = partitioners or all_partitioners()
    watch("measuring this machine")
    constants, costs = measure_constants(stream), measure_shard_costs(stream)
    estimates = estimate_partitioners(
        sample, n_shards=n_shards, partitioners=partitioners, constants=constants, in_threads=in_threads,
        merging=costs.merging, watch=lambda name: watch(f"estimating {name}"),
    )  # fmt: skip
    adjustings = {}
    for partitioner in partitioners:
        watch(f"adjusting {partitioner.name}")
        found = adjusting_of(partitioner, sample, n_shards=n_shards, in_threads=in_threads, balance=Balance())
        if found is not None:
            adjustings[partitioner.name] = found
    adjusted_us = adjusted_costs(estimates, adjustings, costs)
    trials: dict[str, Trial] = {}
    for name in [partitioner.name for partitioner in partitioners] * (_ROUNDS if in_threads else 0):
        watch(f"running {name}")
        trial = try_out(stream, name, workers=workers)
        trials[name] = max(trial, trials.get(name, trial))
    if trials:
        taken, reason = recommend_measured(estimates, trials, adjusted_us=adjusted_us)
    else:
        taken, reason = recommend(estimates, adjusted_us=adjusted_us)
    if trials and workers < n_shards:
        reason += f"; the runs had {workers} threads, one per core, not {n_shards}"
    return AdviceReport(stream, n_shards, in_threads, constants, estimates, costs, adjustings, trials, taken, reason)


def adjusted_costs(
    estimates: Sequence[Estimate], adjustings: Mapping[str, Adjusting], costs: ShardCosts
) -> dict[str, float]:
    """Return microseconds per message of the busiest shard with load adjustment, moves included, by name."""
    by_name, move_us = {estimate.name: estimate for estimate in estimates}, costs.move_us
    return {
        name: one.cost_us(by_name[name].busiest_us, merging_us=by_name[name].merging_us, move_us=move_us)
        for name, one in adjustings.items()
    }


def recommend_measured(
    estimates: Sequence[Estimate], trials: Mapping[str, Trial], *, adjusted_us: Mapping[str, float] | None = None
) -> tuple[Estimate, str]:
    """Return the first estimate whose trial is close to the fastest, and the reason as a sentence.

    A trial has no load adjustment. Where that would pay, its rate is scaled by what the estimate says.
    """
    rates = {name: trial.messages_per_second for name, trial in trials.items()}
    busiest = {estimate.name: estimate.busiest_us for estimate in estimates}
    adjusted = {name: us for name, us in (adjusted_us or {}).items() if us < busiest[name]}
    rates |= {name: rates[name] * busiest[name] / us for name, us in adjusted.items()}
    first, best = estimates[0], max(rates.values())
    taken = next(estimate for estimate in estimates if rates[estimate.name] * _CLEARLY >= best)
    measured = f"it handled {rates[taken.name]:,.0f} messages per second in a short run"
    if taken.name in adjusted:
        unadjusted = trials[taken.name].messages_per_second
        measured = f"it would handle {rates[taken.name]:,.0f} messages per second with load adjustment"
        measured += f", and handled {unadjusted:,.0f} in a short run without"
    if taken is first:
        return taken, f"{measured}, no other was faster by more than a tenth, and it is the simplest"
    return taken, f"{measured}, and {first.name}, the simplest, {rates[first.name]:,.0f}"
