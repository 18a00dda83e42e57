"""Sections of the page partitioners: what they gain and cost on one machine."""

from __future__ import annotations

from experiments.pages.markdown import join, listed, paragraph, table
from experiments.question import Row

_WANTED_RATIO, _LONGEST_FIT_S = 1.7, 60.0


def workers(rows: list[Row]) -> str:
    """Return the section about two threads."""
    cells = [
        [
            row["kind"], f"{row['subscriptions']:,}", row["partitioner"], f"{row['one']:,.0f}", f"{row['two']:,.0f}",
            f"{row['ratio']:.2f}", " to ".join(f"{load:.1f}" for load in row["load"]),
        ]
        for row in rows
    ]  # fmt: skip
    below = [row["kind"] for row in rows if row["ratio"] < _WANTED_RATIO]
    result = f"{listed(below)} stay{'s' if len(below) == 1 else ''} below" if below else "all kinds reach it"
    names = ["kind", "subscriptions", "partitioner", "one worker, messages/s", "two workers, messages/s", "ratio"]
    return join(
        "## Two workers against one",
        paragraph(
            "With the partitioner that is recommended for two threads. Both engines match the same messages of"
            f" tweets, batch by batch in turns; rates are of the median of {rows[0]['batches']} batches, in"
            " wall-clock time. The load average of the machine matters: two threads need two idle cores."
        ),
        table([*names, "load average"], cells),
        paragraph(f"The goal is {_WANTED_RATIO}: {result}."),
    )


def fits(rows: list[Row]) -> str:
    """Return the section about the duration of fits."""
    times: dict[tuple[str, str], dict[int, float]] = {}
    for row in rows:
        times.setdefault((row["kind"], row["partitioner"]), {})[row["shards"]] = row["fit_s"]
    shards = sorted({row["shards"] for row in rows})
    cells = [
        [name, kind, *(f"{found[n]:.2f}" if n in found else "-" for n in shards)]
        for (kind, name), found in times.items()
    ]
    longest = {name: max(found.values()) for (_, name), found in times.items() if name in ("hybrid", "dkm")}
    result = listed([f"{name} takes at most {seconds:.1f} s" for name, seconds in longest.items()])
    is_within = all(seconds < _LONGEST_FIT_S for seconds in longest.values())
    return join(
        "## Duration of a fit",
        paragraph(
            f"{rows[0]['subscriptions']:,} subscriptions of tweets and {rows[0]['messages']:,} messages; wall-clock"
            " seconds on one thread."
        ),
        table(["partitioner", "kind", *(f"{n} shards, s" for n in shards)], cells),
        paragraph(
            f"The goal is less than {_LONGEST_FIT_S:.0f} s: {result}, {'within' if is_within else 'beyond'} the goal."
        ),
    )
