"""Question: how do partitioners share the work, and what do they cost? The papers' figures at a smaller scale.

    replication   DSkype, Table 5 and Figure 21: replicas of a subscription, shards that a message reaches
    balance       DkM-SKS, Table 2: how evenly shards share the work
    throughput    PS2Stream, Figures 6 and 7: shards on machines of their own
    workers       two threads against one, with the recommended partitioner
    fits          how long it takes to fit to a million subscriptions

Where `NEARCAST_DATA` names a folder with recorded `places`, replication is also measured on these.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from experiments.partition_runs import (
    NAMED,
    prefix_replicas,
    run_apart,
    run_together,
    run_workers,
    stream_of,
    time_fits,
)
from experiments.question import Question, Row, report_progress, scaled
from experiments.topk_runs import register_baselines
from nearcast.partition import Sample
from nearcast.partition.candidate_pairs import spread
from nearcast.partition.estimate import ENOUGH, ENOUGH_MESSAGES, estimate_partitioners, recommend
from nearcast.workload import Recording, Workload, load, make
from nearcast.workload.recording import ENVIRONMENT

SHARDS = (8, 32)
SLOW = "text_hypergraph"
"""Takes half a minute and more to fit, so it runs on few streams."""
OF_TOPK = ("hash", "location", "keyword", "prefix", "spatial_first", "keyword_first")
OF_NEAREST = ("hash", "knn_keyword", "knn_space", "dkm")
PAPERS_INDEX = {"knn_keyword": "inverted", "knn_space": "inverted", "dkm": "grid"}
"""The index of shards in the paper, where a shard of SOP has an inverted file per square."""
OF_BOOLEAN = (
    "hash", "text_frequency", "text_metric", SLOW, "space_grid", "space_kd", "space_rtree", "hybrid",
)  # fmt: skip


def replication(scale: float) -> list[Row]:
    """Run the partitioners of DSkype, some of them shard by shard, and the prefix with several windows and k."""
    return [*_replicas(scale), *_times_of_topk(scale), *_prefixes(scale)]


def _replicas(scale: float) -> list[Row]:
    rows = []
    for name, size in (("tweets", 20_000), ("reviews", 10_000)):
        n = scaled(size, scale)
        stream = stream_of(name, "topk", n, 2 * n, window=n, k=20)
        for shards in SHARDS:
            for partitioner in OF_TOPK:
                row = run_together(stream, partitioner, n_shards=shards)
                rows.append(_reported({"stream": name, "subscriptions": n, "window": n, "k": 20, **row}))
    return rows


def _times_of_topk(scale: float) -> list[Row]:
    rows, n = [], scaled(20_000, scale)
    stream = stream_of("tweets", "topk", n, 2 * n + scaled(6_000, scale), window=n, k=20)
    for shards in SHARDS:
        for partitioner in ("hash", "location", "keyword"):  # those whose shards need no merging in between
            row = run_apart(stream, partitioner, n_shards=shards, n_fit=2 * n, batch=scaled(1_000, scale, least=200))
            rows.append(_reported({"stream": "tweets", "subscriptions": n, **row}))
    return rows


def _prefixes(scale: float) -> list[Row]:
    sources: list[Workload | Recording] = [make("tweets")]
    if ENVIRONMENT in os.environ:
        sources.append(load("places"))
    sizes = {"n_shards": 32, "n_subscriptions": scaled(2_000, scale), "n_fit": scaled(50_000, scale)}
    return [
        _reported(prefix_replicas(source, window=scaled(window, scale), k=k, **sizes))
        for source in sources
        for window in (50_000, 1_000_000)
        for k in (1, 20)
    ]


def balance(scale: float) -> list[Row]:
    """Run the partitioners of DkM-SKS, also with the indexes that shards have in the paper."""
    rows = []
    register_baselines()
    for name, size in (("places", 200_000), ("tweets", 200_000), ("reviews", 50_000)):
        n, n_fit = scaled(size, scale), scaled(30_000, scale)
        stream = stream_of(name, "nearest", n, n_fit + scaled(10_000, scale), k=10)
        runs = [(partitioner, shards, 0.0, "auto") for shards in SHARDS for partitioner in OF_NEAREST]
        if name == "places":
            runs += [(partitioner, SHARDS[0], 0.5, "auto") for partitioner in OF_NEAREST]
            runs += [(partitioner, SHARDS[0], 0.0, index) for partitioner, index in PAPERS_INDEX.items()]
        for partitioner, shards, later, index in runs:
            batch = scaled(2_000, scale, least=200)
            row = run_apart(stream, partitioner, n_shards=shards, n_fit=n_fit, batch=batch, later=later, index=index)
            rows.append(_reported({"stream": name, "subscriptions": n, **row}))
    return rows


def throughput(scale: float) -> list[Row]:
    """Run the partitioners of PS2Stream, also with the index that shards have in the paper."""
    rows = []
    register_baselines()
    few, many = SHARDS
    n, n_fit, batch = scaled(200_000, scale), scaled(50_000, scale), scaled(20_000, scale, least=200)
    for name, queries, runs in (
        ("tweets", "q1", ((few, "auto"), (few, "gi2"))),
        ("tweets", "q2", ((few, "auto"), (few, "gi2"))),
        ("tweets", "q3", ((few, "auto"), (many, "auto"), (few, "gi2"))),
        ("reviews", "q3", ((few, "auto"), (many, "auto"))),
    ):
        stream = stream_of(name, "boolean", n, n_fit + 5 * batch, queries=queries)
        for shards, index in runs:
            with_slow = name == "tweets" and (shards, index) == (few, "auto")
            for partitioner in (one for one in OF_BOOLEAN if one in NAMED and (one != SLOW or with_slow)):
                row = run_apart(stream, partitioner, n_shards=shards, n_fit=n_fit, batch=batch, index=index)
                rows.append(_reported({"stream": name, "queries": queries, "subscriptions": n, **row}))
    return rows


class Setup(NamedTuple):
    """The work that two workers share."""

    kind: str
    subscriptions: int
    before: int
    """Messages before the timing; also the size of the window, if there is one."""
    batch: int
    max_distance: float | None = None


SETUPS = (
    Setup("boolean", 400_000, 20_000, 4_000),
    Setup("similarity", 200_000, 2_000, 200, max_distance=500_000.0),
    Setup("topk", 50_000, 50_000, 500),
    Setup("nearest", 200_000, 50_000, 1_000),
    Setup("social", 50_000, 50_000, 200),
)
_TURNS = 21


def workers(scale: float) -> list[Row]:
    """Run one thread and two with each kind, with the partitioner that is recommended for two."""
    rows = []
    for kind, size, size_before, batch, max_distance in SETUPS:
        n, before = scaled(size, scale), scaled(size_before, scale)
        stream = stream_of(
            "tweets", kind, n, before + _TURNS * batch, max_distance=max_distance,
            window=before if kind in ("topk", "social") else None,
        )  # fmt: skip
        footprints, messages = stream.sample
        some = Sample(spread(footprints, ENOUGH), spread(messages, ENOUGH_MESSAGES))
        estimates = estimate_partitioners(some, n_shards=2, n_subscriptions=len(footprints))
        recommended, _ = recommend(estimates)
        load_before = os.getloadavg()[0]
        row = run_workers(stream, recommended.name, n_before=before, batch=batch)
        loads = [load_before, os.getloadavg()[0]]
        rows.append(_reported({"kind": kind, "subscriptions": n, "batches": _TURNS, **row, "load": loads}))
    return rows


def fits(scale: float) -> list[Row]:
    """Fit each partitioner to the kind that it was made for."""
    rows = []
    n, n_messages = scaled(1_000_000, scale), scaled(100_000, scale)
    for kind, names in (("topk", OF_TOPK), ("boolean", OF_BOOLEAN[1:]), ("nearest", OF_NEAREST[1:])):
        options: dict[str, Any] = {"queries": "q3"} if kind == "boolean" else {}
        stream = stream_of("tweets", kind, n, n_messages, window=n_messages, **options)
        for shards in SHARDS:
            fitted = [name for name in names if name in NAMED and (name != SLOW or shards == SHARDS[0])]
            for row in time_fits(stream, fitted, n_shards=shards):
                rows.append(_reported({"kind": kind, "subscriptions": n, "messages": n_messages, **row}))
    return rows


def _reported(row: Row) -> Row:
    """Print the single figures of a row as progress."""
    report_progress(str({name: value for name, value in row.items() if not isinstance(value, list)}))
    return row


QUESTION = Question(
    "partitioners",
    "How do partitioners share the work, and what do they cost?",
    {"replication": replication, "balance": balance, "throughput": throughput, "workers": workers, "fits": fits},
    minutes=18,
)
