"""The structures give the same results in plain Python, and never access memory outside their arrays."""

from pathlib import Path

import pytest

from modes import MODES, check_passes

STRUCTURES = [Path(__file__).with_name(f"test_{name}.py") for name in ("arena", "table", "postings")]


@pytest.mark.parametrize("mode", MODES)
def test_the_tests_of_the_structures_pass_with(mode):
    check_passes(mode, *STRUCTURES, NEARCAST_TEST_EXAMPLES="15")
