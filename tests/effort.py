"""How thoroughly tests search: `make soak` tries more than `make test`."""

import itertools
import os

import pytest

IS_SOAK = bool(os.environ.get("NEARCAST_SOAK"))


def effort(usual, soak):
    """Return how many examples, rounds or rows to try."""
    return soak if IS_SOAK else usual


def sampled(first, *others):
    """Return all combinations of lists as parameters; `make test` runs some, and the others are marked `soak`.

    The first value of the first list meets every combination of the others. Each further value meets one, and
    together they go through all combinations in turn.
    """
    combinations = list(itertools.product(*others))
    run = {(first[0], *combination) for combination in combinations}
    run |= {(value, *combinations[i % len(combinations)]) for i, value in enumerate(first[1:])}
    return [
        pytest.param(*values, marks=() if values in run else pytest.mark.soak)
        for values in itertools.product(first, *others)
    ]
