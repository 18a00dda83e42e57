"""The page balance: what load adjustment costs and gains."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from experiments.pages.markdown import join, listed, paragraph, provenance, table
from experiments.pages.page import Data, Page
from experiments.pages.plots import Plots
from experiments.question import Row

_AIM_CHURN = 1.05
_GO_TO = {
    "by key": "by key",
    "loads only grow": "to the least loaded, loads only grow",
    "least loaded": "to the least loaded, loads also fall",
}
_ROUTINGS = {
    "stays": "stays",
    "local": "cells move",
    "global": "fresh routings",
    "fresh": "fitted to the last batch",
}
_AIM_FRESH, _AIM_LONGEST = 0.9, 2.0
_AROUND = 4
"""A batch is compared with so many before it, and so many after it."""
_AIM_COST, _AIM_TIME, _AIM_GAIN = 1.05, 0.01, 2.0


def render(data: Data, plots: Plots) -> str:
    """Return the sections."""
    parts = ("selections", "drift", "global", "churn")
    selections, drift, changed, churn = (data[f"balance/{part}"] for part in parts)
    return join(
        _on_selections(selections.rows),
        provenance(selections),
        _on_drift(drift.rows, plots),
        provenance(drift),
        _on_global(changed.rows, plots),
        provenance(changed),
        _on_churn(churn.rows),
        provenance(churn),
    )


def _on_selections(rows: list[Row]) -> str:
    exact = {row["share"]: row for row in rows if row["selection"] == "dp"}
    greedy = [row for row in rows if row["selection"] == "gr"]
    cost = max(row["bytes"] / exact[row["share"]]["bytes"] for row in greedy)
    seconds = max(row["seconds"] / exact[row["share"]]["seconds"] for row in greedy)
    reached = cost <= _AIM_COST and seconds <= _AIM_TIME
    return join(
        "## Which cells to move",
        paragraph(
            f"A shard has {rows[0]['cells']:,} cells of a grid, with the load and the bytes of subscriptions that the"
            " workload `drift` gives them. A share of the load is to be moved at the least cost, in bytes (minimum"
            " cost migration, PS2Stream, section V-A). `dp` finds the least cost, up to a few"
            " bytes per cell where its table would not fit into memory, `gr` is greedy, `si` takes the largest cells"
            f" and `ra` random ones. `gr` costs at most {cost:.3f} times as much as `dp`, and takes at"
            f" most {seconds:.2%} of its time; the goals, {_AIM_COST:.2f} and {_AIM_TIME:.0%}, are"
            f" {'reached' if reached else 'not reached'}."
        ),
        table(
            ["share of the load", "selection", "cells", "bytes", "times the cost of dp", "ms"],
            [
                [
                    f"{row['share']:.0%}",
                    f"`{row['selection']}`",
                    f"{row['chosen']:,}",
                    f"{row['bytes']:,}",
                    f"{row['bytes'] / exact[row['share']]['bytes']:,.2f}",
                    f"{row['seconds'] * 1e3:,.2f}",
                ]
                for row in rows
            ],
        ),
    )


def _on_drift(rows: list[Row], plots: Plots) -> str:
    still, products, pairs = ([row for row in rows if row["load"] == load] for load in (None, "products", "pairs"))
    n = len(still)
    late = slice(n - n // 3, n)
    first, by_products, by_pairs = (
        median(row["busiest_per_second"] for row in some[late]) for some in (still, products, pairs)
    )
    uneven = [median(_over_mean(row["seconds"]) for row in some[late]) for some in (still, products, pairs)]
    gain = by_pairs / first
    gains = [b["busiest_per_second"] / a["busiest_per_second"] for a, b in zip(still, pairs, strict=True)][1:]
    possible = [_over_mean(row["seconds"]) for row in still]
    decided = [(row["loads"], then["loads"][0]) for row, then in pairwise(pairs) if row["moved"] and then["moved"]]
    own, next_one = median(_over_mean(one[1]) for one, _ in decided), median(_over_mean(then) for _, then in decided)
    agree = len({tuple(row["updates"] for row in some) for some in (still, products, pairs)}) == 1
    moves = [row for row in pairs if row["moved"]]
    names = ("moved", "moved_bytes", "steps", "decide_s", "move_s")
    figures = {name: median(row[name] for row in moves) for name in names}
    return join(
        "## A stream that drifts",
        paragraph(
            f"{still[0]['shards']} shards hold {still[0]['subscriptions']:,} `boolean` subscriptions (q3), divided by"
            f" `hybrid`, which is fitted to the first batch. {n} batches of {still[0]['messages']:,} messages of the"
            " workload `drift` follow: half of the messages lie around three hot spots that wander. The shards run"
            " one after the other, and the throughput is that of the busiest one. The routing stays as it is, or it"
            " is adjusted after every batch, by `gr` and for the load of that batch, so that it always lags one batch"
            f" behind. The updates of all batches {'are the same' if agree else 'DIFFER'} in all three runs."
        ),
        table(
            ["load of a shard", "busiest shard, messages/s", "gain", "its time over the mean"],
            [
                [name, f"{speed:,.0f}", f"{speed / first:.2f}", f"{ratio:.2f}"]
                for name, speed, ratio in zip(
                    (
                        "no adjustment",
                        "definition 1: messages times subscriptions",
                        "definition 1 with the pairs that an index compares",
                    ),
                    (first, by_products, by_pairs),
                    uneven,
                    strict=True,
                )
            ],
        ),
        paragraph(
            "The table has medians of the last third of the batches. Over all batches but the first the gain by pairs"
            f" is {min(gains):.2f} to {max(gains):.2f}, {median(gains):.2f} in the median. The goal of"
            f" {_AIM_GAIN:.0f} times the throughput is {'reached' if gain >= _AIM_GAIN else 'not reached'}; shards"
            f" that all take the same time, at no cost, would gain {median(possible[late]):.2f} in the last third,"
            f" and {max(possible):.2f} in the batch with the most uneven shards. Hot spots move on: after an"
            f" adjustment the busiest shard has {own:.2f} times the mean load of the batch that it was made"
            f" for, and {next_one:.2f} times that of the next batch."
        ),
        paragraph(
            "The products of definition 1 are nearly in proportion to the messages of a shard, while an index"
            " compares a message with the subscriptions around it that hold one of its terms, of which there are many"
            " where subscriptions are dense. Each shard also numbers the messages that it does not see, a cost that"
            " no routing changes. In the paper adjustments gain 26 %."
        ),
        paragraph(
            f"By pairs, {len(moves)} of {n} batches led to an adjustment. The median one moves"
            f" {figures['moved']:,.0f} subscriptions, {figures['moved_bytes'] / 1e3:,.0f} kB,"
            f" in {figures['steps']:,.0f} steps, most of which cut leaves. It takes"
            f" {figures['decide_s']:.2f} s to decide, on a sample of the subscriptions, and"
            f" {figures['move_s']:.2f} s of processor time in all shards together to move."
        ),
        plots.lines(
            "balance-drift",
            "Throughput of the busiest shard while hot spots wander",
            xs=list(range(n)),
            curves={
                name: [row["busiest_per_second"] / 1e6 for row in some]
                for name, some in (("routing stays", still), ("by products", products), ("by pairs", pairs))
            },
            xlabel="batch",
            ylabel="million messages per second",
        ),
    )


def _on_global(rows: list[Row], plots: Plots) -> str:
    changes = list(dict.fromkeys(row["change"] for row in rows))
    some = [row for row in rows if row["change"] == changes[0]]
    n = max(row["batch"] for row in rows) + 1
    last = sum(row["routing"] == "fresh" for row in some)
    agree = all(
        len({row["updates"] for row in rows if (row["change"], row["batch"]) == (what, number)}) == 1
        for what in changes
        for number in range(n)
    )
    return join(
        "## A stream that becomes another one",
        paragraph(
            f"{rows[0]['shards']} shards hold {rows[0]['subscriptions']:,} `boolean` subscriptions of the workload"
            f" `tweets`, divided by `hybrid`, which is fitted to the first of {n} batches of"
            f" {rows[0]['messages']:,} messages. With each batch {some[-1]['came']:,} subscriptions come and the"
            " oldest go. From some batch on, others come: q3 after q1; or small ones of q1 after wide ones, of q2"
            f" in boxes with {rows[0]['wide_share']:.0%} of the sides of space, for which `hybrid` divides terms."
            " The routing stays as it is; or cells move, as above, but at most"
            f" {rows[0]['most_moved']:.0%} of the subscriptions in one adjustment; or also a fresh routing is tried"
            " after every batch, and takes over if it pays (global adjustment, PS2Stream, section V-B). A batch"
            " takes as long as its busiest shard, with the subscriptions that come, go and move, but without"
            " decisions, which a driver makes beside the stream. It is compared with the median of the"
            f" {2 * _AROUND + 1} batches around it, since one mix costs more than the other. The last rows have a"
            f" routing that is fitted to the last batch, and medians of the last {last} batches. The updates"
            f" {'are the same' if agree else 'DIFFER'} in all runs."
        ),
        table(
            ["change", "routing", "busiest shard, messages/s", "of a fresh fit", "longest batch over those around it",
             "fresh routings", "cells moved"],
            [_figures_of(rows, what, how) for what in changes for how in ("stays", "local", "global", "fresh")],
        ),
        *(paragraph(_on_change(rows, what)) for what in changes),
        plots.lines(
            "balance-global",
            f"Throughput of the busiest shard: {changes[-1]}",
            xs=list(range(n)),
            curves={
                name: [
                    row["busiest_per_second"] / 1e6
                    for row in rows
                    if (row["change"], row["routing"]) == (changes[-1], how)
                ]
                for how, name in (("stays", "routing stays"), ("local", "cells move"), ("global", "fresh routings"))
            },
            xlabel="batch",
            ylabel="million messages per second",
        ),
    )  # fmt: skip


def _of_run(rows: list[Row], what: str, how: str) -> list[Row]:
    return [row for row in rows if (row["change"], row["routing"]) == (what, how)]


def _late(rows: list[Row], what: str, how: str) -> float:
    """Return the throughput in the batches that a fresh fit is compared in."""
    first = min(row["batch"] for row in _of_run(rows, what, "fresh"))
    return float(median(row["busiest_per_second"] for row in _of_run(rows, what, how) if row["batch"] >= first))


def _longest(rows: list[Row], what: str, how: str) -> float:
    """Return the longest batch over the median of those around it, without the first, to which none comes."""
    seconds = [max(row["seconds"]) for row in _of_run(rows, what, how) if row["came"]]
    around = [median(seconds[max(0, at - _AROUND) : at + _AROUND + 1]) for at in range(len(seconds))]
    return float(max(one / usual for one, usual in zip(seconds, around, strict=True)))


def _figures_of(rows: list[Row], what: str, how: str) -> list[str]:
    own, speed = _of_run(rows, what, how), _late(rows, what, how)
    actions = [row["action"] for row in own]
    return [
        what,
        _ROUTINGS[how],
        f"{speed:,.0f}",
        f"{speed / _late(rows, what, 'fresh'):.2f}",
        f"{_longest(rows, what, how):.2f}",
        f"{actions.count('refit')}",
        f"{actions.count('move')} times",
    ]


def _on_change(rows: list[Row], what: str) -> str:
    own = _of_run(rows, what, "global")
    share, longest = _late(rows, what, "global") / _late(rows, what, "fresh"), _longest(rows, what, "global")
    load, fresh_load = (
        median(row["busiest_load"] for row in _of_run(rows, what, how) if "busiest_load" in row)
        for how in ("global", "fresh")
    )
    begins = [row["batch"] for row in own if row["action"] == "refit"]
    ends = [row for row in own if row["action"] == "retire"]
    if begins:
        taken = f"fresh routings begin after batch {listed(map(str, begins))}"
        retired = (
            f"old ones retire after batch {listed([str(row['batch']) for row in ends])}" if ends else "none ends"
        )
        moved = f", which moves {sum(row['moved'] for row in ends):,} subscriptions" if ends else ""
        story = f"{taken}, and {retired}{moved}."
    else:
        story = "no fresh routing pays: none would lower the load of the busiest shard enough."
    return (
        f"In {what}, {story} The throughput ends at {share:.2f} of that of a fresh fit; the goal, {_AIM_FRESH:.1f},"
        f" is {'reached' if share >= _AIM_FRESH else 'not reached'}. By load, in counts that do not depend on the"
        f" machine, the busiest shard does {load / fresh_load:.2f} times as much as after a fresh fit. The longest"
        f" batch takes {longest:.2f} times as long as those around it; the goal, {_AIM_LONGEST:.0f}, is"
        f" {'reached' if longest <= _AIM_LONGEST else 'not reached'}."
    )


def _over_mean(values: Sequence[float]) -> float:
    return max(values) * len(values) / sum(values)


def _on_churn(rows: list[Row]) -> str:
    last = [row for row in rows if row["replaced"] == max(one["replaced"] for one in rows)]
    reached = max(row["over_mean"] for row in rows if row["placement"] == "least loaded")
    return join(
        "## Subscriptions that come and go",
        paragraph(
            f"{rows[0]['shards']} shards hold `nearest` subscriptions of the workload `tweets`, assigned by `dkm`"
            f" (DkM-SKS, section 4.3). In ten rounds {last[0]['replaced']:.0%} of them leave, at random or from the"
            " west to the east, and as many others come: each goes to the shard of its key, as where several"
            " processes place subscriptions, or to the least loaded shard (section 4.4), whose load falls or does"
            " not fall with those that leave. A load is the sum of the costs by which `dkm` placed subscriptions; the"
            " last column has the pairs of a subscription and a message with its rarest term, for messages that"
            f" came later. With loads that fall, the busiest shard has at most {reached:.3f} times the mean in every"
            f" round; the goal, {_AIM_CHURN:.2f}, is {'reached' if reached <= _AIM_CHURN else 'not reached'}."
        ),
        table(
            ["subscriptions", "who leaves", "later ones go", "busiest over mean", "pairs, busiest over mean"],
            [
                [
                    f"{row['subscriptions']:,}",
                    row["leaving"],
                    _GO_TO[row["placement"]],
                    f"{row['over_mean']:.3f}",
                    f"{row['pairs_over_mean']:.3f}",
                ]
                for row in last
            ],
        ),
    )


PAGE = Page(
    "balance",
    ("balance/selections", "balance/drift", "balance/global", "balance/churn"),
    "Load adjustment",
    render,
)
