"""The page README: the stateless kinds, and Spark."""

from __future__ import annotations

from experiments.pages import kinds, spark
from experiments.pages.markdown import join, paragraph
from experiments.pages.page import Data, Page
from experiments.pages.plots import Plots

_ON_SPARK = ("boolean", "boolean-packed", "similarity-packed")
_KINDS = ("boolean", "similarity")


def render(data: Data, plots: Plots) -> str:
    """Return the sections."""
    sections = [
        join(
            f"## {kind}",
            kinds.growth(kind, data[f"growth/{kind}"], plots),
            kinds.baselines(kind, data[f"baselines/{kind}"], plots),
        )
        for kind in _KINDS
    ]
    on_spark = {part: data[f"spark-batches/{part}"] for part in _ON_SPARK}
    return join(
        paragraph(
            "Other pages: [top-k over a sliding window](topk.md), [large windows of top-k](topk-windows.md),",
            "[the k nearest](nearest.md), [the k best by a social graph](social.md),"
            " [partitioners](partitioners.md), [many shards](many-shards.md), [load adjustment](balance.md),",
            "[merged results on Spark](merge-stage.md), [filters](filters.md), [workers](workers.md).",
            "[Input that may make it slow](cliffs.md)." if data.has("cliffs") else "",
        ),
        *sections,
        spark.batches(on_spark, plots, name="spark-batches"),
    )


PAGE = Page(
    "README",
    (
        *(f"{question}/{kind}" for kind in _KINDS for question in ("growth", "baselines")),
        *(f"spark-batches/{part}" for part in _ON_SPARK),
    ),
    "Benchmarks",
    render,
)
