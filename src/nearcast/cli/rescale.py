"""`nearcast rescale JOB.toml --shards N`: a running job continues with another number of shards."""

from __future__ import annotations

import argparse
from pathlib import Path

NAME = "rescale"
HELP = "let a running job continue with another number of shards"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("config", type=Path, metavar="JOB.toml", help="the job, see docs/spark.md")
    parser.add_argument("--shards", type=int, required=True, metavar="N", help="the new number of shards")


def run(options: argparse.Namespace) -> int:
    """Leave a request for the job, which it takes within a second or with its next start."""
    from nearcast.jobs.job_file import naming, read_job_file
    from nearcast.jobs.requests import request_rescale

    job_file = read_job_file(options.config)
    with naming(job_file.file):
        request_rescale(job_file, options.shards)
    return 0
