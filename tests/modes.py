"""How else must tests of kernels pass? In processes of their own, uncompiled and with checked bounds."""

import os
import subprocess
import sys
from pathlib import Path

MODES = {
    "uncompiled": {"NUMBA_DISABLE_JIT": "1"},
    # Bounds are checked at any level of optimisation, and less of it takes less time to compile. At level 0 Numba
    # leaves addresses in the code, which then cannot be kept for the next run.
    "checked": {"NUMBA_BOUNDSCHECK": "1", "NUMBA_OPT": "1"},
}


def check_passes(mode, *files, **environment):
    """Run test files in a mode, and show what they print if one of them fails."""
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-x", *files],
        env=os.environ | MODES[mode] | environment,
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
