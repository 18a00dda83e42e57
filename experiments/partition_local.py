"""The gain and the cost of partitioners on this machine: two sections of the page, without a paper to hold against."""

from __future__ import annotations

from experiments.partition_figures import table_of
from experiments.partition_runs import Row

_WANTED, _LONGEST_S = 1.7, 60.0  # of two workers; of a fit


def workers(rows: list[Row]) -> str:
    """Tell what two threads bring."""
    table = [
        [
            row["kind"], f"{row['subscriptions']:,}", row["partitioner"], f"{row['one']:,.0f}", f"{row['two']:,.0f}",
            f"{row['ratio']:.2f}", " to ".join(f"{load:.1f}" for load in row["load"]),
        ]
        for row in rows
    ]  # fmt: skip
    below = [row["kind"] for row in rows if row["ratio"] < _WANTED]
    updates = f"{', '.join(below)} stay{'s' if len(below) == 1 else ''} below" if below else "all reach it"
    return "\n".join(
        [
            "## Two workers against one\n",
            "The partitioner is the one that is recommended for two threads. Both engines take the same messages of"
            " tweets, batch by batch in turns, by the clock; medians of 21 batches. Load is that of the machine,"
            " which counts: two threads need two cores for themselves.\n",
            *table_of(["kind", "subscriptions", "partitioner", "one", "two, messages/s", "ratio", "load"], table),
            f"Wanted is {_WANTED}: {updates}.\n",
        ]
    )


def fits(rows: list[Row]) -> str:
    """Tell how long fits take."""
    times: dict[tuple[str, str], dict[int, float]] = {}
    for row in rows:
        times.setdefault((row["kind"], row["partitioner"]), {})[row["shards"]] = row["fit_s"]
    shards = sorted({row["shards"] for row in rows})
    table = [
        [name, kind, *(f"{of[n]:.2f}" if n in of else "-" for n in shards)] for (kind, name), of in times.items()
    ]
    subscriptions = {name: max(of.values()) for (_, name), of in times.items() if name in ("hybrid", "dkm")}
    updates = ", ".join(f"{name} takes {seconds:.1f} s at most" for name, seconds in subscriptions.items())
    within = all(seconds < _LONGEST_S for seconds in subscriptions.values())
    return "\n".join(
        [
            "## How long a fit takes\n",
            f"{rows[0]['subscriptions']:,} subscriptions of tweets and 100,000 messages; seconds by the clock, one"
            " thread.\n",
            *table_of(["partitioner", "kind", *(f"{n} shards, s" for n in shards)], table),
            f"Wanted is less than {_LONGEST_S:.0f} s: {updates}, {'within' if within else 'beyond'} that.\n",
        ]
    )
