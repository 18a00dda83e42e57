"""Streams for advice: messages and subscriptions, generated or from files.

file            Parquet (also a folder), or JSON lines: json, jsonl, ndjson; the columns that Nearcast knows, where
                lon and lat are read as x and y
bounds          the smallest box around everything
vocabulary      counted in the messages
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

from nearcast.engine import EngineConfig
from nearcast.engine.admission import Admission
from nearcast.errors import FormatError, InvalidInput, require
from nearcast.model import Footprints, find_kind
from nearcast.model import kinds as all_kinds
from nearcast.model.columns import MESSAGES, messages_from_table, subscriptions_schema
from nearcast.partition import Sample
from nearcast.partition.candidate_pairs import spread_rows
from nearcast.social import SocialGraph
from nearcast.space import Box, Space
from nearcast.text import DEFAULT_HASH_KEY, HashKey, Vocabulary
from nearcast.window import CountWindow
from nearcast.workload import make

_LINES = (".json", ".jsonl", ".ndjson")
_ALIASES = {"lon": "x", "lng": "x", "longitude": "x", "lat": "y", "latitude": "y"}


@dataclass(frozen=True)
class Stream:
    """Messages and subscriptions, with the options of an engine for them."""

    name: str
    space: Space
    vocabulary: Vocabulary
    social: SocialGraph
    window: CountWindow | None
    """None if no kind needs a window."""
    subscriptions: pa.Table
    messages: pa.Table
    hash_key: HashKey = DEFAULT_HASH_KEY

    @property
    def kinds(self) -> list[str]:
        """The kinds of the subscriptions, in the order of `nearcast.model.kinds`."""
        there = set(pc.unique(self.subscriptions["kind"]).to_pylist())
        return [kind.kind for kind in all_kinds() if kind.kind in there]

    @property
    def engine_options(self) -> dict[str, Any]:
        """The options of an engine for the stream."""
        return {
            "space": self.space,
            "vocabulary": self.vocabulary,
            "social": self.social,
            "window": self.window,
            "hash_key": self.hash_key,
        }

    def thinned(self, n_subscriptions: int, n_messages: int) -> Stream:
        """Return a part of the stream with subscriptions of every kind."""
        rows = spread_rows(self.subscriptions.num_rows, n_subscriptions)
        return replace(self, subscriptions=self.subscriptions.take(rows), messages=self.messages.slice(0, n_messages))

    @cached_property
    def sample(self) -> Sample:
        """The sample for partitioners; raises `InvalidInput` for rows that an engine would refuse."""
        config = EngineConfig(**self.engine_options)
        batches = Admission(config).admit(self.subscriptions)
        messages = messages_from_table(self.messages, vocabulary=config.vocabulary, limits=config.limits, first_seq=1)
        messages.check(self.space)
        return Sample(Footprints.joined([batch.routing_footprints for batch in batches]), messages.for_routing)


def generated(
    workload: str, kinds: Sequence[str], *, n_subscriptions: int, n_messages: int, window: int, seed: int = 0
) -> Stream:
    """Return a stream of a workload, with about as many subscriptions of each kind.

    >>> generated("places", ["nearest"], n_subscriptions=10, n_messages=20, window=5).messages.num_rows
    20
    """
    source = make(workload, seed=seed)
    community = source.social(n_subscriptions) if "social" in kinds else None
    parts = []
    for number, kind in enumerate(kinds):
        n = n_subscriptions * (number + 1) // len(kinds) - n_subscriptions * number // len(kinds)
        for table in source.subscriptions(kind, n, community=community):
            named = pc.binary_join_element_wise(kind, table["id"], "-")
            parts.append(table.set_column(table.column_names.index("id"), "id", named))
    return Stream(
        workload,
        source.space(),
        source.vocabulary(),
        community.graph if community else SocialGraph(),
        _window(kinds, window),
        pa.concat_tables(parts).combine_chunks(),
        pa.concat_tables(source.messages(n_messages, community=community)).combine_chunks(),
    )


def recorded(
    messages_file: Path,
    subscriptions_file: Path,
    *,
    kinds: Sequence[str] = (),
    n_subscriptions: int,
    n_messages: int,
    window: int,
    metric: str = "haversine",
) -> Stream:
    """Return a stream of files: the first rows of each, of the given kinds if any are given."""
    messages = read_rows(messages_file, MESSAGES, "messages-file").slice(0, n_messages)
    subscriptions = read_rows(subscriptions_file, subscriptions_schema(), "subscriptions-file")
    for table, needed, field in (
        (messages, ("id", "x", "y", "text"), "messages-file"),
        (subscriptions, ("id", "kind", "keywords"), "subscriptions-file"),
    ):
        missing = [name for name in needed if name not in table.column_names]
        require(not missing, field, f"must have the columns {missing}", table.column_names)
    if "op" in subscriptions.column_names:
        subscriptions = subscriptions.filter(pc.equal(pc.fill_null(subscriptions["op"], "subscribe"), "subscribe"))
    if kinds:
        subscriptions = subscriptions.filter(pc.is_in(subscriptions["kind"], pa.array(kinds)))
    subscriptions = subscriptions.slice(0, n_subscriptions)
    for table, field in ((messages, "messages-file"), (subscriptions, "subscriptions-file")):
        require(table.num_rows > 0, field, "must hold rows to learn from", table.num_rows)
    found = [
        kind for kind in pc.unique(subscriptions["kind"]).to_pylist() if kind in {known.kind for known in all_kinds()}
    ]
    require("social" not in found, "kind", "must not be social: a file has no social graph", "social")
    return Stream(
        f"{messages_file.name} and {subscriptions_file.name}",
        Space(_around(messages, subscriptions), metric=metric),
        Vocabulary.from_texts(messages["text"].to_pylist()),
        SocialGraph(),
        _window(found, window),
        subscriptions.combine_chunks(),
        messages.combine_chunks(),
    )


def read_rows(path: Path, schema: pa.Schema, field: str) -> pa.Table:
    """Read a file by its suffix: the columns of a schema that hold a value, texts as they are."""
    is_lines = path.suffix in _LINES
    require(path.exists(), field, "must exist", str(path))
    rule = f"must be Parquet or end in one of {list(_LINES)}"
    require(is_lines or path.is_dir() or path.suffix == ".parquet", field, rule, str(path))
    try:
        if is_lines:
            aliases = [pa.field(alias, pa.float64()) for alias in _ALIASES]
            explicit = pa.schema([*(column for column in schema if column.name != "text"), *aliases])
            table = pj.read_json(path, parse_options=pj.ParseOptions(explicit_schema=explicit))
        else:
            table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise FormatError(f"{path} cannot be read: {error}") from error
    columns = {name: table[name] for name in table.column_names if table[name].null_count < table.num_rows}
    for alias, name in _ALIASES.items():
        if alias in columns and name in schema.names:
            columns.setdefault(name, columns[alias])
    return pa.table({name: column for name, column in columns.items() if name in schema.names})


def _window(names: Sequence[str], n: int) -> CountWindow | None:
    return CountWindow(n) if any(find_kind(kind).result_policy.needs_window for kind in names) else None


def _around(messages: pa.Table, subscriptions: pa.Table) -> Box:
    """Return the smallest box around points and boxes."""
    ends: list[list[float]] = [[], []]
    for table in (messages, subscriptions):
        for axis, names in enumerate((("x", "xmin", "xmax"), ("y", "ymin", "ymax"))):
            for name in names:
                if name in table.column_names:
                    values = table[name].drop_null().cast(pa.float64()).to_numpy()
                    values = values[np.isfinite(values)]
                    ends[axis] += [float(values.min()), float(values.max())] if len(values) else []
    if not all(ends):
        raise InvalidInput("messages-file", "must hold coordinates", None)
    return Box(min(ends[0]), min(ends[1]), max(ends[0]), max(ends[1]))
