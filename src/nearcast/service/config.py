"""Configuration of a service: space, window, clock and vocabulary. The journal of a new folder records it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from nearcast.engine import Engine
from nearcast.engine.clock import CLOCKS, ClockName
from nearcast.engine.clocked_engine import ClockedEngine
from nearcast.errors import require
from nearcast.jobs.client import JobClient
from nearcast.jobs.inputs import common_terms, hash_key_of, social_of, vocabulary_of
from nearcast.jobs.job_file import JobFile, WindowTable, read_job_file
from nearcast.model import Attributes
from nearcast.partition.balance.policy import Balance
from nearcast.space import Box, Space
from nearcast.text import new_hash_key
from nearcast.window import CountWindow, TimeWindow, WindowPolicy

_MAX_SUGGESTIONS = 200  # terms, and users, that the live map suggests
_UNRECORDED = {
    "clock": "event",
    "analyzer": "simple",
    "attributes": {},
}  # what folders mean that were created before there was a choice


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
    """The seed of a generated city, which then defines space, vocabulary and social graph."""
    window_count: int | None = None
    window_seconds: float | None = None
    clock: ClockName | None = None
    """What moves `now`: the clock of the service, which is the default with a time window, or the messages."""
    analyzer: str = "simple"
    """How text becomes terms."""
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The attributes of messages, by name and type, which `where` may test."""
    workers: int = 1
    partitioner: str = "hash"
    balance: float | None = None
    """Adjust the division of the work when the busiest worker does more than so many times the work of the idlest."""
    job: str | None = None
    """The file of a job on Spark that computes the results; it defines all of the above."""
    hash_key: str | None = field(default=None, repr=False)
    """The key under which the engine hashes terms and ids, in hex; a data folder draws its own."""

    @classmethod
    def of_job(cls, file: Path, *, clock: ClockName | None = None) -> ServiceConfig:
        """Return the configuration of a service beside a job, which has a clock of its own."""
        job_file = read_job_file(file)
        space, window = job_file.space.space(), job_file.window or WindowTable()
        return cls(
            bounds=space.bounds.as_tuple(),
            metric=space.metric,
            max_distance=space.max_distance,
            window_count=window.count,
            window_seconds=window.seconds,
            clock=clock,
            analyzer=job_file.match.analyzer,
            attributes=job_file.match.attributes,
            workers=job_file.match.shards,
            partitioner=job_file.match.partitioner,
            job=str(file.absolute()),
        )

    def __post_init__(self) -> None:
        given = [name for name in ("bounds", "city") if getattr(self, name) is not None]
        require(len(given) == 1, "bounds", "or city must be given, and not both", given, subject="config")
        windows = [name for name in ("window_count", "window_seconds") if getattr(self, name) is not None]
        require(len(windows) < 2, "window", "must be a count or seconds, not both", windows, subject="config")
        if self.clock is None:
            object.__setattr__(self, "clock", "wall")
        object.__setattr__(self, "attributes", Attributes.of(self.attributes).to_json())
        require(self.clock in CLOCKS, "clock", f"must be one of {', '.join(CLOCKS)}", self.clock, subject="config")

    @property
    def window(self) -> WindowPolicy | None:
        """How long messages stay in the window; None without a window."""
        if self.window_count is not None:
            return CountWindow(self.window_count)
        return None if self.window_seconds is None else TimeWindow(self.window_seconds)

    @property
    def needs_time(self) -> bool:
        """True if every message needs a time: messages expire by time, or a job orders them by time."""
        return self.window_seconds is not None or self.job is not None

    @property
    def advances(self) -> bool:
        """True if the service moves `now` by its clock; beside a job, the job does."""
        return self.clock == "wall" and self.job is None

    @property
    def engine_class(self) -> type[Engine]:
        """The class of the engine."""
        return ClockedEngine if self.advances else Engine

    @property
    def job_file(self) -> JobFile:
        """The job file."""
        assert self.job is not None
        return read_job_file(self.job)

    def check(self) -> None:
        """Raise `InvalidInput` if no engine can be made from it, or no service can run beside its job."""
        if self.job is not None:
            JobClient(self.job_file)
        self.engine().close()

    def engine(self) -> Engine:
        """Return a new engine without subscriptions; beside a job it has one worker."""
        if self.job is not None:
            job_file = self.job_file
            vocabulary, social = vocabulary_of(job_file), social_of(job_file)
            return job_file.job(vocabulary=vocabulary, social=social, hash_key=hash_key_of(job_file)).new_engine()
        options: dict[str, Any] = {
            name: getattr(self, name) for name in ("window", "analyzer", "attributes", "workers", "partitioner")
        }
        options["balance"] = None if self.balance is None else Balance(sigma=self.balance)
        options["hash_key"] = None if self.hash_key is None else bytes.fromhex(self.hash_key)
        if self.city is not None:
            from nearcast.workload.city import City

            city = City(seed=self.city)
            return self.engine_class(space=city.space, vocabulary=city.vocabulary(), social=city.social, **options)
        return self.engine_class(space=self.space, **options)

    @cached_property
    def space(self) -> Space:
        """The space of messages and subscriptions."""
        if self.city is not None:
            from nearcast.workload.city import City

            return City(seed=self.city).space
        assert self.bounds is not None
        return Space(
            Box(*self.bounds),
            metric=self.metric,
            **({} if self.max_distance is None else {"max_distance": self.max_distance}),
        )

    def describe(self) -> dict[str, Any]:
        """Return the configuration as clients see it, with suggestions of terms and users."""
        space = self.space
        terms, users = self._suggestions
        return {
            "bounds": list(space.bounds.as_tuple()),
            "metric": space.metric,
            "max_distance": space.max_distance,
            "window_count": self.window_count,
            "window_seconds": self.window_seconds,
            "terms": terms,
            "users": users,
            "partitioner": self.partitioner,
            "analyzer": self.analyzer,
            "attributes": self.attributes,
        }

    @cached_property
    def _suggestions(self) -> tuple[list[str], list[str]]:
        """Some frequent terms, and some users of the social graph."""
        if self.city is not None:
            from nearcast.workload.city import OCCASIONS, TRADES, City

            terms = sorted({*OCCASIONS, *(word for _, words in TRADES.values() for word in words)})
            return terms, [str(user) for user in City(seed=self.city).social.users]
        if self.job is None:
            return [], []
        graph = social_of(self.job_file)
        users = [] if graph is None else [str(user) for user in islice(graph.users, _MAX_SUGGESTIONS)]
        return sorted(common_terms(self.job_file, _MAX_SUGGESTIONS)), users

    def with_new_key(self) -> ServiceConfig:
        """Return the configuration with a key that nobody can guess."""
        return replace(self, hash_key=new_hash_key().hex())

    def to_json(self) -> dict[str, Any]:
        """Return the configuration as the journal records it."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}

    @classmethod
    def from_json(cls, recorded: dict[str, Any]) -> ServiceConfig:
        """Return a configuration that the journal recorded."""
        bounds = recorded["bounds"]
        return cls(**{**_UNRECORDED, **recorded, "bounds": None if bounds is None else tuple(bounds)})

    def check_same(self, recorded: dict[str, Any]) -> None:
        """Raise `InvalidInput` if the journal recorded another configuration; the key is its own."""
        for name, value in self.to_json().items():
            if name == "hash_key":
                continue
            first = recorded.get(name, _UNRECORDED.get(name))
            rule = f"must be {first!r}, as the data folder was created with"
            require(value == first, name, rule, value, subject="config")
