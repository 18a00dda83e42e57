"""The process that forks Spark's Python workers, with the pipeline imported: `spark.python.daemon.module`.

Spark's own daemon imports nothing, so each worker would import Numba, Arrow and pandas for itself, for a second. Here
they are imported once per executor, and workers share that memory. The libraries' threads do not survive a fork; all
of them start again in the child when they are needed.
"""

from __future__ import annotations

import gc

import pyspark.worker  # noqa: F401 - what workers run
from pyspark.daemon import manager

import nearcast.spark.decode
import nearcast.spark.merge
import nearcast.spark.worker  # noqa: F401 - what workers import

if __name__ == "__main__":
    gc.freeze()  # collections in workers leave these objects alone, so their pages stay shared
    manager()
