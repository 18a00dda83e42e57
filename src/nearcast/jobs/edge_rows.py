"""Rows of edges: each adds an edge between a user and a place to the social graph, or removes one."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import require
from nearcast.jobs.job import Job
from nearcast.model.columns import TIMESTAMP

ADD, REMOVE = "add", "remove"

EDGE_ROWS = pa.schema({"op": pa.string(), "user": pa.string(), "place": pa.string(), "at": TIMESTAMP})
"""The columns of a frame of edges."""


def check_edges(table: pa.Table, job: Job) -> None:
    """Raise the error of the first bad row; `broken` names fields that are not UTF-8."""
    if not pc.any(pc.greater(pc.list_value_length(table["broken"]), 0)).as_py() and _are_good(table, job):
        return
    for row in table.to_pylist():
        subject = f"edge {(row['user'], row['place'])!r}"
        for field in row["broken"]:
            require(False, field, "must be UTF-8", row[field], subject=subject)
        require(row["op"] in (ADD, REMOVE), "op", f"must be {ADD!r} or {REMOVE!r}", row["op"], subject=subject)
        for end in ("user", "place"):
            require(row[end] is not None, end, "must be a string", None, subject=subject)
            job.config.limits.check_id(row[end], end, subject=subject)


def _are_good(table: pa.Table, job: Job) -> bool:
    """Return whether all rows are certainly good."""
    most = job.config.limits.id_bytes
    if not set(pc.unique(table["op"]).to_pylist()) <= {ADD, REMOVE}:
        return False
    for end in ("user", "place"):
        if table[end].null_count or (pc.max(pc.binary_length(table[end])).as_py() or 0) > most:
            return False
    return True
