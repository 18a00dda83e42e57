"""What do operations cost that are spread among the messages of one batch of a job?

One shard applies a batch of messages and operations (new subscriptions, replacements and unsubscribes, a third each)
twice: with all operations first, and with the operations spread evenly among the messages.

    python -m experiments.operation_order --kind boolean --messages 1000000 --operations 10000
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from time import perf_counter, process_time

import numpy as np
import pyarrow as pa

import nearcast as nc
from experiments.question import Row, report_progress
from nearcast.engine import EngineConfig
from nearcast.jobs.frame import (
    MESSAGE,
    SUBSCRIPTION,
    Frame,
    messages_table,
    pack,
    pack_times,
    packed_subscriptions_schema,
)
from nearcast.jobs.job import Job
from nearcast.jobs.shard import ShardCounts, apply
from nearcast.model import NO_TIME
from nearcast.model.columns import messages_from_table, subscriptions_schema
from nearcast.workload import Workload, make

BLOCK = 16_384  # messages per frame, as in dispatch
WINDOW = 20_000
"""The window, for kinds that need one, and the messages before those that are timed: results are full by then."""
KINDS = ("boolean", "similarity", "nearest", "topk")


def measure(kind: str, *, subscriptions: int, messages: int, operations: int, movers: int = 0) -> Row:
    """Apply a batch with all operations first, and with operations spread among the messages.

    With `movers`, all operations replace the same few subscriptions in turn.
    """
    workload = make("tweets", seed=1)
    job = Job(
        EngineConfig(
            space=workload.space(max_distance=50_000),
            vocabulary=workload.vocabulary(),
            window=nc.CountWindow(WINDOW) if kind == "topk" else None,
        )
    )
    published = list(_messages(workload, WINDOW, messages, job))
    earlier = list(_messages(workload, 0, WINDOW, job))
    there = _subscriptions(workload, kind, 0, subscriptions)
    changes = _operations(workload, kind, subscriptions, operations, movers)
    rng = np.random.default_rng(7)
    positions = np.sort(rng.integers(0, messages, operations))
    row: Row = {
        "kind": kind,
        "subscriptions": subscriptions,
        "messages": messages,
        "operations": operations,
    }
    for name, ats_us in (("warm", positions), ("first", np.full(operations, NO_TIME)), ("spread", positions)):
        few = published[:1] if name == "warm" else published
        frames = [_frame(changes, ats_us), *few]
        engine, counts = job.new_shard_engine(), ShardCounts()
        state = [_frame(there, np.full(len(there), NO_TIME)), *earlier]
        for _ in apply(engine, state, shard=0, job=job, counts=counts):
            pass
        counts, start, cpu = ShardCounts(), perf_counter(), process_time()
        for _ in apply(engine, frames, shard=0, job=job, counts=counts):
            pass
        seconds, cpu = perf_counter() - start, process_time() - cpu
        report_progress(f"{kind}, {name}: {seconds:.2f} s ({cpu:.2f} s of a core), {counts}")
        row |= {f"{name}_seconds": seconds, f"{name}_cpu_seconds": cpu, f"{name}_updates": counts.updates}
    row |= {"ratio": row["spread_seconds"] / row["first_seconds"]}
    row |= {"cpu_ratio": row["spread_cpu_seconds"] / row["first_cpu_seconds"]}
    return row


def _messages(workload: Workload, start: int, n: int, job: Job) -> Iterator[Frame]:
    """Yield frames of messages whose times are their positions, in microseconds."""
    for block, table in enumerate(workload.messages(n, start=start, block=BLOCK)):
        batch = messages_from_table(table, vocabulary=job.scoring.vocabulary, limits=job.config.limits, first_seq=1)
        rows = np.arange(len(table))
        yield Frame(
            MESSAGE, 0, block, len(table), pack_times(block * BLOCK + rows), pack(messages_table(batch, rows))
        )


def _subscriptions(workload: Workload, kind: str, start: int, n: int) -> pa.Table:
    tables = workload.subscriptions(kind, n, start=start, k=None if kind in ("boolean", "similarity") else 20)
    table = pa.concat_tables(tables)
    names = table.column_names
    columns = [
        table[field.name].cast(field.type) if field.name in names else pa.nulls(len(table), field.type)
        for field in subscriptions_schema()
    ]
    made = pa.Table.from_arrays(columns, schema=subscriptions_schema())
    return made.set_column(0, "op", pa.array(["subscribe"] * len(made)))


def _operations(workload: Workload, kind: str, n_there: int, n: int, movers: int) -> pa.Table:
    """Return new subscriptions, replacements and unsubscribes in turn, or replacements of the same few."""
    fresh = _subscriptions(workload, kind, n_there, n)
    old = _subscriptions(workload, kind, 0, n_there)["id"].to_pylist()
    there, ids = np.random.default_rng(3).permutation(n_there), fresh["id"].to_pylist()
    if movers:
        named, ops = [old[i % movers] for i in range(n)], ["subscribe"] * n
    else:
        named = [ids[i] if i % 3 == 0 else old[there[i % n_there]] for i in range(n)]
        ops = ["unsubscribe" if i % 3 == 2 else "subscribe" for i in range(n)]
    return fresh.set_column(0, "op", pa.array(ops)).set_column(1, "id", pa.array(named))


def _frame(table: pa.Table, ats_us: np.ndarray) -> Frame:
    numbered = table.add_column(0, "row", pa.array(np.arange(len(table))))
    payload = pack(numbered.cast(packed_subscriptions_schema()))
    return Frame(SUBSCRIPTION, 0, 0, len(table), pack_times(ats_us), payload)


def main() -> None:
    """Measure one kind and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kind", choices=KINDS, default="boolean")
    defaults = {"subscriptions": 100_000, "messages": 1_000_000, "operations": 10_000, "movers": 0}
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    print(json.dumps(measure(**vars(parser.parse_args()))))


if __name__ == "__main__":
    main()
