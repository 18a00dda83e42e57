"""Question: how does the cost of top-k depend on keywords, k, subscriptions and window? Figures 15 to 19 of Skype."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from experiments.question import Question, Row
from experiments.topk_runs import Setting, default_setting, measure

SWEEPS: dict[str, Callable[[Setting], list[Setting]]] = {
    "default": lambda base: [base],
    "keywords": lambda base: [replace(base, keywords=n) for n in (1, 2, 3, 4, 5)],
    "k": lambda base: [replace(base, k=k) for k in (10, 20, 30, 40, 50)],
    "subscriptions": lambda base: [replace(base, subscriptions=n) for n in _multiples(base.subscriptions)],
    "window": lambda base: [replace(base, window=n) for n in _multiples(base.window)],
    "zipf": lambda base: [replace(base, is_zipf=is_zipf) for is_zipf in (False, True)],
}
"""Part to its settings, given the default one."""


def _multiples(n: int) -> list[int]:
    return [n // 2, n, 2 * n, 4 * n]


def sweep(part: str, scale: float) -> list[Row]:
    """Measure the settings of a part."""
    return [measure(setting) for setting in SWEEPS[part](default_setting(scale))]


QUESTION = Question(
    "topk-sweeps",
    "How does the cost of top-k depend on keywords, k, subscriptions and window? (Skype, Figures 15 to 19)",
    {part: partial(sweep, part) for part in SWEEPS},
    minutes=5,
)
