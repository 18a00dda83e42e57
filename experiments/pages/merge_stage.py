"""The page merge-stage: what it costs on Spark to merge the results of replicas."""

from __future__ import annotations

from experiments.pages.markdown import join, paragraph, provenance, table
from experiments.pages.page import Data, Page
from experiments.pages.plots import Plots
from experiments.question import Row

_AIM_PAIRS, _AIM_THROUGHPUT = 0.5, 0.5


def render(data: Data, plots: Plots) -> str:
    """Return the sections."""
    pairs, throughput = (data[f"merge-stage/{part}"] for part in ("pairs", "throughput"))
    return join(
        paragraph(
            "A partitioner that sends a message to some shards only puts replicas of a subscription into all shards"
            " that may see a match, and a second stage merges their results"
            " ([decision 047](../decisions/047-merge-stage.md)). `hash` needs no such stage, as every shard sees"
            " every message."
        ),
        _on_pairs(pairs.rows),
        provenance(pairs),
        _on_throughput(throughput.rows),
        provenance(throughput),
    )


def _on_pairs(rows: list[Row]) -> str:
    n_shards = rows[0]["shards"]
    shares = {row["source"]: row["pairs_per_message"] / n_shards for row in rows if row["partitioner"] == "prefix"}
    found = " and ".join(f"{share:.2f} of the shards with `{source}`" for source, share in shares.items())
    return join(
        "## Messages and replicas",
        paragraph(
            f"Partitioners are fitted to half of {rows[0]['subscriptions']:,} `topk` subscriptions and half of the"
            f" messages of a stream, for {n_shards} shards; the other half is placed and routed. Replicas are shards"
            f" per subscription, pairs are shards per message. `prefix` sends a message to {found}; the goal,"
            f" {_AIM_PAIRS:.1f}, is {_reached(max(shares.values()) <= _AIM_PAIRS)}."
        ),
        table(
            ["stream", "partitioner", "replicas of a subscription", "shards of a message", "of `hash`"],
            [
                [
                    f"`{row['source']}`",
                    f"`{row['partitioner']}`",
                    f"{row['replicas']:.2f}",
                    f"{row['pairs_per_message']:.2f}",
                    f"{row['pairs_per_message'] / n_shards:.2f}",
                ]
                for row in rows
            ],
        ),
    )


def _on_throughput(rows: list[Row]) -> str:
    by_hash, merged = ({row["partitioner"]: row for row in rows}[name] for name in ("hash", "keyword"))
    ratio = merged["messages_per_second"] / by_hash["messages_per_second"]
    return join(
        "## Throughput",
        paragraph(
            f"A job on Spark `local[2]` with two shards and {merged['subscriptions']:,} `topk` subscriptions"
            f" (k = {merged['k']}, a window of {merged['window']:,}) reads batches of {merged['messages']:,} packed"
            f" messages. With `keyword` it has {ratio:.2f} of the throughput of `hash`; the goal,"
            f" {_AIM_THROUGHPUT:.1f}, is {_reached(ratio >= _AIM_THROUGHPUT)}. A batch reports"
            f" {merged['changes']:,.0f} changes of replicas, which give {merged['updates']:,.0f} updates. All numbers"
            " are medians over the batches."
        ),
        table(
            ["partitioner", "messages/s", "batch, s", "busiest shard, s", "busiest partition of the merge stage, s"],
            [
                [
                    f"`{row['partitioner']}`",
                    f"{row['messages_per_second']:,.0f}",
                    f"{row['messages'] / row['messages_per_second']:.2f}",
                    f"{row['shard_s']:.2f}",
                    f"{row['merge_s']:.2f}" if row["merge_s"] else "none",
                ]
                for row in rows
            ],
        ),
    )


def _reached(is_reached: bool) -> str:
    return "reached" if is_reached else "not reached"


PAGE = Page("merge-stage", ("merge-stage/pairs", "merge-stage/throughput"), "Merged results on Spark", render)
