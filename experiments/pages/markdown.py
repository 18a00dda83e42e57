"""Pieces of Markdown: paragraphs, tables, and the statement of where numbers come from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from textwrap import fill
from typing import Any

from experiments.data_file import Record

_WIDTH = 120
_CODE = re.compile(r"`[^`]*`")
_UNBROKEN = "\x00"


def paragraph(*sentences: str) -> str:
    """Return sentences as a paragraph with short lines; code is not broken."""
    text = " ".join(sentence for sentence in sentences if sentence)
    text = _CODE.sub(lambda code: code[0].replace(" ", _UNBROKEN), text)
    return fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False).replace(_UNBROKEN, " ")


def table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table.

    >>> print(table(["a", "b"], [[1, "x"]]))
    | a | b |
    |---|---|
    | 1 | x |
    """
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows)])


def join(*blocks: str) -> str:
    """Return blocks one below the other, without the empty ones."""
    return "\n\n".join(block for block in blocks if block)


def provenance(*records: Record) -> str:
    """State commit, machine and commands of records, and where they are recorded, durations and loads."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.commit, record.machine), []).append(record)
    return paragraph(*(_origin(commit, machine, found) for (commit, machine), found in groups.items()))


def _origin(commit: str, machine: str, records: list[Record]) -> str:
    text = f"Measured at commit {commit} on {machine}, by {listed([f'`{record.command}`' for record in records])}"
    minutes = [record.minutes for record in records if record.minutes is not None]
    loads = [f"{load:.1f}" for load in sorted(record.load for record in records if record.load is not None)]
    if len(minutes) == len(loads) == len(records):
        load = loads[0] if loads[0] == loads[-1] else f"{loads[0]} to {loads[-1]}"
        text += f", in {sum(minutes):.1f} minutes with a load average of {load} at the start"
    return f"{text}."


def listed(words: Iterable[str]) -> str:
    """Return words as a list in a sentence.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
