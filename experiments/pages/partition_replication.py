"""The section of the page partitioners about top-k: Table 5 and Figure 21 of DSkype."""

from __future__ import annotations

from experiments.pages.markdown import join, listed, paragraph, table
from experiments.pages.sentences import verdict
from experiments.pages.shard_figures import in_paper, sizes, unevenness
from experiments.question import Row

_REPLICAS = {  # Table 5, on 32 bolts
    "tweets": {"hash": 1.0, "location": 1.0, "keyword": 3.2, "prefix": 1.9},
    "reviews": {"hash": 1.0, "location": 1.0, "keyword": 3.3, "prefix": 2.1},
}
_SAVED = {"tweets": 0.8, "reviews": 0.5}  # section 8.2: share of communication saved, on 32 bolts
_EVEN = 1.5  # the greatest max/mean that counts as balanced


def replication(rows: list[Row]) -> str:
    """Return the section."""
    runs = [row for row in rows if "replicas_first" in row]
    timed = [row for row in rows if "us" in row]
    prefixes = [row for row in rows if "prefix" in row]
    cells = [
        [
            row["stream"], row["shards"], row["partitioner"], f"{row['replicas_first']:.2f}",
            f"{row['replicas_after']:.2f}", in_paper(_REPLICAS, row), f"{row['reach']:.2f}",
            *(f"{unevenness(row[name]):.2f}" for name in ("visited", "verified", "own")),
        ]
        for row in runs
    ]  # fmt: skip
    names = ["stream", "shards", "partitioner", "replicas at first", "after a window", "in the paper", "reach"]
    names += ["visited, max/mean", "verified, max/mean", "estimated load, max/mean"]
    return join(
        "## Top-k: the partitioners of DSkype",
        paragraph(
            f"{sizes(runs)}. All subscriptions, with k = {runs[0]['k']}, are added to a full window, which then"
            " passes once. The paper's replicas are those on 32 bolts. The estimated load is the partitioner's own."
        ),
        table(names, cells),
        *(_on_communication(stream, claim, runs) for stream, claim in _SAVED.items()),
        _on_replicas(runs, prefixes),
        _on_balance(timed),
    )


def _on_communication(stream: str, claim: float, runs: list[Row]) -> str:
    """Figure 21."""
    saved = {
        row["partitioner"]: 1 - row["reach"] / row["shards"]
        for row in runs
        if row["stream"] == stream and row["shards"] == 32
    }
    least = min(saved["keyword"], saved["prefix"])
    return paragraph(
        f"**Communication on {stream} (Figure 21).** In the paper keyword and prefix save about {claim:.0%} of the"
        f" messages that hash sends, on 32 bolts. Here they save {saved['keyword']:.0%} and {saved['prefix']:.0%},"
        f" {verdict(least >= 0.8 * claim)}. Partitioners by space and words save {saved['spatial_first']:.0%}"
        f" (spatial_first) and {saved['keyword_first']:.0%} (keyword_first); in the paper they are between location"
        " and prefix."
    )


def _on_replicas(runs: list[Row], prefixes: list[Row]) -> str:
    """Table 5."""
    found = {row["partitioner"]: row for row in runs if row["stream"] == "tweets" and row["shards"] == 32}
    claim = _REPLICAS["tweets"]["prefix"] / _REPLICAS["tweets"]["keyword"]
    ratio = found["prefix"]["replicas_after"] / found["keyword"]["replicas_after"]
    cells = [
        [
            f"{'recorded ' if row['is_recorded'] else ''}{row['stream']}", f"{row['window']:,}", row["k"],
            f"{row['keyword']:.2f}", f"{row['prefix']:.2f}",
        ]
        for row in prefixes
    ]  # fmt: skip
    recorded = [row for row in prefixes if row["is_recorded"]]
    return join(
        paragraph(
            f"**Replicas (Table 5).** In the paper prefix has {claim:.0%} of the replicas of keyword. Here it has"
            f" {ratio:.0%}, {verdict(ratio <= 1.2 * claim)}. Prefix leaves a term out once the k-th best message"
            " scores more than any message could that holds none of the weightier terms, however near it is. Our"
            " bound is tighter than the paper's, as it uses the length of the rest of the vector instead of the sum"
            " of its weights. But words of a generated text meet by chance, so k-th scores are low, the more so with"
            " a small window and a large k. Replicas on 32 shards, of subscriptions that are added to a full window:"
        ),
        table(["stream", "window", "k", "keyword", "prefix"], cells),
        paragraph(
            _on_recorded(max(recorded, key=lambda row: (row["window"], row["k"]))) if recorded else "",
            "Keyword has fewer replicas than in the paper because 1 to 5 keywords are 3 on average, and some share a"
            " shard.",
        ),
    )


def _on_recorded(row: Row) -> str:
    return (
        "Recorded points of interest, whose texts recur, confirm this: with the paper's window of"
        f" {row['window']:,} and k = {row['k']}, prefix needs {row['prefix']:.2f} replicas where keyword needs"
        f" {row['keyword']:.2f}."
    )


def _on_balance(timed: list[Row]) -> str:
    cells = [
        [
            row["shards"], row["partitioner"], f"{max(row['us']):.1f}", f"{unevenness(row['us']):.2f}",
            *(f"{unevenness(row[name]):.2f}" for name in ("own", "verified", "visited")),
        ]
        for row in timed
    ]  # fmt: skip
    by_shards = {row["shards"]: unevenness(row["us"]) for row in timed if row["partitioner"] == "keyword"}
    slowest = listed([f"{ratio:.2f} times the mean on {shards}" for shards, ratio in by_shards.items()])
    return join(
        paragraph(
            "**Balance.** The paper says that all four balance the load well. The same shards of tweets, each run"
            f" alone and timed by the processor on {timed[0]['fresh']:,} messages after the window has passed; times"
            " are per message, the other columns max/mean:"
        ),
        table(["shards", "partitioner", "slowest, µs", "time", "estimated load", "verified", "visited"], cells),
        paragraph(
            f"The slowest shard of keyword takes {slowest}, {verdict(max(by_shards.values()) <= _EVEN)}. Equation 16,"
            " by which words are divided, counts all pairs of a subscription and a message in a range of words. An"
            " index visits only pairs that share a word, and these gather in the range of the most frequent words."
            " But visited entries predict the time less well than the equation does. An earlier trial, which has"
            " no data file, divided by pairs that share a word: the slowest of 8 shards took 22 µs and of 32 shards"
            " 20 µs (24 and 12 with a cost per message added), where the equation gave 13 and 8."
        ),
    )
