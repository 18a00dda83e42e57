"""Further modes in which tests of kernels must pass, each in its own process: uncompiled, and with checked bounds."""

import os
import subprocess
import sys
from pathlib import Path

MODES = {
    "uncompiled": {"NUMBA_DISABLE_JIT": "1"},
    # Bounds are checked at any level of optimisation, and a lower one compiles faster. At level 0 Numba leaves addresses
    # in the code, which then cannot be cached.
    "checked": {"NUMBA_BOUNDSCHECK": "1", "NUMBA_OPT": "1"},
}


def check_passes(mode, *files, **environment):
    """Run test files in a mode; the assertion shows their output if one of them fails."""
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-x", *files],
        env=os.environ | MODES[mode] | environment,
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
