"""The process that forks Spark's Python workers, with their modules imported: `spark.python.daemon.module`.

Spark's own daemon imports nothing, so each worker would import Numba, Arrow and pandas for itself, for a second. Here
they are imported once per executor, and workers share that memory. The libraries' threads do not survive a fork; all
of them start again in the child when they are needed.

Spark starts a daemon for each module that workers run, and names it on the command line. Only `pyspark.worker` runs
the pipeline; the others plan and read sources, and need little.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module

from pyspark.daemon import manager

PIPELINE = ("pyspark.worker", "nearcast.spark.decode", "nearcast.spark.merge", "nearcast.spark.worker")


def modules_of(worker: str) -> tuple[str, ...]:
    """Return the modules that the workers of a daemon import."""
    return PIPELINE if worker == "pyspark.worker" else (worker,)


if __name__ == "__main__":
    for name in modules_of(sys.argv[1] if len(sys.argv) > 1 else "pyspark.worker"):
        import_module(name)
    gc.freeze()  # collections in workers leave these objects alone, so their pages stay shared
    manager()
