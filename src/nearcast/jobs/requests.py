"""Requests to a running job, which may run elsewhere: files in the folder of its checkpoint.

    nearcast refresh JOB.toml               refresh.request      read the static subscriptions again
    nearcast rescale JOB.toml --shards 4    rescale.request      continue with another number of shards

The job takes a request within a second, or with its next start; one that comes later is another.
"""

from __future__ import annotations

import json

from nearcast.errors import require
from nearcast.jobs.folder import Folder
from nearcast.jobs.job_file import JobFile
from nearcast.partition import MAX_SHARDS

_REFRESH, _RESCALE = "refresh.request", "rescale.request"


def request_refresh(job_file: JobFile) -> None:
    """Ask a job to read its static subscriptions again."""
    static = job_file.subscriptions.static
    require(
        static,
        "static",
        "must be true for a job that reads its subscriptions again",
        static,
        subject="[subscriptions]",
    )
    _folder(job_file).write(_REFRESH, b"")


def take_refresh(job_file: JobFile) -> bool:
    """Return whether the subscriptions are to be read again, and remove the request."""
    return _take(job_file, _REFRESH) is not None


def request_rescale(job_file: JobFile, shards: int) -> None:
    """Ask a job to continue with another number of shards."""
    require(1 <= shards <= MAX_SHARDS, "shards", f"must be between 1 and {MAX_SHARDS}", shards)
    rule = "must be left out in a job whose number of shards changes: a routing is fitted to one number"
    require(job_file.match.routing is None, "routing", rule, job_file.match.routing, subject="[match]")
    _folder(job_file).write(_RESCALE, json.dumps({"shards": shards}).encode())


def take_rescale(job_file: JobFile) -> int | None:
    """Return the number of shards that was requested, if any, and remove the request."""
    request = _take(job_file, _RESCALE)
    return None if request is None else int(json.loads(request)["shards"])


def _take(job_file: JobFile, name: str) -> bytes | None:
    folder = _folder(job_file)
    if folder.size(name) is None:
        return None
    request = folder.read(name)
    folder.remove([name])
    return request


def _folder(job_file: JobFile) -> Folder:
    return Folder(job_file.resolve(job_file.run.checkpoint))
