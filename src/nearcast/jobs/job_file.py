"""Job files: a job in TOML, checked; an error names the key, the rule and the value.

    [space]          bounds, metric, max_distance
    [vocabulary]     file | learn, rows                 [window]   count | seconds
    [social]         file                    [match]   shards, max_shards, partitioner | routing, text_similarity, ...
    [messages]       format, path, options, schema, select        [updates]    format, path, options, select
    [subscriptions]  the same, static                             [rejected]   the same
    [edges]          the same
    [balance]        sigma, selection, every, load, refit_every, refit_gain, retire_below, most_moved
    [run]            checkpoint, state, trigger, clock, max_ahead

Paths are relative to the file, so that a job can be moved as a folder. Reading a job file runs nothing.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from nearcast.engine import EngineConfig
from nearcast.engine.clock import ClockName
from nearcast.errors import InvalidInput, StateError, require
from nearcast.jobs.epochs import EpochLog
from nearcast.jobs.job import Job
from nearcast.model import Attributes
from nearcast.partition.balance.policy import Balance
from nearcast.social import SocialGraph
from nearcast.space import Box, Space
from nearcast.text import HashKey, Vocabulary
from nearcast.window import CountWindow, TimeWindow, WindowPolicy

FILES = ("json", "csv", "parquet", "orc")
"""File formats without a schema of their own."""
BLOCKS = "arrow"
"""The format of files that are blocks of messages; see `block`."""
AVAILABLE_NOW = "available now"

_INTERVAL = re.compile(r"(\d+ (millisecond|second|minute|hour|day)s?( |$))+")
_URI = re.compile(r"[A-Za-z][\w+.-]*:/")


@dataclass(frozen=True)
class SpaceTable:
    """The space."""

    bounds: list[float]
    metric: Literal["euclidean", "haversine"] = "euclidean"
    max_distance: float | None = None

    def space(self) -> Space:
        """Return the space."""
        require(len(self.bounds) == 4, "bounds", "must be [xmin, ymin, xmax, ymax]", self.bounds, subject="[space]")
        given = {} if self.max_distance is None else {"max_distance": self.max_distance}
        return Space(Box(*self.bounds), metric=self.metric, **given)


@dataclass(frozen=True)
class VocabularyTable:
    """The source of term weights: a file of counts, or a sample of texts to count."""

    file: str | None = None
    """JSON: {"documents": N, "frequencies": {term: n}} or {"weights": {term: w}}."""
    learn: str | None = None
    """A file or folder in the format of the messages, whose texts are counted when the job first starts."""
    rows: int = 100_000
    """The most texts to count."""

    def __post_init__(self) -> None:
        given = [name for name in ("file", "learn") if getattr(self, name) is not None]
        require(len(given) == 1, "vocabulary", "must have one of file and learn", given)
        require(self.rows >= 1, "rows", "must be 1 or more", self.rows)


@dataclass(frozen=True)
class WindowTable:
    """The window: a number of messages, or of seconds."""

    count: int | None = None
    seconds: float | None = None

    def window(self) -> WindowPolicy:
        """Return the window."""
        given = [name for name in ("count", "seconds") if getattr(self, name) is not None]
        require(len(given) == 1, "window", "must have one of count and seconds", given, subject="[window]")
        return CountWindow(self.count) if self.count is not None else TimeWindow(self.seconds or 0.0)


@dataclass(frozen=True)
class SocialTable:
    """The social graph."""

    file: str
    """CSV, JSON lines or Parquet with the columns user and place."""


@dataclass(frozen=True)
class MatchTable:
    """Options of the match; the defaults are those of `nearcast.Engine`."""

    shards: int = 2
    """The number of shards; a start with another number, or `nearcast rescale`, moves subscriptions."""
    threads: int = 1
    """The number of threads of each shard, which share its window."""
    max_shards: int | None = None
    """The number of Spark tasks that shards are divided among, by default `shards`; it never changes."""
    partitioner: str = "hash"
    routing: str | None = None
    """Instead of a partitioner: a file from `nearcast advise --save`."""
    text_similarity: str = "containment"
    analyzer: str = "simple"
    """How text becomes terms."""
    bodies: bool = False
    """True to keep the bodies of messages, and to return them with updates."""
    attributes: dict[str, str] = field(default_factory=dict)
    """The attributes of messages, by name and type: { price = "float", category = "str" }."""
    index: str = "auto"

    def __post_init__(self) -> None:
        ok = self.routing is None or self.partitioner == MatchTable.partitioner
        require(ok, "routing", "must be left out where a partitioner is named", self.routing)


@dataclass(frozen=True)
class SourceTable:
    """A source of rows: any format that Spark can stream."""

    format: str
    path: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    schema: str | None = None
    """The columns of the source in Spark's syntax ("lon double, ..."); by default those that Nearcast knows."""
    select: list[str] = field(default_factory=list)
    """SQL expressions that compute the columns that Nearcast knows ("lon AS x")."""

    def __post_init__(self) -> None:
        _check_place(self)


@dataclass(frozen=True)
class SubscriptionsTable(SourceTable):
    """The source of subscriptions: a stream, or a table."""

    static: bool = False
    """True for a table that is read when the job starts and on request, in any format that Spark can read."""


@dataclass(frozen=True)
class SinkTable:
    """A sink of rows: any format that Spark can stream to."""

    format: str
    path: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    select: list[str] = field(default_factory=list)
    """SQL expressions that compute the columns of the sink ("to_json(struct(*)) AS value").

    By default a sink gets the columns as they are; for Kafka, the subscription as key and the row as JSON.
    """

    def __post_init__(self) -> None:
        _check_place(self)


@dataclass(frozen=True)
class RunTable:
    """How the job runs."""

    checkpoint: str
    state: str | None = None
    """A folder for the state of the shards, if it must not be in the checkpoint folder."""
    trigger: str = "1 second"
    """An interval, or "available now": process everything that is there, then stop."""
    clock: Literal["wall", "event"] | None = None
    """What moves `now`; by default the clock of the job, if there is a window of seconds and an interval."""
    max_ahead: float | None = None
    """How many seconds messages may be ahead of the clock of the job."""

    def __post_init__(self) -> None:
        ok = self.trigger == AVAILABLE_NOW or _INTERVAL.fullmatch(self.trigger) is not None
        require(ok, "trigger", f"must be {AVAILABLE_NOW!r} or an interval such as '5 seconds'", self.trigger)


@dataclass(frozen=True)
class JobFile:
    """A whole job."""

    space: SpaceTable
    messages: SourceTable
    subscriptions: SubscriptionsTable
    updates: SinkTable
    run: RunTable
    vocabulary: VocabularyTable | None = None
    window: WindowTable | None = None
    social: SocialTable | None = None
    edges: SourceTable | None = None
    match: MatchTable = field(default_factory=MatchTable)
    balance: Balance | None = None
    rejected: SinkTable | None = None
    file: Path = field(default_factory=lambda: Path("job.toml"))
    """The job file; paths are relative to its folder."""

    def __post_init__(self) -> None:
        self.job()  # raises for options that no engine accepts
        for key in ("schema", "select") if self.messages.format == BLOCKS else ():
            value = getattr(self.messages, key)
            require(not value, key, f"must be left out for the format {BLOCKS!r}", value, subject="[messages]")
        tables = ("messages", "subscriptions", "edges", "updates", "rejected")
        given = {f"[{name}]": getattr(self, name) for name in tables}
        places = {subject: table.path for subject, table in given.items() if table is not None and table.path}
        own = [path for path in (self.run.checkpoint, self.run.state) if path is not None]
        taken = Counter(map(self.resolve, [*places.values(), *own]))
        for subject, path in places.items():
            rule = "must be a place that no other table of the job has"
            require(taken[self.resolve(path)] == 1, "path", rule, path, subject=subject)

    def resolve(self, path: str) -> str:
        """Return a path of the file as an absolute path."""
        return path if _URI.match(path) else str((self.file.parent / path).absolute())

    @property
    def state_folder(self) -> str:
        """The folder of the shards' state."""
        run = self.run
        return f"{self.resolve(run.checkpoint)}/state" if run.state is None else self.resolve(run.state)

    def config(
        self,
        *,
        vocabulary: Vocabulary | None = None,
        social: SocialGraph | None = None,
        hash_key: HashKey | None = None,
    ) -> EngineConfig:
        """Return the configuration of an engine for this job, given what lies in other files."""
        return EngineConfig.of(
            {
                "space": self.space.space(),
                "vocabulary": vocabulary,
                "window": None if self.window is None else self.window.window(),
                "social": social,
                "text_similarity": self.match.text_similarity,
                "analyzer": self.match.analyzer,
                "bodies": self.match.bodies,
                "attributes": self.attributes,
                "index": self.match.index,
                "hash_key": hash_key,
            }
        )

    def job(
        self,
        *,
        vocabulary: Vocabulary | None = None,
        social: SocialGraph | None = None,
        hash_key: HashKey | None = None,
    ) -> Job:
        """Return the job, given what lies in other files."""
        config = self.config(vocabulary=vocabulary, social=social, hash_key=hash_key)
        run = self.run
        return Job(
            config,
            self.match.partitioner,
            self.match.shards,
            threads=self.match.threads,
            tasks=self.tasks,
            clock=self.clock,
            max_ahead_s=run.max_ahead,
            has_edges=self.edges is not None,
            balance=self.balance,
        )

    @property
    def attributes(self) -> Attributes:
        """The attributes of messages."""
        return Attributes.of(self.match.attributes)

    @property
    def tasks(self) -> int:
        """The number of Spark tasks that shards are divided among: that of the first start."""
        begun = EpochLog(self.state_folder).newest()
        if begun is not None:
            return begun.tasks
        return self.match.shards if self.match.max_shards is None else self.match.max_shards

    @property
    def clock(self) -> ClockName:
        """What moves `now`."""
        if self.run.clock is not None:
            return self.run.clock
        has_seconds = self.window is not None and self.window.seconds is not None
        return "wall" if has_seconds and self.run.trigger != AVAILABLE_NOW else "event"


def read_job_file(file: str | Path) -> JobFile:
    """Read a job file."""
    path = Path(file)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StateError(f"{path} must be a job file: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StateError(f"{path} must be TOML: {error}") from None
    except RecursionError:
        raise StateError(f"{path} must be TOML: it nests too deeply") from None
    with naming(path):
        return make_job_file(content, file=path)


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Add the name of the job file to errors."""
    try:
        yield
    except InvalidInput as error:
        raise error.about(f"{error.subject}, {file}" if error.subject else str(file)) from None


def make_job_file(content: Mapping[str, Any], *, file: Path) -> JobFile:
    """Return a job file that was parsed.

    >>> make_job_file({"space": {"bounds": [0, 0, 1, 1], "metrik": "haversine"}}, file=Path("job.toml"))
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: metrik must be one of ['bounds', ...]; got 'haversine' ([space])
    """
    tables = get_type_hints(JobFile)
    del tables["file"]
    _check_names(content, tables, "job")
    made: dict[str, Any] = {}
    for name, kind in tables.items():
        table = _plain(kind)
        if name in content:
            given = content[name]
            require(isinstance(given, dict), name, "must be a table", given)
            made[name] = _make(table, given, f"[{name}]")
    missing = [f.name for f in fields(JobFile) if f.name in tables and _is_required(f) and f.name not in made]
    require(not missing, "job", f"must have the tables {missing}", sorted(content))
    return JobFile(**made, file=file)


def _make(table: type[Any], given: Mapping[str, Any], subject: str) -> Any:
    hints = get_type_hints(table)
    _check_names(given, hints, subject)
    for f in fields(table):
        if f.name in given:
            _check_type(f.name, given[f.name], hints[f.name], subject)
        else:
            require(not _is_required(f), f.name, "must be given", None, subject=subject)
    try:
        return table(**given)
    except InvalidInput as error:
        raise error.about(subject) from None


def _check_names(given: Mapping[str, Any], known: Mapping[str, Any], subject: str) -> None:
    for name, value in given.items():
        require(name in known, name, f"must be one of {sorted(known)}", value, subject=subject)


def _check_type(name: str, value: Any, hint: Any, subject: str) -> None:
    kind = _plain(hint)
    if get_origin(kind) is Literal:
        require(value in get_args(kind), name, f"must be one of {list(get_args(kind))}", value, subject=subject)
        return
    inner = get_args(kind)
    plain = get_origin(kind) or kind
    rules = {
        str: "a string", int: "an integer", float: "a number", list: "a list", dict: "a table", bool: "true or false"
    }  # fmt: skip
    fits = isinstance(value, (int, float) if plain is float else plain) and isinstance(value, bool) == (plain is bool)
    require(fits, name, f"must be {rules[plain]}", value, subject=subject)
    if plain is list:
        for item in value:
            _check_type(name, item, inner[0], subject)


def _plain(hint: Any) -> Any:
    """Return the type inside an optional one."""
    if get_origin(hint) in (Union, UnionType):
        return next(kind for kind in get_args(hint) if kind is not type(None))
    return hint


def _check_place(table: SourceTable | SinkTable) -> None:
    needs = table.format in (*FILES, BLOCKS)
    require(not needs or table.path is not None, "path", f"must be given for the format {table.format!r}", table.path)
    for name, value in table.options.items():
        rule = "must map names, in quotes if they have dots, to strings, numbers, true or false"
        require(isinstance(value, (str, int, float)), "options", rule, {name: value})


def _is_required(f: Any) -> bool:
    return f.default is MISSING and f.default_factory is MISSING
