"""No identifier contains a word that the glossary retires, and every class name is unique."""

import ast
import io
import re
import tokenize
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = [
    folder for name in ("src", "tests", "experiments", "examples", "tools") if (folder := ROOT / name).is_dir()
]
FILES = sorted(path for folder in FOLDERS for path in folder.rglob("*.py"))
OF_LIBRARIES = {"BarColumn", "bar", "barh"}
"""Names of libraries: progress bars of rich, bars of matplotlib."""
_PART = re.compile(r"[a-z]+|[A-Z][a-z]*|[A-Z]+(?![a-z])")


def retired_words():
    """Return the first column of the last table of the glossary, and the plurals."""
    rows = (ROOT / "docs" / "glossary.md").read_text().partition("## Retired words")[2].splitlines()
    cells = [row.split("|")[1] for row in rows if row.startswith("|")][2:]
    words = {word.strip() for cell in cells for word in cell.split(",")}
    return words | {f"{word}s" for word in words}


RETIRED = retired_words()


def identifiers(path):
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type == tokenize.NAME:
            yield token.string, token.start[0]


def test_the_glossary_is_parsed():
    assert {"told", "cohort", "keeper", "steward", "crowd", "befriend"} <= RETIRED


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_identifier_holds_a_retired_word(path):
    found = {
        f"{name} (line {line})"
        for name, line in identifiers(path)
        if name not in OF_LIBRARIES and RETIRED & {part.lower() for part in _PART.findall(name)}
    }
    assert not found


def test_every_class_name_is_unique():
    places = defaultdict(list)
    for path in (ROOT / "src" / "nearcast").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert not {name: found for name, found in places.items() if len(found) > 1}
