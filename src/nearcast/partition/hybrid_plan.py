"""PS2Stream's algorithm 1: the division of the work into parts, and the assignment of parts to shards.

    1  where messages and subscriptions use different terms, space is cut as long as a side differs more
    2  if there are fewer parts than shards, a dynamic program divides them further with the least total load
    3  parts are merged into shards; while these are uneven, the heaviest part is divided in two (with many shards,
       several at once)

A part whose messages and subscriptions differ is divided by text, any other part by whichever way adds less load;
some terms of a part of space are divided by text only, as the leaves of a kd^t-tree are. Of all rounds, the one whose
busiest shard has the least load counts.

Cost: a few seconds for a million subscriptions and eight shards; merging reads all messages and subscriptions of the
parts once per round.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.partition.hybrid_parts import SampleWork, WorkPart, total
from nearcast.partition.load import load_of
from nearcast.partition.masks import add_shard, count_rows, no_shards

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]

DELTA = 0.5
"""At this similarity or above, messages and subscriptions use the same terms."""
MINOR = 0.05
"""A smaller change of the similarity counts as none."""
SIGMA = 1.2
"""The accepted ratio of the busiest to the least busy shard."""
THETA = 4
"""The most parts per shard."""


ONE_BY_ONE = 64
"""Below twice as many shards a round divides one part; with c times as many, c**2 parts: a round merges all parts, so
the work of all rounds together stays about the same.
"""


class HybridPlan(NamedTuple):
    """The assignment of parts to shards."""

    parts: list[WorkPart]
    shards: Ints
    """int32 (n_parts,): the shard of each part."""
    loads: Floats
    """float64 (n_shards,): definition 1, for the messages and subscriptions of a shard."""


def plan(work: SampleWork, n_shards: int) -> HybridPlan:
    """Divide the work among shards."""
    parts = _alike(work, n_shards)
    if len(parts) < n_shards:
        costs = [_costs(work, part, n_shards - len(parts) + 1) for part in parts]
        numbers = numbers_of_parts(costs, n_shards)
        parts = [piece for part, n in zip(parts, numbers, strict=True) for piece in _divided(work, part, n)]
    best = made = merged(parts, work, n_shards)
    while made.loads.max() > SIGMA * made.loads.min() and len(parts) < THETA * n_shards:
        loads = np.array([part.load for part in parts])
        heaviest = set(np.argsort(-loads, kind="stable")[: max(1, (n_shards // ONE_BY_ONE) ** 2)].tolist())
        pieces = [_divided(work, part, 2) if i in heaviest else [part] for i, part in enumerate(parts)]
        if all(len(some) == 1 for some in pieces):
            break
        parts = [piece for some in pieces for piece in some]
        made = merged(parts, work, n_shards)
        best = min(best, made, key=lambda one: one.loads.max())
    return best


def numbers_of_parts(costs: list[Floats], n: int) -> list[int]:
    """Return the number of pieces of each part, n in all, with the least sum of costs.

    `costs[i][k - 1]` is the cost of part i in k pieces.

    >>> numbers_of_parts([np.array([9.0, 8.0, 7.0]), np.array([9.0, 5.0, 4.0])], 4)
    [2, 2]
    """
    least = np.array([0.0] + [np.inf] * n)  # by the number of pieces so far
    chosen = []
    for cost in costs:
        sums = np.full((n + 1, n + 1), np.inf)  # total, and pieces of the last part
        for k in range(1, min(n, len(cost)) + 1):
            sums[k:, k] = least[: n + 1 - k] + cost[k - 1]
        chosen.append(np.argmin(sums, axis=1))
        least = sums.min(axis=1)
    numbers = []
    for choice in reversed(chosen):
        numbers.append(int(choice[n]))
        n -= numbers[-1]
    return numbers[::-1]


def merged(parts: list[WorkPart], work: SampleWork, n_shards: int) -> HybridPlan:
    """Assign each part, the heaviest first, to the shard whose load grows least.

    What a shard has already adds nothing: parts of the same place share messages, neighbours share subscriptions. A
    shard that would exceed the greatest load so far is skipped; if all would, the least loaded one takes the part.
    """
    shards = np.zeros(len(parts), np.int32)
    seen, held = np.zeros(n_shards, np.int64), np.zeros(n_shards, np.int64)
    saw, holds = no_shards(work.n_messages, n_shards), no_shards(work.n_subscriptions, n_shards)
    for at in np.argsort([-part.load for part in parts], kind="stable").tolist():
        messages, subscriptions = parts[at].sent, work.owners(parts[at])
        more_seen = len(messages) - count_rows(saw[messages], n_shards)
        more_held = work.weight * (len(subscriptions) - count_rows(holds[subscriptions], n_shards))
        before, after = load_of(seen, held), load_of(seen + more_seen, held + more_held)
        fits = after <= before.max()
        shard = int(np.argmin(np.where(fits, after - before, np.inf) if fits.any() else before))
        shards[at] = shard
        seen[shard] += more_seen[shard]
        held[shard] += more_held[shard]
        add_shard(saw, messages, shard)
        add_shard(holds, subscriptions, shard)
    return HybridPlan(parts, shards, load_of(seen, held))


def _alike(work: SampleWork, n_shards: int) -> list[WorkPart]:
    """Return the parts of the first phase: space, cut where messages and subscriptions differ."""
    open_, done = [work.all()], []
    while open_:
        part = open_.pop()
        alike = work.similarity(part)
        if alike >= DELTA:
            done.append(part)
            continue
        cuts = [halves for axis in (0, 1) if len(halves := work.halves(part, axis)) == 2]
        least = [min(work.similarity(half) for half in halves) for halves in cuts]
        if not cuts or abs(min(least) - alike) < MINOR or len(open_) + len(done) + 2 > n_shards:
            done.append(replace(part, text_only=True))
        else:
            open_ += cuts[int(np.argmin(least))]
    return done


def _divided(work: SampleWork, part: WorkPart, n: int) -> list[WorkPart]:
    """Return a part divided into n: as many pieces as possible, with the lesser load."""
    if n == 1:
        return [part]
    by_text = work.by_text(part, n)
    if part.text_only:
        return by_text
    return min(work.by_space(part, n), by_text, key=lambda pieces: (-len(pieces), total(pieces)))


def _costs(work: SampleWork, part: WorkPart, most: int) -> Floats:
    """Return the load of a part divided into 1, 2, ... pieces; interpolated between powers of two."""
    tried = sorted({most, *(2**i for i in range(most.bit_length()))})
    return np.interp(np.arange(1, most + 1), tried, [total(_divided(work, part, n)) for n in tried])
