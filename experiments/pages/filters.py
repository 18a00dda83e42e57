"""The page filters: what filters cost and save."""

from __future__ import annotations

from experiments.pages.markdown import join, paragraph, provenance, table
from experiments.pages.page import Data, Page
from experiments.pages.plots import Plots
from experiments.question import Row

_COLUMNS = ("variant", "messages/s", "times the cost", "updates per message", "visited", "verified")


def render(data: Data, plots: Plots) -> str:
    """Return the sections."""
    return join(
        paragraph(
            "Variants take turns on the same messages in one process, batch by batch, with one worker; their total"
            " times are compared. Visited are the entries of the index that a message reads, verified the"
            " subscriptions whose score is computed."
        ),
        _on_regions(data),
        _on_attributes(data),
        _on_places(data),
        _on_topk(data),
        _on_expressions(data),
    )


def _on_regions(data: Data) -> str:
    record = data["filters/regions"]
    _, mixed = record.rows
    return join(
        "## Regions",
        paragraph(
            f"{mixed['subscriptions']:,} subscriptions of kind `boolean`, a third each boxes, circles, and polygons"
            " of 8 to 200 points, against boxes alone; all have the same areas, and about as many matches.",
            _verdict(mixed["cost_ratio"], at_most=1.5),
        ),
        _table(record.rows),
        provenance(record),
    )


def _on_attributes(data: Data) -> str:
    record = data["filters/attributes"]
    _, where = record.rows
    return join(
        "## Attributes",
        paragraph(
            f"{where['subscriptions']:,} saved searches of kind `boolean` with one or two frequent words, one of 200"
            " categories and a range of prices, against the same without `where`, whose updates a"
            " program filters afterwards.",
            _verdict(where["cost_ratio"], at_most=1 / 3),
        ),
        _table(record.rows),
        provenance(record),
    )


def _on_places(data: Data) -> str:
    record = data["filters/places"]
    pairs = [(record.rows[i], record.rows[i + 1]) for i in range(0, len(record.rows), 2)]
    return join(
        "## Attributes of kinds that need no word",
        paragraph(
            "Subscriptions of kinds `similarity` and `social` match by place or by user, too. Each has one of 200"
            " categories. An index that finds them by their category stands against the same one that does not know"
            " it, whose matches the filters test afterwards.",
            *(
                f"{where['subscriptions']:,} of kind `{where['kind']}`: "
                + _verdict(where["cost_ratio"], at_most=None)
                for _, where in pairs
            ),
        ),
        _table(record.rows),
        provenance(record),
    )


def _on_topk(data: Data) -> str:
    record = data["filters/topk"]
    pairs = [(record.rows[i], record.rows[i + 1]) for i in range(0, len(record.rows), 2)]
    first = pairs[0][0]
    aims = {10: 1 / 0.7, 1_000: 1.0}
    verdicts = [
        f"A filter that one message in {where['one_in']:,} passes: "
        + _verdict(where["cost_ratio"], at_most=aims.get(where["one_in"]))
        for _, where in pairs
    ]
    rows = [row | {"variant": f"{row['variant']}, 1 in {row['one_in']:,}"} for pair in pairs for row in pair]
    return join(
        "## Results of k",
        paragraph(
            f"{first['subscriptions']:,} subscriptions of kind `topk` with k = 20 and a window of"
            f" {first['window']:,} messages, without a filter and with `category = ...`.",
            *verdicts,
        ),
        _table(rows),
        provenance(record),
    )


def _on_expressions(data: Data) -> str:
    record = data["filters/expressions"]
    _, rich = record.rows
    return join(
        "## NOT and phrases",
        paragraph(
            f"{rich['subscriptions']:,} subscriptions of kind `boolean`, of which one in five has NOT or a phrase,"
            " against the same with AND and OR alone. Messages come as texts.",
            _verdict(rich["cost_ratio"], at_most=1.2),
        ),
        _table(record.rows),
        provenance(record),
    )


def _verdict(ratio: float, *, at_most: float | None) -> str:
    if at_most is None:
        return f"A message costs {ratio:.2f} times as much."
    reached = "reached" if ratio <= at_most else "not reached"
    return f"A message costs {ratio:.2f} times as much; the goal, at most {at_most:.2f}, is {reached}."


def _table(rows: list[Row]) -> str:
    return table(
        list(_COLUMNS),
        [
            [
                str(row["variant"]),
                f"{row['messages_per_second']:,.0f}",
                f"{row['cost_ratio']:.2f}",
                f"{row['updates'] / row['messages']:,.2f}",
                f"{row['visited']:,.1f}",
                f"{row['verified']:,.2f}",
            ]
            for row in rows
        ],
    )


PAGE = Page(
    "filters",
    tuple(f"filters/{part}" for part in ("regions", "attributes", "places", "topk", "expressions")),
    "Filters",
    render,
)
