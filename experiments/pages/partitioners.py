"""The page partitioners: what three papers say of partitioners, and what they gain and cost on one machine."""

from __future__ import annotations

from experiments.pages.markdown import join, paragraph, provenance
from experiments.pages.page import Data, Page
from experiments.pages.partition_balance import balance
from experiments.pages.partition_cost import fits, workers
from experiments.pages.partition_replication import replication
from experiments.pages.partition_throughput import throughput
from experiments.pages.plots import Plots

_SECTIONS = {
    "replication": replication,
    "balance": balance,
    "throughput": throughput,
    "workers": workers,
    "fits": fits,
}


def render(data: Data, plots: Plots) -> str:
    """Return the sections."""
    explained = paragraph(
        "A subscription has a replica in each shard that holds it. Reach is the number of shards that a message is"
        " sent to. Visited and verified are the entries that the index of a shard reads, and the scores that it"
        " computes. Max/mean compares the busiest shard with the mean: 1.00 is perfectly even."
    )
    records = {part: data[f"partitioners/{part}"] for part in _SECTIONS}
    sections = [join(_SECTIONS[part](record.rows), provenance(record)) for part, record in records.items()]
    return join(explained, *sections)


PAGE = Page("partitioners", tuple(f"partitioners/{part}" for part in _SECTIONS), "Partitioners", render)
