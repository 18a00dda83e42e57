"""Measures questions again and compares them with the committed data: `make bench-check`.

    python -m experiments.check                    the headline
    python -m experiments.check growth/topk        a part of another question

Rows are compared by what was measured. The data files stay as they are; a ratio below 0.9 is marked.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from experiments.command_line import UnknownName, measure, select
from experiments.data_file import FOLDER, read_records
from experiments.question import Row
from experiments.registry import QUESTIONS

RATE = "messages_per_second"
SLOWER = 0.9
"""The ratio below which a row is marked."""


def compared(before: Sequence[Row], after: Sequence[Row]) -> Iterator[str]:
    """Yield a line for each row that gives a rate, with the ratio of the new one to the old one.

    >>> rows = [[{"kind": "boolean", "messages_per_second": rate}] for rate in (200_000, 150_000)]
    >>> list(compared(*rows))
    ['boolean: 200,000 before, 150,000 now, ratio 0.75, slower']
    """
    rates = {_label(row): row[RATE] for row in before if RATE in row}
    for row in after:
        if RATE in row and (label := _label(row)) in rates:
            ratio = row[RATE] / rates[label]
            mark = ", slower" if ratio < SLOWER else ""
            yield f"{label}: {rates[label]:,.0f} before, {row[RATE]:,.0f} now, ratio {ratio:.2f}{mark}"


def _label(row: Row) -> str:
    """Return what names a row: its command, or else its words."""
    return str(row.get("command") or " ".join(value for value in row.values() if isinstance(value, str)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and compare."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=["headline"], metavar="NAME", help="a question or QUESTION/PART")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies numbers of subscriptions and messages")
    parser.add_argument("--data", type=Path, default=FOLDER, metavar="FOLDER", help="the folder of data files")
    options = parser.parse_args(arguments)
    try:
        selected = select(options.names, QUESTIONS)
    except UnknownName as error:
        parser.error(str(error))
    with TemporaryDirectory() as folder:
        for question, part in selected:
            measure(question, part, scale=options.scale, folder=Path(folder))
            before = read_records(options.data, question.name).get(part)
            if before is None:
                print(f"{question.name}/{part}: not measured before", flush=True)
                continue
            print(f"{question.name}/{part}, against commit {before.commit}:", flush=True)
            for line in compared(before.rows, read_records(Path(folder), question.name)[part].rows):
                print(f"  {line}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
