"""The examples run, and the README shows their real output."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from nearcast.model import KINDS

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.name)
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
