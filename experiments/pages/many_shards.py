"""The page many-shards: placement, routing and dispatch with up to a thousand shards."""

from __future__ import annotations

from experiments.pages.markdown import join, listed, paragraph, provenance, table
from experiments.pages.page import Data, Page
from experiments.pages.plots import Plots
from experiments.question import Row

_MOST = 3.0
"""The goal: how many times as long the most shards may take as the fewest."""


def render(data: Data, plots: Plots) -> str:
    """Return the sections."""
    routing, dispatch = data["many-shards/routing"], data["many-shards/dispatch"]
    return join(
        _on_placement(routing.rows),
        _on_routing([row for row in routing.rows if not row["sends_all"]]),
        _on_memory(routing.rows),
        provenance(routing),
        _on_dispatch(dispatch.rows),
        provenance(dispatch),
    )


def _on_placement(rows: list[Row]) -> str:
    first = rows[0]
    return join(
        "## Placement",
        paragraph(
            f"Every partitioner is fitted to {first['subscriptions']:,} subscriptions of kind `boolean` and"
            f" {first['messages']:,} messages of tweets, and then places as many others, all in one call; processor"
            " time in microseconds per subscription. Replicas are what a division into so many parts needs."
        ),
        _compared(rows, "place_us", "replicas", "replicas"),
        paragraph(_verdict(rows, "place_us")),
    )


def _on_routing(rows: list[Row]) -> str:
    return join(
        "## Routing",
        paragraph(
            "The same for messages, in microseconds per message; reach is the number of shards that a message goes"
            " to. Partitioners that send every message to all shards have nothing to compute."
        ),
        _compared(rows, "route_us", "reach", "reach"),
        paragraph(_verdict(rows, "route_us")),
    )


def _on_memory(rows: list[Row]) -> str:
    shards = _shards(rows)
    cells = [
        [
            name,
            *(f"{_at(rows, name, n)['fit_s']:.2f}" for n in shards),
            *(f"{_at(rows, name, n)['routing_bytes'] / 1e6:.2f}" for n in shards),
            *(f"{last[peak]:,.0f}" if peak in last else "-" for peak in ("place_peak_bytes", "route_peak_bytes")),
        ]
        for name in _names(rows)
        if (last := _at(rows, name, shards[-1]))
    ]
    masks = listed([f"{_at(rows, rows[0]['partitioner'], n)['mask_bytes']:.0f}" for n in shards])
    return join(
        "## Fit and memory",
        paragraph(
            f"A set takes {masks} bytes with {listed([f'{n:,}' for n in shards])} shards, whatever it holds."
            " Peaks are what a call has in use at once beside the routing, per row."
        ),
        table(
            [
                "partitioner", *(f"fit, {n:,} shards, s" for n in shards),
                *(f"saved, {n:,} shards, MB" for n in shards), f"peak of placing, {shards[-1]:,} shards, bytes",
                f"peak of routing, {shards[-1]:,} shards, bytes",
            ],
            cells,
        ),
    )  # fmt: skip


def _on_dispatch(rows: list[Row]) -> str:
    cells = [
        [
            row["partitioner"], f"{row['shards']:,}", f"{row['message_us']:.1f}",
            f"{row['message_packed_bytes']:,.0f}",
            f"{row['message_shuffled_bytes']:,.0f}", f"{row['subscription_us']:.1f}",
            f"{row['subscription_packed_bytes']:,.0f}", f"{row['subscription_shuffled_bytes']:,.0f}",
        ]
        for row in rows
    ]  # fmt: skip
    units = ("us per", "packed bytes per", "shuffled bytes per")
    names = [f"{unit} {source}" for source in ("message", "subscription") for unit in units]
    return join(
        "## Dispatch",
        paragraph(
            f"Blocks of {rows[0]['block']:,} rows are packed as frames for all shards, as the dispatch stage on Spark"
            " does; processor time of one task. Packed bytes leave Python, shuffled bytes count every copy. Rows"
            " that several shards get are a file, and frames carry its name. Where shards get different messages,"
            " each also gets the time of every message, 8 bytes each, so that all shards count the stream alike."
        ),
        table(["partitioner", "shards", *names], cells),
    )


def _compared(rows: list[Row], name: str, count: str, title: str) -> str:
    shards = _shards(rows)
    cells = []
    for partitioner in _names(rows):
        found = [_at(rows, partitioner, n) for n in shards]
        cells.append(
            [
                partitioner,
                *(f"{row[name]:.2f}" for row in found),
                f"{found[-1][name] / found[0][name]:.1f}",
                *(f"{row[count]:.1f}" for row in found),
            ]
        )
    return table(
        [
            "partitioner",
            *(f"{n:,} shards, us" for n in shards),
            "last to first",
            *(f"{title}, {n:,}" for n in shards),
        ],
        cells,
    )


def _verdict(rows: list[Row], name: str) -> str:
    first, last = _shards(rows)[0], _shards(rows)[-1]
    ratios = {one: _at(rows, one, last)[name] / _at(rows, one, first)[name] for one in _names(rows)}
    beyond = [one for one, ratio in ratios.items() if ratio > _MOST]
    result = f"{listed(beyond)} take{'s' if len(beyond) == 1 else ''} longer" if beyond else "all stay within it"
    return f"The goal is at most {_MOST:.0f} times as long with {last:,} shards as with {first:,}: {result}."


def _shards(rows: list[Row]) -> list[int]:
    return sorted({row["shards"] for row in rows})


def _names(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(row["partitioner"] for row in rows))


def _at(rows: list[Row], name: str, shards: int) -> Row:
    (found,) = (row for row in rows if (row["partitioner"], row["shards"]) == (name, shards))
    return found


PAGE = Page("many-shards", ("many-shards/routing", "many-shards/dispatch"), "Many shards", render)
