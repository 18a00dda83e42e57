"""What several test files draw from."""

import os

import pytest

from nearcast.testing import strategies as world

# A JVM that lives for seconds does not earn back what its optimizing compiler and a parallel collector take.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

_LONG = ("tests/spark/", "tests/cli/", "tests/test_examples.py", "tests/browser/", "tests/jit/")
"""What takes longest, or has to run in one process: begun first, so that nobody waits for it at the end."""


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: next((i for i, part in enumerate(_LONG) if part in item.nodeid), len(_LONG)))


@pytest.fixture(scope="session")
def random_fields():
    """Draw the fields of a subscription from a `random.Random`."""

    def draw(kind, space, rng):
        if kind == "boolean":
            (x1, y1), (x2, y2) = rng.choices(world.GRID[space], k=2)
            words = rng.choices(world.TERMS, k=rng.randint(1, 4))
            joined = words[0] + "".join(rng.choice([" AND ", " OR ", " "]) + word for word in words[1:])
            return {"region": (min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)), "keywords": joined}
        extra = {
            "similarity": {"delta": rng.choice(world.SHARES), "tau": rng.choice(world.SHARES)},
            "topk": {"k": rng.randint(1, 4), "alpha": rng.choice(world.SHARES)},
            "nearest": {"k": rng.randint(1, 4)},
            "social": {"k": rng.randint(1, 4), "user": rng.choice(world.USERS)},
        }
        words = rng.choices(world.TERMS, k=rng.randint(1, 4))
        return {"location": rng.choice(world.GRID[space]), "keywords": words, **extra[kind]}

    return draw
