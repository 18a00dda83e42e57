"""The page topk-windows: Figure 18 of Skype at the paper's size."""

from __future__ import annotations

from typing import Any

from experiments.pages.markdown import join, paragraph, provenance, table
from experiments.pages.page import Data, Page
from experiments.pages.plots import Plots
from experiments.pages.sentences import numbers, shape, verdict
from experiments.question import Row

_COLUMNS = {
    "window": "window",
    "both_us": "µs per message",
    "updates": "updates per message",
    "searches": "re-evaluations per message",
    "buffer": "messages per buffer",
    "bytes_per_message": "bytes per message",
    "bytes_per_subscription": "bytes per subscription",
    "subscribing_s": "subscribing s",
}


def render(data: Data, plots: Plots) -> str:
    """Return the text, the table and the plot of all windows that are recorded."""
    records = sorted(data.question("topk-windows").values(), key=lambda record: int(record.rows[0]["window"]))
    rows = [record.rows[0] for record in records]
    first = rows[0]
    explained = paragraph(
        f"{first['subscriptions']:,} subscriptions with k = {first['k']}, one worker. The window is filled, all"
        " subscriptions are added, the window passes once, and then"
        f" {first['timed']:,} messages are timed in batches of {first['batch']}, by the processor. Bytes are the"
        " growth of the process: per message while the window was filled, and per subscription from then to the end,"
        " which includes the growth of the window as it passes."
    )
    return join(
        explained,
        table(list(_COLUMNS.values()), [[_cell(row[name]) for name in _COLUMNS] for row in rows]),
        _compare(rows) if len(rows) > 1 else "",
        plots.lines(
            "topk-windows",
            f"topk: cost per message, {first['subscriptions']:,} subscriptions",
            xs=[row["window"] / 1e6 for row in rows],
            curves={"nearcast": [row["both_us"] for row in rows]},
            xlabel="million messages in the window",
        ),
        provenance(*records),
    )


def _compare(rows: list[Row]) -> str:
    times, updates = [row["both_us"] for row in rows], [row["updates"] for row in rows]
    course = shape(times)
    return paragraph(
        "**Effect of the window (Figure 18).** In the paper arrivals cost less in a larger window, since better"
        " results are harder to beat, and expiries cost about the same, so the time of both together falls. Here,"
        f" from {rows[0]['window']:,} to {rows[-1]['window']:,} messages, it {course} ({numbers(times)}),"
        f" {verdict(course == 'falls')}. Updates per message: {numbers(updates)}."
    )


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}" if value < 10 else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"
    return f"{value:,}"


PAGE = Page("topk-windows", ("topk-windows",), "Large windows of top-k", render)
