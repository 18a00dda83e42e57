"""Load adjustment of a job that runs: the driver reads what shards saw of a batch, and adds an epoch.

    shards ── parts of a period, every few batches ── adjust ── the next epoch, with the decision beside it

While an epoch waits nothing is decided. A decision is data: it leads from the routing of one epoch to that of the
next, and `EpochLog.adjustments` returns all of them.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from nearcast.errors import require
from nearcast.jobs.epochs import EpochLog
from nearcast.jobs.job import GIVEN, Job
from nearcast.jobs.periods import Measured, newest_measured, read_parts
from nearcast.partition.balance.adjustment import Adjustment
from nearcast.partition.balance.cells import has_cells
from nearcast.partition.balance.period_parts import period_of
from nearcast.partition.balance.policy import Balance
from nearcast.partition.balance.refit import decide
from nearcast.partition.fitting import fit
from nearcast.partition.serialization import pack, unpack
from nearcast.partition.transition import TransitionRouting


class Decision(NamedTuple):
    """An adjustment, and the epoch that it leads to."""

    epoch: int
    adjustment: Adjustment

    def __str__(self) -> str:
        return f"epoch {self.epoch}: {self.adjustment}"


def check_balance(job: Job) -> None:
    """Raise `InvalidInput` for a job whose routing cannot be adjusted."""
    if job.balance is not None and job.state is not None:
        rule = "must be left out for this partitioner: it has no cells that could move"
        routing = job.routing.new if isinstance(job.routing, TransitionRouting) else job.routing
        require(has_cells(routing), "balance", rule, job.partitioner, subject="job")
        rule = "must be a name if a fresh routing is to be tried, or balance have refit_every = 0"
        ok = job.balance.refit_every == 0 or job.partitioner != GIVEN
        require(ok, "partitioner", rule, "a fitted routing", subject="job")


class Balancer:
    """Adjusts the routing of one job, batch by batch."""

    def __init__(self, job: Job, policy: Balance) -> None:
        """Take a stream that was started."""
        assert job.state is not None
        self._state, self._policy = job.state, policy
        self._log = EpochLog(job.state)
        self._partitioner = job.partitioner
        self._seen: Measured | None = None
        self._n_periods = 0

    def look(self) -> Decision | None:
        """Adjust the routing to the newest batch that was measured, once; None if nothing is to be changed."""
        newest = self._log.newest()
        if newest is None or newest.routing is None:
            return None
        measured = newest_measured(self._state, epoch=newest.number, shards=newest.shards)
        if measured is None or measured == self._seen:
            return None
        self._seen = measured
        parts = read_parts(self._state, measured, epoch=newest.number, shards=newest.shards)
        period = period_of(parts, counts_pairs=self._policy.load == "pairs")
        self._n_periods += 1
        fresh = partial(fit, self._partitioner, n_shards=newest.shards, in_threads=False)
        tries = self._policy.tries_fresh(self._n_periods)
        made = decide(unpack(newest.routing), period, self._policy, fit=fresh if tries else None)
        if made is None:
            return None
        epoch = self._log.add_adjusted(newest, pack(made.routing), made.adjustment)
        return Decision(epoch.number, made.adjustment)
