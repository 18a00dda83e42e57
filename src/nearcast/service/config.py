"""What world is served? Space, window and words: what an engine is made of, noted in the journal when it is new."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from nearcast.engine import Engine
from nearcast.errors import require
from nearcast.space import Box, Space
from nearcast.spark.background import common_terms, social_of, vocabulary_of
from nearcast.spark.job_client import JobClient
from nearcast.spark.plan import Plan, WindowTable, read_plan
from nearcast.window import CountWindow, TimeWindow, WindowPolicy

_MOST_SHOWN = 200  # words, and people, that a page offers


@dataclass(frozen=True)
class ServiceConfig:
    """How the engine of a service is set up.

    >>> ServiceConfig(bounds=(0, 0, 1, 1), window_count=100).engine().stats().subscriptions
    0
    """

    bounds: tuple[float, float, float, float] | None = None
    metric: str = "euclidean"
    max_distance: float | None = None
    city: int | None = None
    """The seed of a generated city, whose space, words and people these are then."""
    window_count: int | None = None
    window_seconds: float | None = None
    workers: int = 1
    partitioner: str = "hash"
    job: str | None = None
    """The file of a job on Spark that keeps the answers, and says all of the above."""

    @classmethod
    def of_job(cls, file: Path) -> ServiceConfig:
        """Return the world of a job."""
        plan = read_plan(file)
        space, window = plan.space.space(), plan.window or WindowTable()
        return cls(
            bounds=space.bounds.as_tuple(),
            metric=space.metric,
            max_distance=space.max_distance,
            window_count=window.count,
            window_seconds=window.seconds,
            workers=plan.match.shards,
            partitioner=plan.match.partitioner,
            job=str(file.absolute()),
        )

    def __post_init__(self) -> None:
        given = [name for name in ("bounds", "city") if getattr(self, name) is not None]
        require(len(given) == 1, "bounds", "must be given, or a city, and not both", given, subject="world")
        windows = [name for name in ("window_count", "window_seconds") if getattr(self, name) is not None]
        require(len(windows) < 2, "window", "must be a count or seconds", windows, subject="world")

    @property
    def window(self) -> WindowPolicy | None:
        """How long messages stay."""
        if self.window_count is not None:
            return CountWindow(self.window_count)
        return None if self.window_seconds is None else TimeWindow(self.window_seconds)

    @property
    def needs_time(self) -> bool:
        """Whether every message must have a time: where it expires by time, or a job puts it in order by time."""
        return self.window_seconds is not None or self.job is not None

    @property
    def plan(self) -> Plan:
        """The job."""
        assert self.job is not None
        return read_plan(self.job)

    def check(self) -> None:
        """Raise `InvalidInput` for what no engine can be made of, and no job can be."""
        if self.job is not None:
            JobClient(self.plan)
        self.engine().close()

    def engine(self) -> Engine:
        """Return an engine of this world, without subscriptions; where a job has them, with one worker."""
        if self.job is not None:
            return self.plan.job(vocabulary=vocabulary_of(self.plan), social=social_of(self.plan)).new_engine()
        how: dict[str, Any] = {"window": self.window, "workers": self.workers, "partitioner": self.partitioner}
        if self.city is not None:
            from nearcast.workload.city import City

            city = City(seed=self.city)
            return Engine(space=city.space, vocabulary=city.vocabulary(), social=city.social, **how)
        return Engine(space=self.space, **how)

    @cached_property
    def space(self) -> Space:
        """Where everything is."""
        if self.city is not None:
            from nearcast.workload.city import City

            return City(seed=self.city).space
        assert self.bounds is not None
        return Space(
            Box(*self.bounds),
            metric=self.metric,
            **({} if self.max_distance is None else {"max_distance": self.max_distance}),
        )

    def described(self) -> dict[str, Any]:
        """Say where everything is and what is talked about, for who looks at it."""
        space = self.space
        words, people = self._talk
        return {
            "bounds": list(space.bounds.as_tuple()),
            "metric": space.metric,
            "max_distance": space.max_distance,
            "window_count": self.window_count,
            "window_seconds": self.window_seconds,
            "words": words,
            "people": people,
            "partitioner": self.partitioner,
        }

    @cached_property
    def _talk(self) -> tuple[list[str], list[str]]:
        """Some words that are said, and some people who have friends."""
        if self.city is not None:
            from nearcast.workload.city import OCCASIONS, TRADES, City

            words = sorted({*OCCASIONS, *(word for _, said in TRADES.values() for word in said)})
            return words, [str(user) for user in City(seed=self.city).social.users]
        if self.job is None:
            return [], []
        graph = social_of(self.plan)
        people = [] if graph is None else [str(user) for user in islice(graph.users, _MOST_SHOWN)]
        return sorted(common_terms(self.plan, _MOST_SHOWN)), people

    def noted(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}

    @classmethod
    def read(cls, noted: dict[str, Any]) -> ServiceConfig:
        """Read what was noted."""
        bounds = noted["bounds"]
        return cls(**{**noted, "bounds": None if bounds is None else tuple(bounds)})

    def check_same(self, noted: dict[str, Any]) -> None:
        """Raise `InvalidInput` if another world was noted."""
        for name, value in self.noted().items():
            was = noted.get(name)
            require(value == was, name, f"must be {was!r}, as the data folder was made with", value, subject="world")
