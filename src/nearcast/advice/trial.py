"""How fast is it here? A short run of a whole engine, and PS2Stream's constants by such runs.

    a window to fill: fill ── subscribe ── warm up ── publish (timed)
    none:             subscribe ── warm up ── publish (timed)

Half of the messages are for filling and warming up; the other half is timed, as far as it comes in a few seconds.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from nearcast.advice.stream import Stream
from nearcast.engine import Engine
from nearcast.partition.estimate import Constants

_BATCH = 500
_WARM = 2  # batches
_LONGEST_S = 3.0
_LEAST = 1e-9  # of a constant, in microseconds
_PARTS = 3  # of the messages, to measure constants with


class Trial(NamedTuple):
    """What an engine did."""

    messages_per_second: float
    assignment: float
    """Shards that hold a subscription in the end: fewer than at first, where these are narrowed."""


def try_out(stream: Stream, partitioner: str, *, workers: int) -> Trial:
    """Run an engine with a partitioner."""
    half = stream.messages.num_rows // 2
    before, timed = stream.messages.slice(0, half), stream.messages.slice(half)
    n_filling = 0 if stream.window is None else max(0, half - _WARM * _BATCH)
    with Engine(**stream.engine_options, workers=workers, partitioner=partitioner) as engine:
        _publish(engine, before.slice(0, n_filling))
        engine.subscribe(stream.subscriptions)
        _publish(engine, before.slice(n_filling))
        seconds = _publish(engine, timed, longest_s=_LONGEST_S)
        stats = engine.stats()
    n_timed = min(timed.num_rows, len(seconds) * _BATCH)
    return Trial(n_timed / max(sum(seconds), _LEAST), sum(stats.shards) / max(1, stats.subscriptions))


def measure_constants(stream: Stream) -> Constants:
    """Return PS2Stream's constants of this machine for the kinds of a stream.

    An engine takes in a few, half, all of the subscriptions. HANDLE is what a message takes that meets a few, CHECK
    what it takes more that meets all, INSERT what one of the later subscriptions takes. Batches count by their
    median: something is always done for the first time.
    """
    n, share = stream.subscriptions.num_rows, stream.messages.num_rows // _PARTS
    mixed = stream.subscriptions.take(np.random.default_rng(n).permutation(n))
    sizes = np.unique([max(1, n // 100), max(1, n // 2), n]).tolist()
    taking, inserting = [], []
    with Engine(**stream.engine_options) as engine:
        for number, (start, size) in enumerate(pairwise([0, *sizes])):
            started = time.perf_counter()
            engine.subscribe(mixed.slice(start, size - start))
            inserting.append((time.perf_counter() - started) / (size - start))
            seconds = _publish(engine, stream.messages.slice(number * share, share), longest_s=_LONGEST_S)
            taking.append(float(np.median(seconds or [0.0])) / max(1, min(_BATCH, share)))
    check = (taking[-1] - taking[0]) / max(1, sizes[-1] - sizes[0])
    return Constants(*(max(1e6 * cost, _LEAST) for cost in (check, taking[0], min(inserting))))


def _publish(engine: Engine, messages: pa.Table, *, longest_s: float = np.inf) -> list[float]:
    """Publish until the time is over; return how long each batch took."""
    seconds: list[float] = []
    for start in range(0, messages.num_rows, _BATCH):
        started = time.perf_counter()
        engine.publish(messages.slice(start, _BATCH))
        seconds.append(time.perf_counter() - started)
        if sum(seconds) > longest_s:
            break
    return seconds
