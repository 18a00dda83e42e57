"""Global load adjustment: a routing is fitted anew, and takes over as subscriptions come and go (PS2Stream, V-B).

    period ── fit ── a fresh routing ── does it pay? ── two routings at once ── few old subscriptions ── the fresh one

It pays if the busiest shard would do at most a given part of what it would do after a local adjustment, for all
subscriptions of the period. Only then a `Refit` begins, which moves nothing: see `nearcast.partition.transition`.
A `Retire` ends it, and moves the old subscriptions that are left. Meanwhile the routing is not adjusted.

The paper leaves the test open, and when the amount of old subscriptions is small; `Balance` has both as numbers.

Everything is a pure function: the same routing and period give the same decision.

Cost: a fit, and that of `adjust`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from nearcast.partition.balance.adjust import Adjusted, adjust
from nearcast.partition.balance.adjustment import Adjustment
from nearcast.partition.balance.cells import Period, has_cells
from nearcast.partition.balance.policy import Balance
from nearcast.partition.balance.steps import Refit, Retire, RoutingStep
from nearcast.partition.balance.subscription_work import costs_of
from nearcast.partition.balance.work import work_of
from nearcast.partition.base import Routing, Sample
from nearcast.partition.load import LoadCounts
from nearcast.partition.masks import Masks, count_rows, count_shards, has_shard, no_shards
from nearcast.partition.serialization import pack
from nearcast.partition.transition import TransitionRouting

Floats = npt.NDArray[np.float64]
Fit = Callable[[Sample], Routing]
"""Fits a routing among as many shards as before."""


def decide(routing: Routing, period: Period, policy: Balance, *, fit: Fit | None, since: int = 0) -> Adjusted | None:
    """Return what a policy makes of a routing after a period: a local or a global adjustment, or None.

    With `fit` it is tried whether a fresh routing pays. A transition begins at step `since`, if it is known.
    """
    if isinstance(routing, TransitionRouting):
        return retire(routing, period, policy)
    local = adjust(routing, period, sigma=policy.sigma, selection=policy.selection, most_moved=policy.most_moved)
    if fit is None or not len(period.footprints) or not len(period.messages):
        return local
    best = routing if local is None else local.routing
    fresh = fit(Sample(period.footprints, period.messages)).fixed()
    return refit(routing, best, period, policy, fresh=fresh, since=since) or local


def refit(
    routing: Routing, adjusted: Routing, period: Period, policy: Balance, *, fresh: Routing, since: int = 0
) -> Adjusted | None:
    """Return the transition from a routing to a fresh one, if that pays in comparison with an adjusted one."""
    old = routing.fixed()
    if shard_loads(fresh, period).max() * policy.refit_gain >= shard_loads(adjusted, period).max():
        return None
    step = Refit(base64.b64encode(pack(fresh)).decode(), since)
    loads = shard_loads(old, period), shard_loads(fresh, period)
    return _made(old, step, policy, loads, n_moved=0, n_bytes=0)


def retire(routing: TransitionRouting, period: Period, policy: Balance) -> Adjusted | None:
    """Return the new routing of a transition if the period has few old subscriptions left."""
    n = len(period.footprints)
    if np.count_nonzero(period.are_old) > policy.retire_below * n:
        return None
    loads = shard_loads(routing, period), shard_loads(routing.new, period)
    rows = np.flatnonzero(period.are_old)
    left = period.footprints.take(rows)
    n_moved = count_shards(routing.new.place(left) & ~routing.old.place(left)) * period.weight
    n_bytes = int((n_moved * period.sizes[rows]).sum())
    return _made(routing, Retire(), policy, loads, n_moved=int(n_moved.sum()), n_bytes=n_bytes)


def _made(
    routing: Routing,
    step: RoutingStep,
    policy: Balance,
    loads: tuple[Floats, Floats],
    *,
    n_moved: int,
    n_bytes: int,
) -> Adjusted:
    before, after = (tuple(some.tolist()) for some in loads)
    adjustment = Adjustment((step,), policy.selection, policy.sigma, before, after, n_moved, n_bytes)
    return Adjusted(step.apply(routing), adjustment)


def shard_loads(routing: Routing, period: Period) -> Floats:
    """Return the load of each shard in a period, under any routing."""
    if has_cells(routing):
        return work_of(routing, period).table().shard_loads
    n_shards, placed = routing.n_shards, _placed(routing, period)
    if routing.sends_all:
        costs, everywhere = costs_of(period)
        return np.array([costs[has_shard(placed, shard)].sum() for shard in range(n_shards)]) + everywhere
    seen = routing.route(period.messages) if len(period.messages) else no_shards(0, n_shards)
    compared = None
    if period.compared is not None:
        shares = period.compared * (period.weight * period.message_weight) / np.maximum(count_shards(seen), 1)
        compared = np.array([shares[has_shard(seen, shard)].sum() for shard in range(n_shards)])
    return LoadCounts(
        count_rows(seen, n_shards) * period.message_weight,
        count_rows(placed, n_shards) * period.weight,
        count_rows(placed[period.are_new], n_shards) * period.weight,
        count_rows(routing.place(period.deleted), n_shards) * period.weight,
        compared,
    ).loads()


def _placed(routing: Routing, period: Period) -> Masks:
    if isinstance(routing, TransitionRouting):
        return routing.place_mixed(period.footprints, period.are_old)
    return routing.place(period.footprints)
