"""The structures give the same answers as plain Python, and never reach outside their arrays."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
STRUCTURES = [HERE / f"test_{name}.py" for name in ("arena", "table", "heap", "postings")]


@pytest.mark.parametrize("mode", ["NUMBA_DISABLE_JIT", "NUMBA_BOUNDSCHECK"])
def test_the_structures_pass_their_tests_with(mode):
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *STRUCTURES],
        env=os.environ | {mode: "1", "NEARCAST_TEST_EXAMPLES": "15"},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stdout + run.stderr
