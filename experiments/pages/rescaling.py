"""The page rescaling: what it costs to move subscriptions between shards."""

from __future__ import annotations

from experiments.pages.markdown import join, paragraph, provenance, table
from experiments.pages.page import Data, Page
from experiments.pages.plots import Plots
from experiments.question import Row


def render(data: Data, plots: Plots) -> str:
    """Return the sections."""
    moves, spark, tasks = (data[f"rescaling/{part}"] for part in ("moves", "spark", "tasks"))
    return join(
        _on_moves(moves.rows[0], plots),
        provenance(moves),
        _on_spark(spark.rows[0], plots),
        provenance(spark),
        _on_tasks(tasks.rows),
        provenance(tasks),
    )


def _on_moves(row: Row, plots: Plots) -> str:
    batches = row["batch_s"]
    return join(
        "## Some of many subscriptions",
        paragraph(
            f"Two shards hold {row['subscriptions']:,} `boolean` subscriptions and match batches of"
            f" {row['messages']:,} messages. Between two batches {row['moved']:,} subscriptions move from one to the"
            f" other, {row['moved_bytes'] / 1e6:.0f} MB in all: the batch before writes them, and the batch after"
            f" reads, deletes and inserts them. That takes {row['begin_s']:.2f} s of its time. The longest batch"
            f" takes {row['ratio']:.2f} times as long as the median one, {row['median_s']:.2f} s; the goal is 2.0."
            " The shards run one after the other, and the time of a batch is that of the slower one."
        ),
        plots.lines(
            "rescaling-moves",
            f"{row['moved']:,} of {row['subscriptions']:,} subscriptions move",
            xs=list(range(len(batches))),
            curves={"batch": batches},
            xlabel="batch",
            ylabel="seconds",
        ),
    )


def _on_spark(row: Row, plots: Plots) -> str:
    batches, epochs = row["batch_s"], row["epochs"]
    changes = [number for number in range(1, len(epochs)) if epochs[number] != epochs[number - 1]]
    return join(
        "## Two shards, four, and two again, on Spark",
        paragraph(
            f"A job on Spark `local[2]` with {row['subscriptions']:,} `boolean` subscriptions reads batches of"
            f" {row['messages']:,} packed messages, with four tasks. While it runs it is rescaled from two shards to"
            " four, which moves half of the subscriptions, and back. The new shards begin with batches"
            f" {' and '.join(map(str, changes))}. The median batch takes {row['median_s']:.2f} s, the longest"
            f" {row['longest_s']:.2f} s; the goal is at most 10 s. Batch 0, the first one after a restart, is not"
            f" counted. For comparison, the batch that adds all subscriptions takes {row['first_s']:.1f} s."
        ),
        plots.lines(
            "rescaling-spark",
            "Batches of a job that is rescaled",
            xs=list(range(len(batches))),
            curves={"batch": batches},
            xlabel="batch",
            ylabel="seconds",
        ),
    )


def _on_tasks(rows: list[Row]) -> str:
    first = rows[0]["median_s"]
    return join(
        "## Idle tasks",
        paragraph(
            "Spark fixes the number of tasks for the life of a checkpoint, so a job that may grow needs more tasks"
            f" than shards. Two shards with {rows[0]['subscriptions']:,} subscriptions, batches of 1,000 messages,"
            " Spark `local[2]`:"
        ),
        table(
            ["tasks", "median batch, s", "times"],
            [[str(row["tasks"]), f"{row['median_s']:.2f}", f"{row['median_s'] / first:.2f}"] for row in rows],
        ),
    )


PAGE = Page("rescaling", ("rescaling/moves", "rescaling/spark", "rescaling/tasks"), "Rescaling", render)
