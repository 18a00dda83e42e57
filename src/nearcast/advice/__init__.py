"""ADVISE: which partitioner suits a stream, by what is counted and by what is measured here?

    stream ──┬── constants ── weigh ── recommend ──┐
             └── trial: a short run of each ───────┴── report ── page

What is counted is in `nearcast.partition.estimate`; this package runs engines, and shows what came of it.
"""

from nearcast.advice.report import AdviceReport, advise
from nearcast.advice.stream import Stream, generated, recorded

__all__ = ["AdviceReport", "Stream", "advise", "generated", "recorded"]
