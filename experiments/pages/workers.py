"""The page workers: more threads in one engine."""

from __future__ import annotations

from experiments.pages.markdown import join, paragraph, provenance, table
from experiments.pages.page import Data, Page
from experiments.pages.plots import Plots
from experiments.question import Row
from experiments.workers import QUESTION, amdahl, serial_share

_GOAL, _GOAL_OF_MEMORY = 1.8, 1.1
_MODELLED = (2, 4, 8, 16, 32, 64)


def render(data: Data, plots: Plots) -> str:
    """Return the sections."""
    records = {part: data[f"workers/{part}"] for part in QUESTION.parts}
    rows = {part: {row["workers"]: row for row in record.rows} for part, record in records.items()}
    shares = {part: serial_share(_gain(found, 2)) for part, found in rows.items()}
    return join(
        _measured(rows),
        _modelled(shares, plots),
        provenance(*records.values()),
    )


def _gain(rows: dict[int, Row], n: int) -> float:
    return float(rows[n]["messages_per_second"] / rows[1]["messages_per_second"])


def _measured(rows: dict[str, dict[int, Row]]) -> str:
    cells = []
    for found in rows.values():
        memory = found[2]["peak_rss_mb"] / found[1]["peak_rss_mb"]
        window = f"{found[1]['window']:,}" if "--window" in found[1]["command"] else "none"
        cells.append(
            [
                f"`{found[1]['kind']}`", f"{found[1]['subscriptions']:,}", window,
                *(f"{found[n]['messages_per_second']:,.0f}" for n in sorted(found)),
                f"{_gain(found, 2):.2f}", f"{_gain(found, 4) / _gain(found, 2):.2f}", f"{memory:.2f}",
            ]
        )  # fmt: skip
    reached = [f"`{part}`" for part, found in rows.items() if _gain(found, 2) >= _GOAL]
    return join(
        "## Measured",
        paragraph(
            "The same messages and subscriptions with one worker, with two, and with four on the same two cores. The"
            f" goal for two workers is {_GOAL} times the messages per second of one, and at most"
            f" {_GOAL_OF_MEMORY} times the memory; {len(reached)} of {len(rows)} rows reach the first. Four workers"
            " on two cores should lose nothing against two. Memory is the peak of the process."
        ),
        table(
            [
                "kind", "subscriptions", "window", "1 worker, messages/s", "2 workers", "4 workers", "2 to 1",
                "4 to 2", "memory, 2 to 1",
            ],
            cells,
        ),
    )  # fmt: skip


def _modelled(shares: dict[str, float], plots: Plots) -> str:
    cells = [
        [part, f"{share:.2f}", *(f"{amdahl(share, n):.1f}" for n in _MODELLED)] for part, share in shares.items()
    ]
    return join(
        "## Modelled",
        paragraph(
            "The gain of two workers gives the share of the work that is not divided, which counts whatever the two"
            " cores wait for together: Python, locks, and the memory that they share. Amdahl's law then bounds what"
            " more cores can give. It is a model: more cores also bring more memory channels, and more to wait for."
        ),
        table(["run", "not divided", *(f"{n} cores" for n in _MODELLED)], cells),
        plots.lines(
            "workers-modelled",
            "Gain over one core, by Amdahl's law",
            xs=_MODELLED,
            curves={part: [amdahl(share, n) for n in _MODELLED] for part, share in shares.items()},
            xlabel="cores",
            ylabel="times one core",
        ),
    )


PAGE = Page("workers", tuple(f"workers/{part}" for part in QUESTION.parts), "Workers", render)
