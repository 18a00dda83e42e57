"""Estimates of partitioners: each is fitted to one half of a sample and evaluated on the other.

    sample ─┬─ half ── fit ───────────────────────── routing ──┐
            └─ half ── place, route ── pairs by shard ─────────┴── one estimate each ── the recommended one

An engine spends CHECK on each message and subscription (PS2Stream, definition 1). This cost is distributed over the
candidate pairs, messages and branches that an index compares (`candidate_pairs`): a shard pays for the pairs that it
has both sides of. The papers charge each message of a shard for all its subscriptions. An index, however, does not
visit subscriptions elsewhere or with other terms, so a shard does not get faster by not having them. HANDLE is added
for each message that a shard sees.

The busiest shard limits the throughput, so the partitioner whose busiest shard has the least to do is best. Estimates
are accurate to about a tenth, so the first partitioner within a tenth of the best is recommended, in the given order,
which begins with the simplest. The time of a fit does not count, so two runs with the same constants recommend the
same. Without messages, or with one shard, all partitioners are equal, and the first is recommended.

Two cases differ. Threads of one engine divide the messages, not the subscriptions, if the routing sends all messages
to all shards: nothing is replicated, and each thread handles its share. Processes, as on Spark, do not. And results
of replicas have to be merged: with stateful subscriptions, where messages go to some shards only, the changes of all
replicas cost what a `MergeCost` says, in one thread of an engine, or in as many processes as there are shards. Where
that was not measured, all work takes as many times longer as there are replicas per subscription. For `narrows` the
estimate is that of the beginning, when every branch is still needed.

Cost: one fit per partitioner, and a million candidate pairs that all of them share.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from nearcast.errors import require
from nearcast.partition.base import Partitioner, Routing, Sample
from nearcast.partition.candidate_pairs import CandidatePairs, find_candidate_pairs, spread
from nearcast.partition.load import CHECK, HANDLE, INSERT
from nearcast.partition.masks import Masks, are_empty, check_shards, count_rows, count_shards
from nearcast.partition.registry import partitioners as all_partitioners

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]
T = TypeVar("T")

ENOUGH, ENOUGH_MESSAGES = 100_000, 20_000  # enough for a choice
_SLACK = 1.1
_PAIRS_AT_ONCE = 1 << 16


class Constants(NamedTuple):
    """The constants of PS2Stream, in microseconds."""

    check: float = CHECK
    """Cost of a message and a subscription in the same shard."""
    handle: float = HANDLE
    """Cost of a message."""
    insert: float = INSERT
    """Cost of a new subscription."""


class MergeCost(NamedTuple):
    """What it costs to merge the results of replicas, as measured."""

    change_us: float
    """Microseconds per change of a replica."""
    changes: float
    """Changes of results per message, if each subscription is in one shard."""

    def per_message(self, replicas: float, *, n_partitions: int) -> float:
        """Return microseconds per message of each of the partitions that merge, given replicas per subscription.

        >>> MergeCost(change_us=0.5, changes=100.0).per_message(2.0, n_partitions=4)
        25.0
        """
        return self.change_us * self.changes * replicas / n_partitions


@dataclass(frozen=True)
class Estimate:
    """What a partitioner would do with a stream like the sample."""

    name: str
    routing: Routing
    """Fitted to half of the sample."""
    fit_seconds: float
    placed_per_second: float
    routed_per_second: float
    replication: float
    """Replicas per subscription."""
    reach: float
    """Shards per message, on average."""
    dropped: float
    """The share of messages that go to no shard."""
    seen: Floats
    """float64 (n_shards,): messages of the sample."""
    held: Floats
    """float64 (n_shards,): subscriptions of the sample."""
    own_loads: Floats
    """float64 (n_shards,): load by the routing's own measure."""
    loads: Floats
    """float64 (n_shards,): load by definition 1, in microseconds for the sample."""
    busy_us: Floats
    """float64 (n_shards,): microseconds per message of the stream, by candidate pairs."""
    merging_us: float
    """What of these is spent to merge the results of replicas, where that was measured."""

    @property
    def busiest_us(self) -> float:
        """Microseconds per message of the stream in the busiest shard."""
        return float(self.busy_us.max())

    @property
    def total_load(self) -> float:
        """Definition 1, summed over all shards."""
        return float(self.loads.sum())


class Evenness(NamedTuple):
    """How evenly shards are loaded; 1 and 1 is perfect."""

    max_over_mean: float
    max_over_min: float

    @classmethod
    def of(cls, loads: Floats) -> Evenness:
        """Compare the greatest load with the mean and the least.

        >>> Evenness.of(np.array([1.0, 2.0, 3.0]))
        Evenness(max_over_mean=1.5, max_over_min=3.0)
        """
        most = float(loads.max())
        return (
            cls(most / float(loads.mean()), most / float(loads.min()) if loads.min() else np.inf)
            if most
            else cls(1, 1)
        )


def estimate_partitioners(
    sample: Sample,
    *,
    n_shards: int,
    partitioners: Sequence[Partitioner] | None = None,
    constants: Constants | None = None,
    n_subscriptions: int | None = None,
    in_threads: bool = True,
    merging: MergeCost | None = None,
    watch: Callable[[str], None] = lambda name: None,
) -> list[Estimate]:
    """Return one estimate per partitioner, in their order.

    A sample may stand for more subscriptions than it holds. Shards are threads of one engine, or processes. `watch`
    is called with the name of each partitioner.
    """
    check_shards(n_shards)
    partitioners = partitioners or all_partitioners()
    fitted, evaluated = _halves(sample)
    scales = _Scales(
        len(sample.messages) / max(1, len(evaluated.messages)),
        (len(sample.footprints) if n_subscriptions is None else n_subscriptions) / max(1, len(evaluated.footprints)),
        constants or Constants(),
        in_threads,
        merging,
    )
    candidate_pairs = find_candidate_pairs(evaluated)
    estimates = []
    for partitioner in partitioners:
        watch(partitioner.name)
        estimates.append(_estimate(partitioner, fitted, evaluated, candidate_pairs, scales, n_shards))
    return estimates


def recommend(
    estimates: Sequence[Estimate], *, adjusted_us: Mapping[str, float] | None = None
) -> tuple[Estimate, str]:
    """Return the recommended estimate and the reason as a sentence.

    `adjusted_us` holds what the busiest shard does per message if its load is adjusted, moves included, by name.
    """
    require(len(estimates) > 0, "estimates", "must hold at least one", list(estimates))
    first, costs = estimates[0], {estimate.name: estimate.busiest_us for estimate in estimates}
    adjusted = {name: us for name, us in (adjusted_us or {}).items() if us < costs[name]}
    costs |= adjusted
    best = min(costs.values())
    if best == 0 or len(first.busy_us) == 1:
        return first, f"nothing tells them apart yet, so {first.name} it is, the simplest"
    taken = next(estimate for estimate in estimates if costs[estimate.name] <= _SLACK * best)
    works = f"its busiest shard works {costs[taken.name]:.3g} microseconds a message"
    works += " if its load is adjusted, moves included" if taken.name in adjusted else ""
    if taken is first:
        return taken, f"{works}, no other saves more than a tenth of that, and it is the simplest"
    return taken, f"{works}, that of {first.name}, the simplest, {costs[first.name]:.3g}"


def choose(
    sample: Sample, *, n_shards: int, partitioners: Sequence[Partitioner] | None = None, in_threads: bool = True
) -> Routing:
    """Return the recommended routing, fitted to the whole sample; the choice uses a part of it.

    >>> choose(Sample.none(), n_shards=4)
    HashRouting(n_shards=4)
    """
    partitioners = partitioners or all_partitioners()
    n_subscriptions = len(sample.footprints)
    taken = partitioners[0]
    if n_shards > 1 and n_subscriptions and len(sample.messages):
        some = Sample(spread(sample.footprints, ENOUGH), spread(sample.messages, ENOUGH_MESSAGES))
        estimates = estimate_partitioners(
            some, n_shards=n_shards, partitioners=partitioners, n_subscriptions=n_subscriptions, in_threads=in_threads
        )
        names = [estimate.name for estimate in estimates]
        taken = partitioners[names.index(recommend(estimates)[0].name)]
    return taken.fit(sample, n_shards=n_shards)


class _Scales(NamedTuple):
    """What the evaluated half stands for."""

    messages: float
    subscriptions: float
    constants: Constants
    in_threads: bool
    merging: MergeCost | None


def _estimate(
    partitioner: Partitioner,
    fitted: Sample,
    evaluated: Sample,
    candidate_pairs: CandidatePairs,
    scales: _Scales,
    n_shards: int,
) -> Estimate:
    footprints, batch = evaluated
    routing, fit_seconds = _timed(lambda: partitioner.fit(fitted, n_shards=n_shards))
    own_loads = routing.loads.copy()  # some routings update their loads when they place
    assignment, place_seconds = _timed(lambda: routing.place(footprints))
    goals, route_seconds = _timed(lambda: routing.route(batch))
    keeps = footprints.ks > 0
    is_shared = np.full(len(footprints), routing.sends_all and scales.in_threads)  # divided by messages
    n, n_shared = len(batch), int(is_shared.sum())
    apart = np.where(is_shared[:, None], np.uint64(0), assignment)
    seen = np.full(n_shards, float(n)) if routing.sends_all else count_rows(goals, n_shards).astype(np.float64)
    held = count_rows(apart, n_shards).astype(np.float64)
    if n_shared and n_shared == len(footprints):
        seen = np.full(n_shards, n / n_shards)
    n_replicas = count_shards(assignment)
    merged, merging_us = 1.0, 0.0
    if keeps.any() and not routing.sends_all:
        replicas = float(n_replicas[keeps].mean())
        if scales.merging is None:
            merged = replicas
        else:
            merging_us = scales.merging.per_message(replicas, n_partitions=1 if scales.in_threads else n_shards)
    work = _pairs_of_shards(candidate_pairs, apart, goals, n_shards)
    work += is_shared[candidate_pairs.subscriptions].sum() / n_shards
    check, handle, insert = scales.constants
    stands_for = len(footprints) * scales.subscriptions
    finding = check * n * stands_for * work / max(1, len(candidate_pairs.messages))
    busy_us = merged * (handle * seen + finding) / max(1, n) + merging_us
    n_seen, n_held = seen * scales.messages, held * scales.subscriptions
    n_common = n_shared * scales.subscriptions  # each thread visits them for its share of the messages
    loads = check * (n_seen * n_held + n * scales.messages / n_shards * n_common)
    loads += handle * n_seen + insert * (n_held + n_common / n_shards)
    n_replicas = np.where(is_shared, 1, n_replicas)
    return Estimate(
        name=partitioner.name,
        routing=routing,
        fit_seconds=fit_seconds,
        placed_per_second=len(footprints) / place_seconds,
        routed_per_second=n / route_seconds,
        replication=float(n_replicas.mean()) if len(n_replicas) else 1.0,
        reach=float(seen.sum()) / max(1, n),
        dropped=float(are_empty(goals).mean()) if n else 0.0,
        seen=n_seen,
        held=n_held + n_common,
        own_loads=own_loads,
        loads=loads,
        busy_us=busy_us,
        merging_us=merging_us,
    )


def _pairs_of_shards(pairs: CandidatePairs, held: Masks, seen: Masks, n_shards: int) -> Floats:
    """Return the number of pairs that each shard has both sides of."""
    counts = np.zeros(n_shards)
    for first in range(0, len(pairs.messages), _PAIRS_AT_ONCE):
        messages, subscriptions = (rows[first : first + _PAIRS_AT_ONCE] for rows in pairs)
        counts += count_rows(held[subscriptions] & seen[messages], n_shards)
    return counts


def _halves(sample: Sample) -> tuple[Sample, Sample]:
    """Return half of the rows, and the other half; both are all rows if there is only one."""

    def rows(n: int) -> tuple[Longs, Longs]:
        order = np.random.default_rng(n).permutation(n)
        return (np.sort(order[: n // 2]), np.sort(order[n // 2 :])) if n > 1 else (order, order)

    (ours, others), (early, late) = rows(len(sample.footprints)), rows(len(sample.messages))
    footprints, messages = sample
    return Sample(footprints.take(ours), messages.take(early)), Sample(footprints.take(others), messages.take(late))


def _timed(call: Callable[[], T]) -> tuple[T, float]:
    started = time.perf_counter()
    made = call()
    return made, max(time.perf_counter() - started, 1e-9)
