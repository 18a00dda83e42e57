"""The client of a job that runs elsewhere: it writes the files that the job reads, and reads those it writes.

    messages, operations ──► files in the job's sources ──► the job ──► its sink of updates ──► rows
                                                              └──────► reports of its shards

It needs the job's folders and no Spark. A file gets its name once it is complete, and the caller chooses the name: a
file that is written again after a crash under the same name is the same file, which Spark reads once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyarrow import fs

from nearcast.engine.archive import sync
from nearcast.errors import require
from nearcast.jobs.folder import Folder
from nearcast.jobs.job_file import JobFile
from nearcast.jobs.message_rows import RETRACT
from nearcast.jobs.reports import Reports
from nearcast.jobs.sink_files import SinkFiles
from nearcast.jobs.validate import SUBSCRIBE, UNSUBSCRIBE
from nearcast.model import Message, Subscription, Update
from nearcast.model.attributes import LARGEST_INT
from nearcast.model.columns import subscriptions_schema
from nearcast.model.timestamps import to_us

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNFINISHED = re.compile(r"\.\d+\.json\..+-\d+$")
"""The name of an unfinished file: that of the file, the host and the process."""

Row = dict[str, Any]


class JobClient:
    """A connection to a job."""

    def __init__(self, job_file: JobFile) -> None:
        """Check that the job reads and writes JSON lines in folders."""
        for name, table in (("messages", job_file.messages), ("subscriptions", job_file.subscriptions)):
            check_json(name, table.format)
            for key in ("schema", "select"):
                given, rule = getattr(table, key), "must be left out where rows are written for the job"
                require(not given, key, rule, given, subject=f"[{name}]")
        static, rule = job_file.subscriptions.static, "must be left out where rows are written for the job"
        require(not static, "static", rule, static, subject="[subscriptions]")
        check_json("updates", job_file.updates.format)
        self._messages = Folder(job_file.resolve(str(job_file.messages.path)))
        self._subscriptions = Folder(job_file.resolve(str(job_file.subscriptions.path)))
        self._updates = SinkFiles(job_file.resolve(str(job_file.updates.path)))
        self.reports = Reports(job_file.state_folder)

    def open(self) -> None:
        """Create the folders that the job reads; Spark requires that they exist."""
        for folder in (self._messages, self._subscriptions):
            folder.files.create_dir(folder.path, recursive=True)

    def remove_unfinished(self) -> None:
        """Remove files that an earlier process left unfinished; no other process may write files of such names."""
        for folder in (self._messages, self._subscriptions):
            folder.remove([name for name in folder.names("") if _UNFINISHED.match(name)])

    def write_messages(self, name: str, rows: Iterable[Row]) -> None:
        """Write messages and retractions for the job, see `message_row` and `retracted`."""
        _put(self._messages, name, rows)

    def write_operations(self, name: str, operations: Iterable[Row]) -> None:
        """Write operations on subscriptions for the job, see `subscribed` and `unsubscribed`."""
        _put(self._subscriptions, name, operations)

    def committed(self, *, ingested: Collection[str]) -> tuple[list[str], list[Update]]:
        """Return the files that the job has committed after those ingested last, and their updates in order.

        The rows of a file are in the order of its shard, and those of one subscription are in one file; equal seqs of
        several batches are in the order of batches. A stable sort by seq therefore gives the order of all updates.
        """
        files = self._updates.new(ingested=ingested)
        updates = [_update(row) for file in files for row in self._updates.rows_of(file)]
        return files, sorted(updates, key=lambda update: update.seq)


def _update(row: Row) -> Update:
    at = row.get("at")
    seconds = None if at is None else datetime.fromisoformat(at).timestamp()
    return Update(
        row["seq"], row["subscription"], row["message"], row["change"], row["score"], seconds, row.get("body")
    )


def check_json(name: str, format_: str) -> None:
    """Raise `InvalidInput` for a table of a job file that is not a folder of JSON lines."""
    rule = "must be json for a job that others write for and read from"
    require(format_ == "json", "format", rule, format_, subject=f"[{name}]")


def message_row(message: Message, *, op: str | None = None) -> Row:
    """Return the row that publishes a message, or replaces those under its id."""
    x, y = message.location
    at, expires_at = (None if time is None else _spelled(to_us(time)) for time in (message.at, message.expires_at))
    row: Row = {"id": message.id, "x": x, "y": y, "text": message.text, "at": at, "place": message.place}
    attributes = {name: _shortest(value) for name, value in (message.attributes or {}).items()}
    more = {"op": op, "expires_at": expires_at, "body": message.body, **attributes}
    return row | {name: value for name, value in more.items() if value is not None}


def _shortest(value: Any) -> Any:
    """Return a value of an attribute; an integer without a fraction, since Spark reads no 3.0 as one."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) <= LARGEST_INT else value


def retracted(id_: str, *, at_us: int | None) -> Row:
    """Return the row that retracts the messages under an id, at a time after theirs."""
    return {"op": RETRACT, "id": id_, "at": None if at_us is None else _spelled(at_us)}


def subscribed(subscription: Subscription, *, order: int) -> Row:
    """Return the row that subscribes; operations of one batch are applied in their order."""
    row = subscription.to_row()
    known = {name: row[name] for name in subscriptions_schema().names if name in row}
    if subscription.expires_at is not None:
        known["expires_at"] = _spelled(to_us(subscription.expires_at))
    return {"op": SUBSCRIBE, **known, "at": _spelled(order)}


def unsubscribed(id_: str, *, order: int) -> Row:
    """Return the row that unsubscribes."""
    return {"op": UNSUBSCRIBE, "id": id_, "at": _spelled(order)}


def _spelled(us: int) -> str:
    return (_EPOCH + timedelta(microseconds=us)).isoformat()


def _put(folder: Folder, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a file of JSON lines and wait until it is on disk."""
    folder.write(name, "".join(f"{json.dumps(row)}\n" for row in rows).encode())
    if isinstance(folder.files, fs.LocalFileSystem):
        for path in (Path(folder.path, name), Path(folder.path)):
            sync(path)
