"""Trials: short runs of a whole engine, and PS2Stream's constants measured by such runs.

    with a window:     fill ── subscribe ── warm up ── publish (timed)
    without:           subscribe ── warm up ── publish (timed)

Half of the messages fill the window and warm up; the other half is timed, for a few seconds at most.
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
_LEAST = 1e-9  # least value of a constant, in microseconds
_PARTS = 3  # share of the subscriptions, for the measurement of constants


class Trial(NamedTuple):
    """The result of a trial."""

    messages_per_second: float
    replicas: float
    """Shards that hold a subscription at the end; fewer than at first if replicas are removed."""


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

    An engine receives a few, half and all of the subscriptions. HANDLE is the time of a message against a few of
    them, CHECK the additional time against all, INSERT the time of a later subscription. The median of batches
    counts, since the first one often compiles.
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
    """Publish until the time is up; return the duration of each batch."""
    seconds: list[float] = []
    for start in range(0, messages.num_rows, _BATCH):
        started = time.perf_counter()
        engine.publish(messages.slice(start, _BATCH))
        seconds.append(time.perf_counter() - started)
        if sum(seconds) > longest_s:
            break
    return seconds
