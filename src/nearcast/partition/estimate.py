"""Which partitioner suits a sample? Each is fitted to one half of it and weighed on the other.

    sample ─┬─ half ── fit ───────────────────────────── routing ──┐
            └─ half ── place, route ── who meets whom, and where ──┴── an estimate each ── the one to take

What finding costs an engine that works alone is CHECK for each message and subscription (PS2Stream, definition 1). It
is spread over the *touches*, messages and branches that may meet (`candidate_pairs`): a shard does the part of which
it has both. The papers take each message of a shard to cost as much as it has subscriptions; but an index does not
look at what is elsewhere or about something else, so a shard is not quicker for lacking it. On top comes HANDLE for
each message that a shard sees.

The rule: throughput is that of the busiest shard, so the estimate with the least there is best. The first in the
order given, which begins with the simplest, that has at most a tenth more is taken: estimates are not better than
that. How long a fit took does not matter: with the same constants two runs take the same. Without messages, or with
one shard, nothing tells partitioners apart, and it is the first.

Two things are not as they look. Threads of one engine part the messages, not the subscriptions, of kinds that keep
nothing, if the routing sends all: nobody is replicated, and each thread handles its share. Processes, as on Spark,
do not. And what replicas keep has to be merged: with subscriptions that keep results, everything takes as many times
longer as these have homes, if messages go to some shards only. For `narrows` the estimate is that of the first
moment, when every branch is still needed.

Cost: a fit for each partitioner, and a million touches, which all of them share.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from nearcast.errors import require
from nearcast.partition import PARTITIONERS
from nearcast.partition.base import Masks, Partitioner, Routing, Sample, check_shards, has_shard
from nearcast.partition.candidate_pairs import CandidatePairs, find_candidate_pairs, spread
from nearcast.partition.load import CHECK, HANDLE, INSERT

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]
T = TypeVar("T")

ENOUGH, ENOUGH_MESSAGES = 100_000, 20_000  # to choose by
_SLACK = 1.1


class Constants(NamedTuple):
    """PS2Stream's, in microseconds."""

    check: float = CHECK
    """A message and a subscription in the same place."""
    handle: float = HANDLE
    """A message."""
    insert: float = INSERT
    """A subscription that comes."""


@dataclass(frozen=True)
class Estimate:
    """What a partitioner would do to a stream like the sample."""

    name: str
    routing: Routing
    """Fitted to half of the sample."""
    fit_seconds: float
    placed_per_second: float
    routed_per_second: float
    replication: float
    """Homes a subscription."""
    reach: float
    """Shards a message goes to, on average."""
    dropped: float
    """The share of messages that go nowhere."""
    seen: Floats
    """float64 (n_shards,): messages of the sample."""
    held: Floats
    """float64 (n_shards,): subscriptions of the sample."""
    own_loads: Floats
    """float64 (n_shards,): by the routing's own measure."""
    loads: Floats
    """float64 (n_shards,): definition 1, in microseconds for the sample."""
    busy_us: Floats
    """float64 (n_shards,): microseconds a message of the stream, by touches."""

    @property
    def busiest_us(self) -> float:
        """How long the busiest shard takes for a message of the stream."""
        return float(self.busy_us.max())

    @property
    def total_load(self) -> float:
        """Definition 1, over all shards."""
        return float(self.loads.sum())


class Balance(NamedTuple):
    """How evenly shards are loaded: 1 and 1 at best."""

    max_over_mean: float
    max_over_min: float

    @classmethod
    def of(cls, loads: Floats) -> Balance:
        """Compare the greatest load with the others.

        >>> Balance.of(np.array([1.0, 2.0, 3.0]))
        Balance(max_over_mean=1.5, max_over_min=3.0)
        """
        most = float(loads.max())
        return (
            cls(most / float(loads.mean()), most / float(loads.min()) if loads.min() else np.inf)
            if most
            else cls(1, 1)
        )


def weigh(
    sample: Sample,
    *,
    n_shards: int,
    partitioners: Sequence[Partitioner] = PARTITIONERS,
    constants: Constants | None = None,
    n_subscriptions: int | None = None,
    in_threads: bool = True,
    watch: Callable[[str], None] = lambda name: None,
) -> list[Estimate]:
    """Return an estimate a partitioner, in their order.

    A sample may stand for more subscriptions than it holds. Shards are threads of one engine, or processes. `watch`
    is told whose turn it is.
    """
    check_shards(n_shards)
    fitted, weighed = _halves(sample)
    scales = _Scales(
        len(sample.messages) / max(1, len(weighed.messages)),
        (len(sample.footprints) if n_subscriptions is None else n_subscriptions) / max(1, len(weighed.footprints)),
        constants or Constants(),
        in_threads,
    )
    candidate_pairs = find_candidate_pairs(weighed)
    estimates = []
    for partitioner in partitioners:
        watch(partitioner.name)
        estimates.append(_estimate(partitioner, fitted, weighed, candidate_pairs, scales, n_shards))
    return estimates


def recommend(estimates: Sequence[Estimate]) -> tuple[Estimate, str]:
    """Return the one to take, and why, in a sentence."""
    require(len(estimates) > 0, "estimates", "must hold one at least", list(estimates))
    first = estimates[0]
    best = min(estimate.busiest_us for estimate in estimates)
    if best == 0 or len(first.busy_us) == 1:
        return first, f"nothing tells them apart yet, so {first.name} it is, the simplest"
    taken = next(estimate for estimate in estimates if estimate.busiest_us <= _SLACK * best)
    works = f"its busiest shard works {taken.busiest_us:.3g} microseconds a message"
    if taken is first:
        return taken, f"{works}, no other saves more than a tenth of that, and it is the simplest"
    return taken, f"{works}, that of {first.name}, the simplest, {first.busiest_us:.3g}"


def choose(
    sample: Sample, *, n_shards: int, partitioners: Sequence[Partitioner] = PARTITIONERS, in_threads: bool = True
) -> Routing:
    """Return the routing to take, fitted to all of the sample; some of it is enough to choose by.

    >>> choose(Sample.none(), n_shards=4)
    HashRouting(n_shards=4)
    """
    n_subscriptions = len(sample.footprints)
    taken = partitioners[0]
    if n_shards > 1 and n_subscriptions and len(sample.messages):
        some = Sample(spread(sample.footprints, ENOUGH), spread(sample.messages, ENOUGH_MESSAGES))
        estimates = weigh(
            some, n_shards=n_shards, partitioners=partitioners, n_subscriptions=n_subscriptions, in_threads=in_threads
        )
        names = [estimate.name for estimate in estimates]
        taken = partitioners[names.index(recommend(estimates)[0].name)]
    return taken.fit(sample, n_shards=n_shards)


class _Scales(NamedTuple):
    """How much what is weighed stands for."""

    messages: float
    subscriptions: float
    constants: Constants
    in_threads: bool


def _estimate(
    partitioner: Partitioner,
    fitted: Sample,
    weighed: Sample,
    candidate_pairs: CandidatePairs,
    scales: _Scales,
    n_shards: int,
) -> Estimate:
    footprints, batch = weighed
    routing, fit_seconds = _timed(lambda: partitioner.fit(fitted, n_shards=n_shards))
    own_loads = routing.loads.copy()  # some count on, when others are placed
    assignment, place_seconds = _timed(lambda: routing.place(footprints))
    goals, route_seconds = _timed(lambda: routing.route(batch))
    keeps = footprints.ks > 0
    is_shared = np.full(len(footprints), routing.sends_all and scales.in_threads) & ~keeps  # by messages, not shards
    n, n_shared = len(batch), int(is_shared.sum())
    apart = np.where(is_shared, np.uint64(0), assignment)
    seen, held = _per_shard(goals, n_shards), _per_shard(apart, n_shards)
    if n_shared and n_shared == len(footprints):
        seen = np.full(n_shards, n / n_shards)
    merged = 1.0 if routing.sends_all or not keeps.any() else float(np.bitwise_count(assignment[keeps]).mean())
    work = _per_shard(apart[candidate_pairs.subscriptions] & goals[candidate_pairs.messages], n_shards)
    work += is_shared[candidate_pairs.subscriptions].sum() / n_shards
    check, handle, insert = scales.constants
    stands_for = len(footprints) * scales.subscriptions
    finding = check * n * stands_for * work / max(1, len(candidate_pairs.messages))
    busy_us = merged * (handle * seen + finding) / max(1, n)
    n_seen, n_held = seen * scales.messages, held * scales.subscriptions
    n_common = n_shared * scales.subscriptions  # each thread looks at them for its share of the messages
    loads = check * (n_seen * n_held + n * scales.messages / n_shards * n_common)
    loads += handle * n_seen + insert * (n_held + n_common / n_shards)
    n_homes = np.where(is_shared, 1, np.bitwise_count(assignment))
    return Estimate(
        name=partitioner.name,
        routing=routing,
        fit_seconds=fit_seconds,
        placed_per_second=len(footprints) / place_seconds,
        routed_per_second=n / route_seconds,
        replication=float(n_homes.mean()) if len(n_homes) else 1.0,
        reach=float(seen.sum()) / max(1, n),
        dropped=float((goals == 0).mean()) if n else 0.0,
        seen=n_seen,
        held=n_held + n_common,
        own_loads=own_loads,
        loads=loads,
        busy_us=busy_us,
    )


def _per_shard(masks: Masks, n_shards: int) -> Floats:
    """Return how many masks hold each shard."""
    return np.array([has_shard(masks, shard).sum() for shard in range(n_shards)], np.float64)


def _halves(sample: Sample) -> tuple[Sample, Sample]:
    """Return half of the rows, and the others; both are all of them where there is only one."""

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
