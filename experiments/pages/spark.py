"""The section about batches on Spark."""

from __future__ import annotations

from experiments.data_file import Record
from experiments.pages.markdown import join, paragraph, provenance, table
from experiments.pages.plots import Plots

_STAGES = {
    "planning_s": "planning",
    "log_s": "Spark's log",
    "reading_shuffle_rows_s": "reading, dispatch, shuffle, rows",
    "state_s": "frames, seal, snapshot",
    "matching_s": "matching (kernels and Arrow)",
}
"""Figure of a batch to its name."""


def batches(records: dict[str, Record], plots: Plots, *, name: str) -> str:
    """Return tables and plot of runs, by part."""
    runs = {part.replace("-", ", "): record.rows[0] for part, record in records.items()}
    spark = {run: row["spark"] for run, row in runs.items()}
    rates = [
        [
            run, f"{row['messages_per_second']:,.0f}", f"{on['messages_per_second']:,.0f}", f"{on['ratio']:.2f}",
            on["batch_s"], f"{on['batch_of_100_p50_s']:.3f}", on["first_batch_s"], on["restart_engines_lost_s"],
        ]
        for (run, row), on in zip(runs.items(), spark.values(), strict=True)
    ]  # fmt: skip
    stages = {label: {run: on[figure] for run, on in spark.items()} for figure, label in _STAGES.items()}
    return join(
        f"## On Spark `local[2]`, {next(iter(runs.values()))['subscriptions']:,} subscriptions",
        table(
            [
                "run",
                "embedded, 2 workers, messages/s",
                "on Spark, messages/s",
                "ratio",
                "batch s",
                "batch of 100 messages s",
                "first batch s",
                "restart with engines lost s",
            ],
            rates,
        ),
        paragraph("The first batch holds all subscriptions. The stages of a batch, in seconds:"),
        table(
            ["run", *_STAGES.values()],
            [[run, *(on[figure] for figure in _STAGES)] for run, on in spark.items()],
        ),
        plots.stages(name, "stages of a batch on Spark", stages),
        provenance(*records.values()),
    )
