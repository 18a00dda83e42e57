"""Question: how do our index and buffers for top-k compare with the alternatives? Figures 13, 14 and 20 of Skype."""

from __future__ import annotations

from dataclasses import replace

from experiments.question import Question, Row
from experiments.topk_runs import by_time, default_setting, measure, register_baselines

INDEXES = ("topk", "igpt-cskyband", "ciq-cskyband")
BUFFERS = ("topk", "topk-skyband", "topk-kmax")
KS = (10, 30, 50)


def indexes(scale: float) -> list[Row]:
    """Figure 13: indexes, all with cSkyband."""
    return _measure_each(INDEXES, scale)


def buffers(scale: float) -> list[Row]:
    """Figure 14 and Table 4: buffers, all with our index."""
    return _measure_each(BUFFERS, scale)


def time_windows(scale: float) -> list[Row]:
    """Figure 20: a window by time, ours and CIQ with kmax."""
    register_baselines()
    base = default_setting(scale)
    return [by_time(replace(base, k=k, index=name))[0] for name in ("topk", "ciq-kmax") for k in KS]


def _measure_each(names: tuple[str, ...], scale: float) -> list[Row]:
    register_baselines()
    base = default_setting(scale)
    return [measure(replace(base, index=name)) for name in names]


QUESTION = Question(
    "topk-alternatives",
    "How do our index and buffers for top-k compare with the alternatives? (Skype, Figures 13, 14 and 20)",
    {"indexes": indexes, "buffers": buffers, "time-windows": time_windows},
    minutes=3,
)
