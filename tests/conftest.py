"""Fixtures that several folders of tests share."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from nearcast.testing import strategies

# A JVM that lives for seconds does not earn back the cost of its optimizing compiler and parallel collector. Its
# classes come from an archive, where `make check` could record one (tools/spark_classes.py).
_ARCHIVE = Path(sys.prefix) / "spark.jsa"
_JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
if _ARCHIVE.exists():
    _JVM_OPTIONS += f" -XX:SharedArchiveFile={_ARCHIVE} -Xshare:auto"
os.environ.setdefault("SPARK_SUBMIT_OPTS", _JVM_OPTIONS)

# On a busy machine an example may take any time.
settings.register_profile("nearcast", deadline=None)
settings.load_profile("nearcast")

_SPARK_SESSIONS = 2
"""Processes with a Spark session: starting one takes long, and one alone would run longer than everything else."""
_LONG = (
    "tests/spark/",
    "tests/extension/",
    "tests/cli/",
    "tests/test_examples.py",
    "tests/test_snippets.py",
    "tests/browser/",
    "tests/_jit/",
    "tests/properties/",
    "tests/service/test_serve_command.py",
    "tests/service/test_webhooks.py",
    "tests/jobs/",
)
"""The folders with the longest tests, which start first so that no process waits for them at the end."""


@pytest.hookimpl(tryfirst=True)  # before xdist distributes tests by their groups
def pytest_collection_modifyitems(items):
    """Start long tests first, run tests that use the Spark session in few processes, and leave out `soak` tests."""
    if not os.environ.get("NEARCAST_SOAK"):
        items[:] = [item for item in items if item.get_closest_marker("soak") is None]
    items.sort(key=lambda item: next((i for i, part in enumerate(_LONG) if part in item.nodeid), len(_LONG)))
    with_session = [item for item in items if "spark" in getattr(item, "fixturenames", ())]
    for i, item in enumerate(with_session):
        item.add_marker(pytest.mark.xdist_group(f"spark {i % _SPARK_SESSIONS}"))
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("browser"))  # each process would start its own, with a service


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    from nearcast.spark.settings import session

    made = session(
        shards=2,
        master="local[2]",
        app_name="nearcast-tests",
        settings={
            "spark.ui.enabled": "false",
            # Spark sets a variable for this in some stages only, and each environment gets workers of its own.
            "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.log.level": "ERROR",
        },
    )
    yield made
    made.stop()


@pytest.fixture(scope="session")
def random_fields():
    """Draw the fields of a subscription from a `random.Random`."""

    def draw(kind, space, rng):
        if kind == "boolean":
            (x1, y1), (x2, y2) = rng.choices(strategies.GRID[space], k=2)
            words = rng.choices(strategies.TERMS, k=rng.randint(1, 4))
            joined = words[0] + "".join(rng.choice([" AND ", " OR ", " "]) + word for word in words[1:])
            return {"region": (min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)), "keywords": joined}
        extra = {
            "similarity": {"delta": rng.choice(strategies.SHARES), "tau": rng.choice(strategies.SHARES)},
            "topk": {"k": rng.randint(1, 4), "alpha": rng.choice(strategies.SHARES)},
            "nearest": {"k": rng.randint(1, 4)},
            "social": {"k": rng.randint(1, 4), "user": rng.choice(strategies.USERS)},
        }
        words = rng.choices(strategies.TERMS, k=rng.randint(1, 4))
        return {"location": rng.choice(strategies.GRID[space]), "keywords": words, **extra[kind]}

    return draw
