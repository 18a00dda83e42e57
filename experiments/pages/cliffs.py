"""The page cliffs: input that an adversary, or a city centre, sends, beside the uniform workload."""

from __future__ import annotations

from experiments.pages.markdown import join, listed, paragraph, provenance, table
from experiments.pages.page import Data, Page
from experiments.pages.plots import Plots
from experiments.question import Row

_AT_MOST = 5.0
"""The goal for what anything costs, as a multiple of the uniform workload."""
_SETTLED, _LARGER, _PAUSE_MS = 2.0, 3.0, 50.0
"""The goals for first messages, for the largest window as a multiple of the smallest, and for the longest call."""
_KINDS = ("boolean", "similarity", "topk", "nearest", "social")
_PARTS = (*_KINDS, "expiry", "first", "subscribing", "deletes", "results", "pauses")


def render(data: Data, plots: Plots) -> str:
    """Return the sections."""
    records = [data[f"cliffs/{part}"] for part in _PARTS]
    of = dict(zip(_PARTS, records, strict=True))
    return join(
        paragraph(
            "Each row has an engine of its own with one worker, and times are those of the processor. What costs more"
            " than the uniform workload is compared per message, per update and per term of a message: a message with"
            " ten times as many results may cost ten times as much, and so may one with ten times as many terms; one"
            " without a result is no cheaper than others. The least of the three ratios counts. A row that would"
            " take too long is given up, and says how many subscriptions and messages it had until then.",
        ),
        _on_kinds([row for kind in _KINDS for row in of[kind].rows]),
        provenance(*(of[kind] for kind in _KINDS)),
        _on_expiry(of["expiry"].rows),
        provenance(of["expiry"]),
        _on_first(of["first"].rows),
        provenance(of["first"]),
        _on_subscribing(of["subscribing"].rows),
        provenance(of["subscribing"]),
        _on_deletes(of["deletes"].rows),
        provenance(of["deletes"]),
        _on_results(of["results"].rows),
        provenance(of["results"]),
        _on_pauses(of["pauses"].rows),
        provenance(of["pauses"]),
    )


def _table(rows: list[Row], columns: dict[str, tuple[str, str]]) -> str:
    """Return rows as a table, given the value under each heading and how it is written."""
    cells = [[format(row[name], how) for name, how in columns.values()] for row in rows]
    return table(list(columns), cells)


def _on_kinds(rows: list[Row]) -> str:
    return join(
        "## Messages",
        paragraph(
            "The uniform workload is `tweets` with a nearness of 500 km; a recorded stream's statistics are those of"
            " `incidents`.",
            verdict([(f"{row['case']} (`{row['kind']}`)", row["ratio"]) for row in rows], at_most=_AT_MOST),
        ),
        table(
            ["kind", "case", "subscriptions", "us/message", "updates/message", "us/update", "terms", "ratio"],
            [
                [
                    row["kind"],
                    row["case"],
                    f"{row['subscriptions']:,}",
                    f"{row['us_per_message']:,.1f}",
                    f"{row['updates_per_message']:,.2f}",
                    _per_update(row),
                    f"{row['terms_per_message']:,.0f}",
                    f"{row['ratio']:.2f}",
                ]
                for row in rows
            ],
        ),
    )


def _per_update(row: Row) -> str:
    return f"{row['us_per_update']:,.2f}" if row["updates_per_message"] >= 1 else "-"


def _on_expiry(rows: list[Row]) -> str:
    return join(
        "## Silence",
        paragraph(
            "A time window that holds so many messages of the uniform workload: messages without a gap, messages"
            " after a gap of 0.9 windows, and the one message with which a whole window expires in one step.",
            verdict([(f"{row['case']} (`{row['kind']}`)", row["ratio"]) for row in rows], at_most=_AT_MOST),
        ),
        _table(
            rows,
            {
                "kind": ("kind", ""),
                "case": ("case", ""),
                "subscriptions": ("subscriptions", ","),
                "window": ("window", ","),
                "us/message": ("us_per_message", ",.0f"),
                "updates/message": ("updates_per_message", ",.1f"),
                "us/update": ("us_per_update", ",.2f"),
                "ratio": ("ratio", ".2f"),
            },
        ),
    )


def _on_first(rows: list[Row]) -> str:
    first = [row for row in rows if row["case"] == "first"]
    return join(
        "## First messages",
        paragraph(
            "Buffers of k = 1,000 over `incidents`, right after subscribing and after a whole window; the ratio is"
            " that to the messages after a window.",
            verdict([(f"`{row['kind']}`", row["ratio"]) for row in first], at_most=_SETTLED),
        ),
        _table(
            rows,
            {
                "kind": ("kind", ""),
                "messages": ("case", ""),
                "subscriptions": ("subscriptions", ","),
                "window": ("window", ","),
                "us/message": ("us_per_message", ",.0f"),
                "updates/message": ("updates_per_message", ",.1f"),
                "longest call, ms": ("longest_ms", ",.0f"),
                "ratio": ("ratio", ".2f"),
            },
        ),
    )


def _on_subscribing(rows: list[Row]) -> str:
    most = [row for i, row in enumerate(rows) if i + 1 == len(rows) or rows[i + 1]["ratio"] == 1.0]
    return join(
        "## Subscribing",
        paragraph(
            "A subscription of `incidents`, whose words are mostly frequent, into windows of different sizes; the"
            " ratio is that to the smallest.",
            verdict([(f"{row['case']} (`{row['kind']}`)", row["ratio"]) for row in most], at_most=_LARGER),
        ),
        _table(
            rows,
            {
                "kind": ("kind", ""),
                "messages": ("case", ""),
                "window": ("window", ","),
                "us/subscription": ("us_to_subscribe", ",.0f"),
                "ratio": ("ratio", ".2f"),
            },
        ),
    )


def _on_deletes(rows: list[Row]) -> str:
    return join(
        "## Deletes",
        paragraph(
            "Half of the subscriptions leave, in any order: different ones, and ones that all have the same place or"
            " box, and the same word.",
            verdict([(f"{row['case']} (`{row['kind']}`)", row["ratio"]) for row in rows], at_most=_AT_MOST),
        ),
        _table(
            rows,
            {
                "kind": ("kind", ""),
                "subscriptions": ("case", ""),
                "number": ("subscriptions", ","),
                "us to subscribe": ("us_to_subscribe", ",.1f"),
                "us to delete": ("us_to_delete", ",.1f"),
                "ratio": ("ratio", ".2f"),
            },
        ),
    )


def _on_results(rows: list[Row]) -> str:
    return join(
        "## Results",
        paragraph("A result of a stateless kind is looked up in the window, in a call of its own."),
        _table(
            rows,
            {
                "kind": ("kind", ""),
                "workload": ("workload", ""),
                "window": ("window", ","),
                "messages in a result": ("results", ",.1f"),
                "mean, ms": ("mean_ms", ",.1f"),
                "longest, ms": ("longest_ms", ",.1f"),
            },
        ),
    )


def _on_pauses(rows: list[Row]) -> str:
    longest = max(rows, key=lambda row: row["longest_ms"])
    reached = "reached" if longest["longest_ms"] <= _PAUSE_MS else "not reached"
    return join(
        "## Pauses",
        paragraph(
            "Arenas, tables and lists grow while subscriptions become many: calls of 1,000 subscriptions, then of 100"
            " messages.",
            f"The longest call takes {longest['longest_ms']:,.0f} ms (`{longest['kind']}`, {longest['case']});"
            f" the goal, at most {_PAUSE_MS:.0f} ms, is {reached}.",
        ),
        _table(
            rows,
            {
                "kind": ("kind", ""),
                "calls": ("case", ""),
                "subscriptions": ("subscriptions", ","),
                "number": ("calls", ","),
                "median, ms": ("p50_ms", ",.1f"),
                "99th percentile, ms": ("p99_ms", ",.1f"),
                "longest, ms": ("longest_ms", ",.1f"),
            },
        ),
    )


def verdict(ratios: list[tuple[str, float]], *, at_most: float) -> str:
    """Return the sentence that says whether all ratios are within a goal, and which are not.

    >>> verdict([("a", 1.0), ("b", 2.5)], at_most=3.0)
    'The greatest ratio is 2.50 (b); the goal, at most 3, is reached.'
    >>> verdict([("a", 1.0), ("b", 4.0)], at_most=3.0)
    'The goal, at most 3, is not reached by b: 4.00.'
    """
    beyond = [f"{name}: {ratio:.2f}" for name, ratio in ratios if ratio > at_most]
    if beyond:
        return f"The goal, at most {at_most:g}, is not reached by {listed(beyond)}."
    name, greatest = max(ratios, key=lambda pair: pair[1])
    return f"The greatest ratio is {greatest:.2f} ({name}); the goal, at most {at_most:g}, is reached."


PAGE = Page("cliffs", tuple(f"cliffs/{part}" for part in _PARTS), "No cliffs", render)
