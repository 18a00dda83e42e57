"""All questions, in the order in which they are measured."""

from __future__ import annotations

from experiments import (
    balance,
    baselines,
    cliffs,
    filters,
    growth,
    headline,
    many_shards,
    merge_stage,
    nearest_k,
    partitioners,
    rescaling,
    social_windows,
    spark_batches,
    topk_alternatives,
    topk_sweeps,
    topk_tuning,
    topk_windows,
    workers,
)

QUESTIONS = {
    module.QUESTION.name: module.QUESTION
    for module in (
        headline, growth, baselines, spark_batches, topk_tuning, topk_alternatives, topk_sweeps, nearest_k,
        social_windows, partitioners, many_shards, rescaling, balance, merge_stage, filters, workers,
        cliffs,
        topk_windows,
    )
}  # fmt: skip
