"""How thoroughly tests search: `make soak` and `make fuzz` try more than `make test`."""

import itertools
import os

import pytest
from hypothesis import HealthCheck, Phase, settings

IS_SOAK = bool(os.environ.get("NEARCAST_SOAK"))
FUZZ_SECONDS = float(os.environ.get("NEARCAST_FUZZ_SECONDS", "0"))
"""The time of the processor for each property of `tests/fuzz`, set by `make fuzz`; 0 for one round of examples."""


def effort(usual, soak):
    """Return how many examples, rounds or rows to try."""
    return soak if IS_SOAK else usual


def search(usual, soak=300):
    """Return how a property of `tests/fuzz` is searched: the same examples in every `make test`, new ones in `make fuzz`.

    Explicit examples are findings of earlier searches, which `make test` tries and a new search does not need.
    """
    return settings(
        max_examples=effort(usual, soak),
        derandomize=not IS_SOAK,
        database=None,
        phases=[phase for phase in Phase if not (IS_SOAK and phase is Phase.explicit)],
        suppress_health_check=list(HealthCheck),
    )


def sampled(first, *others, soak=(), part=(0, 1)):
    """Return all combinations of lists as parameters; `make test` runs some, and the others are marked `soak`.

    The first value of the first list meets every combination of the others. Each further value meets one, and
    together they go through all combinations in turn. Values in `soak` are left to `make soak`. With `part=(i, n)`
    only every n-th further value runs, from the i-th on: n tests of the same values divide them among each other.
    """
    combinations = list(itertools.product(*others))
    run = {(first[0], *combination) for combination in combinations}
    chosen, n_parts = part
    further = first[1:][chosen::n_parts]
    run |= {(value, *combinations[i % len(combinations)]) for i, value in enumerate(further)}
    return [
        pytest.param(*values, marks=() if values in run and values[0] not in soak else pytest.mark.soak)
        for values in itertools.product(first, *others)
    ]


def in_soak(values):
    """Return values as parameters that only `make soak` runs."""
    return [pytest.param(*value, marks=pytest.mark.soak) for value in values]
