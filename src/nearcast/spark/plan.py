"""What does a job file say? A TOML file becomes a plan, or an error that names the key, the rule and the value.

    [space]          bounds, metric, max_distance
    [vocabulary]     file | learn, rows                 [window]   count | seconds
    [social]         file                               [match]    shards, partitioner, text_similarity, index
    [messages]       format, path, options, schema, select        [updates]    format, path, options
    [subscriptions]  the same                                     [rejected]   the same
    [run]            checkpoint, trigger

Paths are relative to the file, so that a job can be moved as a folder. Reading a plan runs nothing.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from nearcast.errors import InvalidInput, StateError, require
from nearcast.space import Box, Space
from nearcast.window import CountWindow, TimeWindow, WindowPolicy


@dataclass(frozen=True)
class SpaceTable:
    """Where everything is."""

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
    """Where term weights come from: a file of counts, or a sample of texts to count."""

    file: str | None = None
    """JSON: {"documents": N, "frequencies": {term: n}} or {"weights": {term: w}}."""
    learn: str | None = None
    """A file or folder in the format of the messages, to count texts in when the job first starts."""
    rows: int = 100_000
    """How many texts are counted at most."""

    def __post_init__(self) -> None:
        given = [name for name in ("file", "learn") if getattr(self, name) is not None]
        require(len(given) == 1, "vocabulary", "must have one of file and learn", given, subject="[vocabulary]")
        require(self.rows >= 1, "rows", "must be 1 or more", self.rows, subject="[vocabulary]")


@dataclass(frozen=True)
class WindowTable:
    """How long messages stay: so many, or for so many seconds."""

    count: int | None = None
    seconds: float | None = None

    def window(self) -> WindowPolicy:
        """Return the window."""
        given = [name for name in ("count", "seconds") if getattr(self, name) is not None]
        require(len(given) == 1, "window", "must have one of count and seconds", given, subject="[window]")
        return CountWindow(self.count) if self.count is not None else TimeWindow(self.seconds or 0.0)


@dataclass(frozen=True)
class SocialTable:
    """The graph of users and places."""

    file: str
    """CSV, JSON lines or Parquet with the columns user and place."""


@dataclass(frozen=True)
class MatchTable:
    """How the work is done; what is left out is as in `nearcast.Engine`."""

    shards: int = 2
    partitioner: str = "hash"
    text_similarity: str = "containment"
    index: str = "auto"

    def __post_init__(self) -> None:
        require(self.shards >= 1, "shards", "must be 1 or more", self.shards, subject="[match]")


@dataclass(frozen=True)
class SourceTable:
    """Where rows come from: any format that Spark can stream."""

    format: str
    path: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    schema: str | None = None
    """The columns as they lie there, in Spark's words ("lon double, lat double, ..."); else those Nearcast knows."""
    select: list[str] = field(default_factory=list)
    """SQL expressions that make the columns Nearcast knows out of those ("lon AS x")."""


@dataclass(frozen=True)
class SinkTable:
    """Where rows go: any format that Spark can stream to."""

    format: str
    path: str | None = None
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunTable:
    """How the job runs."""

    checkpoint: str
    trigger: str = "1 second"
    """An interval, or "available now": everything that is there, then stop."""


@dataclass(frozen=True)
class Plan:
    """A whole job."""

    space: SpaceTable
    messages: SourceTable
    subscriptions: SourceTable
    updates: SinkTable
    run: RunTable
    vocabulary: VocabularyTable | None = None
    window: WindowTable | None = None
    social: SocialTable | None = None
    match: MatchTable = field(default_factory=MatchTable)
    rejected: SinkTable | None = None
    folder: Path = field(default_factory=Path)
    """What paths are relative to."""

    def place(self, path: str) -> str:
        """Return a path of the file as one that leads there from anywhere."""
        return path if "://" in path else str((self.folder / path).absolute())


def read_plan(file: str | Path) -> Plan:
    """Read a job file."""
    path = Path(file)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StateError(f"{path} must be a job file: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StateError(f"{path} must be TOML: {error}") from None
    try:
        return make_plan(content, folder=path.parent)
    except InvalidInput as error:
        raise error.about(f"{error.subject}, {path}" if error.subject else str(path)) from None


def make_plan(content: Mapping[str, Any], *, folder: Path) -> Plan:
    """Make a plan of what a job file says.

    >>> make_plan({"space": {"bounds": [0, 0, 1, 1], "metrik": "haversine"}}, folder=Path())
    Traceback (most recent call last):
        ...
    nearcast.errors.InvalidInput: metrik must be one of ['bounds', ...]; got 'haversine' ([space])
    """
    tables = get_type_hints(Plan)
    del tables["folder"]
    _check_names(content, tables, "job")
    made: dict[str, Any] = {}
    for name, kind in tables.items():
        table = _plain(kind)
        if name in content:
            given = content[name]
            require(isinstance(given, dict), name, "must be a table", given)
            made[name] = _make(table, given, f"[{name}]")
    missing = [f.name for f in fields(Plan) if f.name in tables and _is_required(f) and f.name not in made]
    require(not missing, "job", f"must have the tables {missing}", sorted(content))
    plan = Plan(**made, folder=folder)
    plan.space.space()
    if plan.window is not None:
        plan.window.window()
    return plan


def _make(table: type[Any], given: Mapping[str, Any], subject: str) -> Any:
    hints = get_type_hints(table)
    _check_names(given, hints, subject)
    for f in fields(table):
        if f.name in given:
            _check_type(f.name, given[f.name], hints[f.name], subject)
        else:
            require(not _is_required(f), f.name, "must be given", None, subject=subject)
    return table(**given)


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
    rules = {str: "a string", int: "an integer", float: "a number", list: "a list", dict: "a table"}
    fits = isinstance(value, (int, float) if plain is float else plain) and not isinstance(value, bool)
    require(fits, name, f"must be {rules[plain]}", value, subject=subject)
    if plain is list:
        for item in value:
            _check_type(name, item, inner[0], subject)


def _plain(hint: Any) -> Any:
    """Return what an optional type holds."""
    if get_origin(hint) in (Union, UnionType):
        return next(kind for kind in get_args(hint) if kind is not type(None))
    return hint


def _is_required(f: Any) -> bool:
    return f.default is MISSING and f.default_factory is MISSING
