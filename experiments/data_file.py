"""Data files: what was measured, where, on which commit and by which command.

    data/growth.json   {"boolean": {"command": …, "commit": …, "machine": …, "minutes": …, "load": …, "rows": [
                       {…},
                       {…}]},
                       "similarity": …}

A file holds one record per part of a question. A record is replaced as a whole when its part is measured again.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from experiments.question import Row

FOLDER = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Record:
    """The rows of one part, and how they came about."""

    command: str
    commit: str
    machine: str
    rows: list[Row]
    minutes: float | None = None
    """How long the measurement took, where that was recorded."""
    load: float | None = None
    """The load average of the machine when the measurement started, where that was recorded."""


def read_records(folder: Path, question: str) -> dict[str, Record]:
    """Return the records of a question by part, none if it has no data file."""
    path = folder / f"{question}.json"
    if not path.exists():
        return {}
    return {part: Record(**record) for part, record in json.loads(path.read_text()).items()}


def write_record(folder: Path, question: str, part: str, record: Record) -> None:
    """Put a record into the data file of a question; the file changes at once or not at all."""
    records = read_records(folder, question) | {part: record}
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{question}.json.{os.getpid()}"
    partial.write_text(to_json(records))
    partial.replace(folder / f"{question}.json")


def to_json(records: dict[str, Record]) -> str:
    """Return the content of a data file, one row per line."""
    parts = []
    for part, record in records.items():
        fields = {name: value for name, value in asdict(record).items() if name != "rows" and value is not None}
        rows = ",\n".join(map(json.dumps, record.rows))
        parts.append(f'{json.dumps(part)}: {json.dumps(fields)[:-1]}, "rows": [\n{rows}]}}')
    return "{" + ",\n".join(parts) + "}\n"
