"""Question: how do the parameters and prunings of the baselines of top-k matter? Figures 10 to 12 of Skype.

All three figures are about the index of the paper, IGPT. Figure 12 compares it with IPT, which prunes subscriptions
individually: cells, groups and early ends, all of section 5.2, are off. Beyond the paper, each pruning is also
switched off by itself. What is compared takes turns, burst by burst, as differences are small.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from experiments.question import Question, Row
from experiments.topk_runs import by_count, by_time, default_setting, register_baselines
from nearcast import index, window
from nearcast.index import IndexEntry
from nearcast_baselines.igpt import IGPT, Prunings

KMAX = (20, 40, 60, 80, 100, 120)
FACTORS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75)
GROUPS = (5, 10, 20, 30, 40)
PRUNINGS = {
    "IGPT": Prunings(),
    "no cells": Prunings(cells=False),
    "no groups": Prunings(groups=False),
    "no ends": Prunings(ends=False),
    "IPT": Prunings(cells=False, groups=False, ends=False),
    "no prefix": Prunings(prefix=False),
    "no unseen": Prunings(unseen=False),
}


def buffers(scale: float) -> list[Row]:
    """Figure 10: vary kmax and the factor of Skyband, beside cSkyband, all with IGPT."""
    register_baselines()
    base = default_setting(scale)
    policies = [("kmax", kmax, kmax / base.k) for kmax in KMAX] + [("skyband", factor, factor) for factor in FACTORS]
    names = [_register_buffers(policy, factor) for policy, _, factor in policies]
    rows = by_count(*(replace(base, index=name) for name in ("igpt-cskyband", *names)))
    varied: list[Row] = [
        {"policy": "cskyband"},
        *({"policy": policy, "value": value} for policy, value, _ in policies),
    ]
    return [which | row for which, row in zip(varied, rows, strict=True)]


def groups(scale: float) -> list[Row]:
    """Figure 11: vary the number of groups of alpha."""
    base = default_setting(scale)
    rows = by_time(*(replace(base, index=_register_igpt(f"{n} groups", groups=n)) for n in GROUPS))
    return [{"groups": n} | row for n, row in zip(GROUPS, rows, strict=True)]


def prunings(scale: float) -> list[Row]:
    """Figure 12: switch prunings off."""
    base = default_setting(scale)
    rows = by_time(*(replace(base, index=_register_igpt(name, prunings=on)) for name, on in PRUNINGS.items()))
    return [{"prunings": name} | row for name, row in zip(PRUNINGS, rows, strict=True)]


QUESTION = Question(
    "topk-tuning",
    "How do the parameters and prunings of the baselines of top-k matter? (Skype, Figures 10 to 12)",
    {"buffers": buffers, "groups": groups, "prunings": prunings},
    minutes=6,
)


def _register_buffers(policy: str, factor: float) -> str:
    """Register IGPT with the buffers of a policy, and return its name."""
    result_store = f"{policy} {factor:g}"
    window.register(window.buffers(policy, "topk", factor=factor, name=result_store))
    return _register(f"igpt, {result_store}", IGPT, result_store)


def _register_igpt(name: str, **options: Any) -> str:
    """Register IGPT with other options, and return its name."""
    return _register(f"igpt, {name}", partial(IGPT, **options), "cskyband")


def _register(name: str, create: Any, result_store: str) -> str:
    index.register(IndexEntry(name, frozenset({"topk"}), create, in_arena=False, result_store=result_store))
    return name
