"""Question: what do placement, routing and dispatch cost with many shards?

No shard runs: the partitioners place and route, and the stage of the pipeline that sends rows to shards packs them.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from experiments.partition_runs import NAMED, stream_of
from experiments.question import Question, Row, report_progress, scaled
from nearcast.engine import EngineConfig
from nearcast.jobs.block_files import BlockFiles
from nearcast.jobs.folder import Folder
from nearcast.jobs.frame import Frame
from nearcast.jobs.job import Job
from nearcast.partition import Sample, count_shards
from nearcast.partition.serialization import pack

SHARDS = (64, 256, 1_024)
DISPATCHED_TO = (2, 8, 32, 64, 256, 1_024)
DISPATCHED = ("hash", "keyword", "space_kd", "hybrid")
"""One that sends all to all, one by terms, one by space, and one by both."""
SUBSCRIPTIONS, MESSAGES = 10_000, 10_000
BLOCK = 10_000
_TURNS = 5


def measure_routing(scale: float) -> list[Row]:
    """Fit every partitioner to half of a stream; place and route the other half."""
    stream = _stream(scale)
    half, fresh = _halves(stream.sample)
    rows = []
    for name, partitioner in NAMED.items():
        for n_shards in SHARDS:
            report_progress(f"{name}, {n_shards} shards")
            started = time.perf_counter()
            routing = partitioner.fit(half, n_shards=n_shards).fixed()
            fit_s = time.perf_counter() - started
            placed, place_us = _timed(partial(routing.place, fresh.footprints), len(fresh.footprints))
            row = {
                "partitioner": name,
                "shards": n_shards,
                "sends_all": routing.sends_all,
                "subscriptions": len(fresh.footprints),
                "messages": len(fresh.messages),
                "fit_s": fit_s,
                "routing_bytes": len(pack(routing)),
                "place_us": place_us,
                "replicas": float(count_shards(placed).mean()),
                "mask_bytes": placed.nbytes / max(1, len(placed)),
                "place_peak_bytes": _peak(partial(routing.place, fresh.footprints)) / max(1, len(fresh.footprints)),
            }
            if not routing.sends_all:
                seen, row["route_us"] = _timed(partial(routing.route, fresh.messages), len(fresh.messages))
                row["reach"] = float(count_shards(seen).mean())
                row["route_peak_bytes"] = _peak(partial(routing.route, fresh.messages)) / max(1, len(fresh.messages))
            rows.append(row)
    return rows


def measure_dispatch(scale: float) -> list[Row]:
    """Pack blocks of messages and of subscriptions for all shards, as the dispatch stage of the pipeline does."""
    from nearcast.spark.batch_epoch import BatchEpoch
    from nearcast.spark.dispatch import _distribute_messages, _distribute_subscriptions, _frames

    stream = _stream(scale)
    half, _ = _halves(stream.sample)
    n = scaled(BLOCK, scale)
    subscribes = stream.subscriptions.slice(0, n)
    rows = []
    with TemporaryDirectory() as folder:
        blocks = BlockFiles(Folder(folder))
        for name, n_shards in product(DISPATCHED, DISPATCHED_TO):
            report_progress(f"{name}, {n_shards} shards")
            fitted = pack(NAMED[name].fit(half, n_shards=n_shards).fixed())
            config = EngineConfig(**stream.engine_options)
            job = Job(config, partitioner=name, shards=n_shards, fitted=fitted)
            row: Row = {"partitioner": name, "shards": n_shards, "block": n}
            for source, table, distribute in (
                ("message", stream.messages.slice(0, n), _distribute_messages),
                ("subscription", _as_operations(subscribes), _distribute_subscriptions),
            ):
                epoch = BatchEpoch(job, share=partial(blocks.write, batch=0))
                call = partial(_drain, partial(_frames, source, 0, table, distribute, epoch))
                (packed, shuffled), us = _timed(call, len(table))
                row |= {
                    f"{source}_us": us,
                    f"{source}_packed_bytes": packed / len(table),
                    f"{source}_shuffled_bytes": shuffled / len(table),
                }
            rows.append(row)
    return rows


def _stream(scale: float) -> Any:
    return stream_of("tweets", "boolean", scaled(2 * SUBSCRIPTIONS, scale), scaled(2 * MESSAGES, scale))


def _halves(sample: Sample) -> tuple[Sample, Sample]:
    """Return the sample of the fit, and what is placed and routed later."""
    footprints, messages = sample
    n, n_messages = len(footprints) // 2, len(messages) // 2
    return (
        Sample(footprints.take(np.arange(n)), messages.slice(0, n_messages)),
        Sample(footprints.take(np.arange(n, 2 * n)), messages.slice(n_messages, 2 * n_messages)),
    )


def _as_operations(subscriptions: Any) -> Any:
    """Return a table of subscriptions as rows of the pipeline."""
    import pyarrow as pa

    from nearcast.model.columns import subscriptions_schema

    schema = subscriptions_schema()
    columns = {
        field.name: subscriptions[field.name].cast(field.type)
        if field.name in subscriptions.column_names
        else pa.nulls(len(subscriptions), field.type)
        for field in schema
    }
    columns["op"] = pa.array(["subscribe"] * len(subscriptions))
    return pa.table(columns).cast(schema)


def _drain(frames: Callable[[], Iterator[tuple[Any, ...]]]) -> tuple[int, int]:
    """Return the bytes of frames, and those of their copies for all shards."""
    packed = shuffled = 0
    for keys, *frame in frames():
        size = Frame(*frame).nbytes + len(frame[-1] or "")
        packed += size
        shuffled += len(keys) * size
    return packed, shuffled


def _timed(call: Callable[[], Any], n: int) -> tuple[Any, float]:
    """Return the result, and the processor time per row: the median of some turns after one that does not count."""
    made, seconds = call(), []
    for _ in range(_TURNS):
        started = time.process_time()
        made = call()
        seconds.append(time.process_time() - started)
    return made, float(np.median(seconds)) / max(1, n) * 1e6


def _peak(call: Callable[[], Any]) -> int:
    """Return the most memory that a call has in use at once."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


QUESTION = Question(
    "many-shards",
    "What do placement, routing and dispatch cost with many shards?",
    {"routing": measure_routing, "dispatch": measure_dispatch},
    minutes=10,
)
