"""Measures questions and records the answers in data files.

    python -m experiments --list
    python -m experiments growth baselines/topk      all parts of one question, and one part of another
    python -m experiments all                        everything but the long ones

Every part is recorded as soon as it is measured, so that a run that is cut off loses only its last part.
`python -m experiments.pages` makes pages and plots of the data files.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from experiments.data_file import FOLDER, Record, write_record
from experiments.environment import describe_machine, repository_commit
from experiments.question import Question, report_progress
from experiments.registry import QUESTIONS

ALL = "all"


class UnknownName(ValueError):
    """A name is neither that of a question nor that of one of its parts."""


def select(names: Iterable[str], questions: Mapping[str, Question]) -> list[tuple[Question, str]]:
    """Return the parts that names stand for: a question, a question and its part, or `all`."""
    selected = []
    for name in names:
        if name == ALL:
            found = [question for question in questions.values() if not question.is_long]
            selected += [(question, part) for question in found for part in question.parts]
            continue
        question_name, _, part = name.partition("/")
        question = questions.get(question_name)
        if question is None:
            raise UnknownName(f"NAME must be {ALL} or one of {', '.join(questions)}; got {name!r}")
        if part and part not in question.parts:
            known = ", ".join(f"{question_name}/{one}" for one in question.parts)
            raise UnknownName(f"NAME must be {question_name} or one of {known}; got {name!r}")
        selected += [(question, one) for one in ([part] if part else question.parts)]
    return list(dict.fromkeys(selected))


def measure(question: Question, part: str, *, scale: float, folder: Path) -> None:
    """Measure one part and record it."""
    name = f"{question.name}/{part}"
    command = f"python -m experiments {name}" + (f" --scale {scale:g}" if scale != 1.0 else "")
    commit, load, started = repository_commit(), os.getloadavg()[0], time.monotonic()
    report_progress(f"== {name}")
    rows = question.parts[part](scale)
    minutes = (time.monotonic() - started) / 60
    record = Record(command, commit, describe_machine(), rows, minutes=round(minutes, 2), load=round(load, 2))
    write_record(folder, question.name, part, record)
    report_progress(f"== {name}: {minutes:.1f} minutes, recorded in {folder / question.name}.json")


def describe(questions: Mapping[str, Question]) -> str:
    """Return the list of questions with their parts and durations."""
    lines = []
    for question in questions.values():
        remark = f", not part of {ALL}" if question.is_long else ""
        lines.append(f"{question.name}: {question.asks}")
        lines.append(f"    about {question.minutes:g} minutes{remark}; parts: {', '.join(question.parts)}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"a question, a part as QUESTION/PART, or {ALL}")
    parser.add_argument("--list", action="store_true", help="list the questions and measure nothing")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies numbers of subscriptions and messages")
    parser.add_argument("--data", type=Path, default=FOLDER, metavar="FOLDER", help="the folder of data files")
    options = parser.parse_args(arguments)
    if options.list:
        print(describe(QUESTIONS))
        return 0
    if not options.names:
        parser.error(f"give the NAME of a question, or {ALL}; --list lists them")
    try:
        selected = select(options.names, QUESTIONS)
    except UnknownName as error:
        parser.error(str(error))
    for question, part in selected:
        measure(question, part, scale=options.scale, folder=options.data)
    return 0
