"""The examples run, and the README shows their real output."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from nearcast.model import KINDS

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


# The snippet of the README runs the same pipeline; `make soak` runs the longer example too.
_ON_SPARK = {"spark_stream.py"}


@pytest.mark.parametrize(
    "example",
    [pytest.param(p, id=p.name, marks=pytest.mark.soak if p.name in _ON_SPARK else ()) for p in EXAMPLES],
)
def test_an_example_runs(example):
    ran = subprocess.run([sys.executable, "-W", "error", example], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout


def test_there_is_an_example_for_every_kind():
    assert {kind.kind for kind in KINDS} <= {example.stem for example in EXAMPLES}


def test_the_readme_shows_the_real_output():
    blocks = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    assert blocks, "README shows code with its output"
    for code, output in blocks:
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.strip() == output.strip()
