"""`nearcast refresh JOB.toml`: a running job reads its static subscriptions again."""

from __future__ import annotations

import argparse
from pathlib import Path

NAME = "refresh"
HELP = "let a running job read its static subscriptions again"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("config", type=Path, metavar="JOB.toml", help="the job, see docs/spark.md")


def run(options: argparse.Namespace) -> int:
    """Leave a request for the job, which it takes within a second or with its next start."""
    from nearcast.jobs.job_file import naming, read_job_file
    from nearcast.jobs.requests import request_refresh

    job_file = read_job_file(options.config)
    with naming(job_file.file):
        request_refresh(job_file)
    return 0
