"""A request to a running job to read its static subscriptions again: a file in the folder of its checkpoint."""

from __future__ import annotations

from nearcast.errors import require
from nearcast.jobs.folder import Folder
from nearcast.jobs.job_file import JobFile

_REQUEST = "refresh.request"


def request_refresh(job_file: JobFile) -> None:
    """Ask a job, which may run elsewhere, to read its static subscriptions again."""
    static = job_file.subscriptions.static
    require(
        static,
        "static",
        "must be true for a job that reads its subscriptions again",
        static,
        subject="[subscriptions]",
    )
    _folder(job_file).write(_REQUEST, b"")


def take_request(job_file: JobFile) -> bool:
    """Return whether there is a request, and remove it: one that comes later is another."""
    folder = _folder(job_file)
    if folder.size(_REQUEST) is None:
        return False
    folder.remove([_REQUEST])
    return True


def _folder(job_file: JobFile) -> Folder:
    return Folder(job_file.resolve(job_file.run.checkpoint))
