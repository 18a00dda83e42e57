"""Partitioners against their papers, at a smaller scale.

    python -m experiments.partition_report [PART ...] [--scale 1.0] [--out docs/benchmarks]

    replication   DSkype, Table 5 and Figure 21: replicas of a subscription, shards that a message reaches
    balance       DkM-SKS, Table 2: how alike the work of shards is
    throughput    PS2Stream, Figures 6 and 7: shards on machines of their own
    workers       two threads against one, with the partitioner that is recommended
    fits          how long it takes to learn from a million subscriptions

Parts can be measured one by one: what was measured is kept in a file, and the page is written from all of it. Where
`NEARCAST_DATA` names a folder with recorded `places`, replication is also measured on these.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from experiments import partition_local as here
from experiments import partition_page as page
from experiments.partition_runs import NAMED, Row, apart, fits, in_turns, prefix_replicas, stream_of, together
from experiments.topk_runs import register_baselines
from nearcast.partition import Sample
from nearcast.partition.candidate_pairs import spread
from nearcast.partition.estimate import ENOUGH, ENOUGH_MESSAGES, estimate_partitioners, recommend
from nearcast.workload import Recording, Workload, load, make
from nearcast.workload.recording import ENVIRONMENT

SHARDS = (8, 32)
_PAGE = "partitioners"

SLOW = "text_hypergraph"
"""Takes half a minute and more to fit, so it is not asked everywhere."""
OF_TOPK = ("hash", "location", "keyword", "prefix", "spatial_first", "keyword_first")
OF_NEAREST = ("hash", "knn_keyword", "knn_space", "dkm")
PAPERS_INDEX = {"knn_keyword": "inverted", "knn_space": "inverted", "dkm": "grid"}
"""What shards have in the paper; there those of SOP have an inverted file a square."""
OF_BOOLEAN = (
    "hash", "text_frequency", "text_metric", SLOW, "space_grid", "space_kd", "space_rtree", "hybrid",
)  # fmt: skip


def replication(scale: float) -> list[Row]:
    """Run the mechanisms of DSkype, some of them apart, and the prefix at other windows and k."""
    rows = []
    for name, n in (("tweets", 20_000), ("reviews", 10_000)):
        stream = stream_of(name, "topk", int(n * scale), 2 * n, window=n, k=20)
        for shards in SHARDS:
            for partitioner in OF_TOPK:
                row = together(stream, partitioner, n_shards=shards)
                rows.append({"stream": name, "subscriptions": int(n * scale), "window": n, "k": 20, **row})
                _say(rows[-1])
    n = 20_000
    stream = stream_of("tweets", "topk", int(n * scale), 2 * n + 6_000, window=n, k=20)
    for shards in SHARDS:
        for partitioner in ("hash", "location", "keyword"):  # what needs no merging in between
            row = apart(stream, partitioner, n_shards=shards, n_fit=2 * n, batch=1_000)
            rows.append({"stream": "tweets", "subscriptions": int(n * scale), **row})
            _say(rows[-1])
    sources: list[Workload | Recording] = [make("tweets")]
    if ENVIRONMENT in os.environ:
        sources.append(load("places"))
    for source in sources:
        for window in (50_000, 1_000_000):
            for k in (1, 20):
                rows.append(
                    prefix_replicas(source, window=window, k=k, n_shards=32, n_subscriptions=2_000, n_fit=50_000)
                )
                _say(rows[-1])
    return rows


def balance(scale: float) -> list[Row]:
    """Run the three of DkM-SKS, also with the indexes that shards have in the paper."""
    rows = []
    register_baselines()
    for name, n in (("places", 200_000), ("tweets", 200_000), ("reviews", 50_000)):
        stream = stream_of(name, "nearest", int(n * scale), 40_000, k=10)
        runs = [(one, shards, 0.0, "auto") for shards in SHARDS for one in OF_NEAREST]
        if name == "places":
            runs += [(one, SHARDS[0], 0.5, "auto") for one in OF_NEAREST]
            runs += [(one, SHARDS[0], 0.0, index) for one, index in PAPERS_INDEX.items()]
        for partitioner, shards, later, index in runs:
            row = apart(stream, partitioner, n_shards=shards, n_fit=30_000, batch=2_000, later=later, index=index)
            rows.append({"stream": name, "subscriptions": int(n * scale), **row})
            _say(rows[-1])
    return rows


def throughput(scale: float) -> list[Row]:
    """Run those of PS2Stream, also with the index that shards have in the paper."""
    rows = []
    register_baselines()
    few, many = SHARDS
    for name, queries, runs in (
        ("tweets", "q1", ((few, "auto"), (few, "gi2"))),
        ("tweets", "q2", ((few, "auto"), (few, "gi2"))),
        ("tweets", "q3", ((few, "auto"), (many, "auto"), (few, "gi2"))),
        ("reviews", "q3", ((few, "auto"), (many, "auto"))),
    ):
        n = int(200_000 * scale)
        stream = stream_of(name, "boolean", n, 150_000, queries=queries)
        for shards, index in runs:
            is_requested = name == "tweets" and (shards, index) == (few, "auto")
            for partitioner in (one for one in OF_BOOLEAN if one in NAMED and (one != SLOW or is_requested)):
                row = apart(stream, partitioner, n_shards=shards, n_fit=50_000, batch=20_000, index=index)
                rows.append({"stream": name, "queries": queries, "subscriptions": n, **row})
                _say(rows[-1])
    return rows


class Setup(NamedTuple):
    """What two workers are to share."""

    kind: str
    subscriptions: int
    before: int
    """Messages before the timing; what the window holds, if there is one."""
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
    """Run one thread and two, kind by kind, with what is recommended for two."""
    rows = []
    for kind, n, before, batch, max_distance in SETUPS:
        window = before if kind in ("topk", "social") else None
        stream = stream_of(
            "tweets", kind, int(n * scale), before + _TURNS * batch, window=window, max_distance=max_distance
        )
        footprints, messages = stream.sample
        some = Sample(spread(footprints, ENOUGH), spread(messages, ENOUGH_MESSAGES))
        estimates = estimate_partitioners(some, n_shards=2, n_subscriptions=len(footprints))
        taken, _ = recommend(estimates)
        started = os.getloadavg()[0]
        row = in_turns(stream, taken.name, n_before=before, batch=batch)
        rows.append({"kind": kind, "subscriptions": int(n * scale), **row, "load": [started, os.getloadavg()[0]]})
        _say(rows[-1])
    return rows


def fit_times(scale: float) -> list[Row]:
    """Fit each partitioner to the kind that it was made for."""
    rows = []
    for kind, names in (("topk", OF_TOPK), ("boolean", OF_BOOLEAN[1:]), ("nearest", OF_NEAREST[1:])):
        options: dict[str, Any] = {"queries": "q3"} if kind == "boolean" else {}
        stream = stream_of("tweets", kind, int(1_000_000 * scale), 100_000, window=100_000, **options)
        for shards in SHARDS:
            quick = [name for name in names if name in NAMED and (name != SLOW or shards == SHARDS[0])]
            made = fits(stream, quick, n_shards=shards)
            rows += [{"kind": kind, "subscriptions": int(1_000_000 * scale), **row} for row in made]
            _say(made)
    return rows


class ReportPart(NamedTuple):
    """A section of the page."""

    measure: Callable[[float], list[Row]]
    write: Callable[[list[Row]], str]


PARTS = {
    "replication": ReportPart(replication, page.replication),
    "balance": ReportPart(balance, page.balance),
    "throughput": ReportPart(throughput, page.throughput),
    "workers": ReportPart(workers, here.workers),
    "fits": ReportPart(fit_times, here.fits),
}


def write(out: Path, scale: float, parts: Iterable[str]) -> str:
    """Measure some parts, keep what came of them, and return the page of all that was ever measured."""
    path = out / f"{_PAGE}.json"
    for name in parts:
        started, load_before = datetime.now(UTC), os.getloadavg()[0]
        rows = PARTS[name].measure(scale)
        took = (datetime.now(UTC) - started).total_seconds()
        kept = json.loads(path.read_text()) if path.exists() else {}
        kept[name] = {"commit": _commit(), "minutes": took / 60, "load": load_before, "rows": rows}
        path.write_text(_by_line(kept))
    kept = json.loads(path.read_text())
    sections = [_section(PARTS[name], kept[name]) for name in PARTS if name in kept]
    head = (
        "# Partitioners\n\n"
        f"Python {platform.python_version()}, {os.cpu_count()} cores. Made by `make bench`, or part by part by"
        " `python -m experiments.partition_report PART`.\n"
    )
    return "\n".join([head, *sections])


def _by_line(kept: dict[str, Row]) -> str:
    """Write what was measured as JSON, a row a line."""
    parts = []
    for name, part in kept.items():
        head = json.dumps({field: value for field, value in part.items() if field != "rows"})[1:-1]
        rows = ",\n".join(map(json.dumps, part["rows"]))
        parts.append(f'"{name}": {{{head}, "rows": [\n{rows}]}}')
    return "{" + ",\n".join(parts) + "}\n"


def _section(part: ReportPart, kept: Row) -> str:
    note = f"Commit {kept['commit']}, {kept['minutes']:.1f} minutes, with a load of {kept['load']:.1f} at first."
    return f"{part.write(kept['rows'])}\n{note}\n"


def _commit() -> str:
    ran = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return ran.stdout.strip() or "unknown"


def _say(row: Row | list[Row]) -> None:
    updates = (
        {name: value for name, value in row.items() if not isinstance(value, list)} if isinstance(row, dict) else row
    )
    print(updates, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)}; all without")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the numbers of subscriptions")
    parser.add_argument("--page", action="store_true", help="measure nothing: write the page of what was kept")
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks"))
    options = parser.parse_args()
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"PART must be one of {', '.join(PARTS)}; got {unknown[0]!r}")
    parts = [] if options.page else options.parts or PARTS
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"{_PAGE}.md").write_text(write(options.out, options.scale, parts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
