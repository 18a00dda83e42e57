"""Advice: the partitioner that suits a stream, by estimates and by short runs on this machine.

    stream ──┬── constants ── estimates ── recommendation ──┐
             ├── trial: a short run of each ────────────────┴── report ── page
             └── drift: load adjustment, without a run

The estimates are in `nearcast.partition.estimate`; this package runs engines and presents the results.
"""

from nearcast.advice.drift import DriftReport, try_adjusting
from nearcast.advice.report import AdviceReport, advise
from nearcast.advice.stream import Stream, generated, recorded

__all__ = ["AdviceReport", "DriftReport", "Stream", "advise", "generated", "recorded", "try_adjusting"]
