"""Saved engines: a folder of Arrow files and a manifest with their checksums.

    engine.saved/
      manifest.json        format, version, configuration, counters, size and checksum of each file
      vocabulary.arrow     term ids and idfs
      graph.arrow          users, places and edges of the social graph
      boolean.arrow ...    the stored subscriptions of each kind, with the step at which each was added
      results.arrow        results that do not follow from the window, by kind and row
      window.arrow         the messages of the window with their weighted terms
      routing.arrow        the fitted routing, if there is one

A new folder is written beside the old one and moved into place, so the path always holds a complete engine. Reading
refuses another format, another version, a missing or changed file, and names that it does not know.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.engine.config import EngineConfig
from nearcast.engine.state import EngineState, SavedSubscriptions
from nearcast.errors import FormatError, InvalidInput
from nearcast.index import Work
from nearcast.model import IdColumn, Limits, Subscription, kinds
from nearcast.model.split_columns import join, split
from nearcast.model.subscription_rows import stored_schema
from nearcast.partition.serialization import unpack
from nearcast.social import SocialGraph
from nearcast.space import Box, Space
from nearcast.text import Vocabulary
from nearcast.window import LIVE, CountWindow, Results, TimeWindow, WindowPolicy

FORMAT = "nearcast-engine"
VERSION = 1
MANIFEST = "manifest.json"

_WINDOWS: dict[str, type[CountWindow] | type[TimeWindow]] = {"count": CountWindow, "time": TimeWindow}
_GIVEN = "given"  # the partitioner is a fitted routing without a name


def write(state: EngineState, path: str | PathLike[str]) -> None:
    """Write an engine to a folder; a saved engine that is there is replaced."""
    target = Path(path)
    if target.exists() and not (target / MANIFEST).is_file():
        raise FormatError(f"{target} must be new or hold a saved engine; it holds something else")
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.saving-{os.getpid()}")
    previous = target.with_name(f".{target.name}.previous-{os.getpid()}")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    try:
        _write_files(state, beside)
        if target.exists():
            target.rename(previous)
        try:
            beside.rename(target)
        except OSError:
            if previous.exists():
                previous.rename(target)  # the old engine stays if the new one cannot take its place
            raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    shutil.rmtree(previous, ignore_errors=True)


def read(path: str | PathLike[str]) -> EngineState:
    """Read a saved engine; raise `FormatError` if anything differs from what was written."""
    folder = Path(path)
    manifest = _read_manifest(folder)
    tables = {name: _read_table(folder, name, entry) for name, entry in manifest["files"].items()}
    try:
        return _read_state(manifest, tables)
    except (InvalidInput, KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{folder} is not a saved engine of version {VERSION}: {error}") from error


def _write_files(state: EngineState, folder: Path) -> None:
    config, by_kind = state.config, _joined(state.subscriptions)
    tables = {
        "vocabulary": pa.table({"id": config.vocabulary.ids, "idf": config.vocabulary.idfs}),
        "graph": table_of_graph(config.social),
        "results": table_of_results([(saved.kind.kind, saved.results) for saved in by_kind]),
        **({} if state.live is None else {"window": state.live}),
        **({} if state.routing is None else {"routing": table_of_routing(state.routing)}),
        **{saved.kind.kind: saved.stored.append_column("since", pa.array(saved.sinces)) for saved in by_kind},
    }
    files = {}
    for name, table in tables.items():
        file = folder / f"{name}.arrow"
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        files[name] = {"bytes": file.stat().st_size, "crc32": _checksum(file)}
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "config": {
            "space": {
                "bounds": config.space.bounds.as_tuple(),
                "metric": config.space.metric,
                "max_distance": config.space.max_distance,
            },
            "window": _describe_window(config.window),
            "text_similarity": config.text_similarity,
            "workers": config.workers,
            "partitioner": config.partitioner if isinstance(config.partitioner, str) else _GIVEN,
            "index": config.index,
            "limits": asdict(config.limits),
        },
        "vocabulary_default": config.vocabulary.default,
        "counters": {"seq": state.seq, "now_us": state.now_us, "late": state.late, "updates": state.updates}
        | {"edge_changes": state.edge_changes},
        "work": {kind: asdict(work) for kind, work in state.work.items()},
        "files": files,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")


def _read_manifest(folder: Path) -> dict[str, Any]:
    file = folder / MANIFEST
    if not file.is_file():
        raise FormatError(f"{folder} must be a saved engine; it has no {MANIFEST}")
    try:
        manifest = json.loads(file.read_text())
    except ValueError as error:
        raise FormatError(f"{file} must be JSON: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        found = manifest.get("format") if isinstance(manifest, dict) else manifest
        raise FormatError(f"{file}: format must be {FORMAT!r}; got {found!r}")
    if manifest.get("version") != VERSION:
        raise FormatError(f"{file}: version must be {VERSION}; got {manifest.get('version')!r}")
    expected = {"format", "version", "config", "vocabulary_default", "counters", "work", "files"}
    if set(manifest) != expected:
        raise FormatError(f"{file}: must hold {sorted(expected)}; got {sorted(manifest)}")
    return manifest


def _read_table(folder: Path, name: str, entry: dict[str, int]) -> pa.Table:
    file = folder / f"{name}.arrow"
    if not file.is_file():
        raise FormatError(f"{file} is missing")
    if file.stat().st_size != entry["bytes"] or _checksum(file) != entry["crc32"]:
        raise FormatError(f"{file} is not as it was written: size or checksum differ")
    with pa.OSFile(str(file), "rb") as source:
        return pa.ipc.open_file(source).read_all()


def _read_state(manifest: dict[str, Any], tables: dict[str, pa.Table]) -> EngineState:
    config = dict(manifest["config"])
    space = config.pop("space")
    vocabulary = tables["vocabulary"]
    routing = read_routing(tables["routing"]) if "routing" in tables else None
    if config["partitioner"] == _GIVEN and routing is not None:
        config["partitioner"] = unpack(routing)
    return EngineState(
        EngineConfig(
            space=Space(Box(*space["bounds"]), metric=space["metric"], max_distance=space["max_distance"]),
            window=_make_window(config.pop("window")),
            limits=Limits(**config.pop("limits")),
            vocabulary=Vocabulary.from_state(
                ids=vocabulary["id"].to_numpy(),
                idfs=vocabulary["idf"].to_numpy(),
                default=manifest["vocabulary_default"],
            ),
            social=read_graph(tables["graph"]),
            **config,
        ),
        **manifest["counters"],
        work={kind: Work(**work) for kind, work in manifest["work"].items()},
        live=None if manifest["config"]["window"] is None else tables["window"].cast(LIVE),
        subscriptions=_read_subscriptions(tables),
        routing=routing,
    )


def _describe_window(window: WindowPolicy | None) -> dict[str, Any] | None:
    for name, kind in _WINDOWS.items():
        if isinstance(window, kind):
            return {"kind": name, **asdict(window)}
    return None


def _make_window(described: dict[str, Any] | None) -> WindowPolicy | None:
    if described is None:
        return None
    fields = dict(described)
    return _WINDOWS[fields.pop("kind")](**fields)


def table_of_graph(social: SocialGraph) -> pa.Table:
    """Return a graph as a table: all users and all places in the order of their numbers, then the edges."""
    rows = [*((user, None) for user in social.users), *((None, place) for place in social.places), *social.edges()]
    return pa.table({**split("user", [u for u, _ in rows]), **split("place", [p for _, p in rows])})


def read_graph(table: pa.Table) -> SocialGraph:
    """Return the graph of a table, with the same numbers."""
    rows = list(zip(join(table, "user"), join(table, "place"), strict=True))
    return SocialGraph(
        (row for row in rows if None not in row),
        users=[user for user, place in rows if place is None],
        places=[place for user, place in rows if user is None],
    )


def table_of_routing(routing: bytes) -> pa.Table:
    """Return a routing as a table."""
    return pa.table({"routing": pa.array([routing], pa.large_binary())})


def read_routing(table: pa.Table) -> bytes:
    """Return the routing of a table."""
    routing: bytes = table["routing"][0].as_py()
    return routing


def _joined(saved_subscriptions: Sequence[SavedSubscriptions]) -> list[SavedSubscriptions]:
    """Return one item per kind; the number of shards is not saved."""
    by_kind: dict[type[Subscription], list[SavedSubscriptions]] = {}
    for saved in saved_subscriptions:
        by_kind.setdefault(saved.kind, []).append(saved)
    return [
        SavedSubscriptions(
            kind,
            pa.concat_tables([saved.stored for saved in group]).combine_chunks(),
            np.concatenate([saved.sinces for saved in group]),
            [
                part._replace(slots=part.slots + first)
                for saved, first in zip(group, _firsts([len(saved.sinces) for saved in group]), strict=True)
                for part in saved.results
            ],
        )
        for kind, group in by_kind.items()
    ]


def _firsts(lengths: Sequence[int]) -> list[np.int32]:
    """Return where each of some adjacent pieces begins."""
    return [np.int32(sum(lengths[:i])) for i in range(len(lengths))]


RESULTS = pa.schema(
    {"kind": pa.string(), "row": pa.int64(), "seq": pa.int64(), "score": pa.float64(), "message": pa.string(),
     "message_int": pa.int64()}
)  # fmt: skip


def table_of_results(named: Iterable[tuple[str, Sequence[Results]]]) -> pa.Table:
    """Return results as a table: kind, row, and message."""
    return pa.concat_tables(
        [RESULTS.empty_table()]
        + [
            pa.Table.from_arrays(
                [
                    pa.repeat(kind, len(part.slots)),
                    pa.array(part.slots.astype(np.int64)),
                    pa.array(part.seqs),
                    pa.array(part.scores),
                    *part.ids.columns.values(),
                ],
                schema=RESULTS,
            )
            for kind, parts in named
            for part in parts
        ]
    )


def _read_subscriptions(tables: dict[str, pa.Table]) -> list[SavedSubscriptions]:
    by_name = {kind.kind: kind for kind in kinds()}
    unknown = set(tables) - set(by_name) - {"vocabulary", "graph", "results", "window", "routing"}
    if unknown:
        raise ValueError(f"files of unknown kinds: {sorted(unknown)}")
    results = read_results(tables["results"])
    return [
        SavedSubscriptions(
            by_name[name],
            table.drop_columns(["since"]).cast(stored_schema(by_name[name])),
            table["since"].to_numpy(),
            results.get(name, []),
        )
        for name, table in tables.items()
        if name in by_name
    ]


def read_results(table: pa.Table) -> dict[str, list[Results]]:
    """Return the results of a table, by kind."""
    named: dict[str, list[Results]] = {}
    for kind in pc.unique(table["kind"]).to_pylist():
        for rows in table.filter(pc.equal(table["kind"], kind)).to_batches():
            part = Results(
                rows["row"].to_numpy().astype(np.int32),
                rows["seq"].to_numpy(),
                rows["score"].to_numpy(),
                IdColumn(rows["message"], rows["message_int"]),
            )
            named.setdefault(kind, []).append(part)
    return named


def _checksum(file: Path) -> int:
    return zlib.crc32(file.read_bytes())


def sync(path: Path) -> None:
    """Wait until a file or the entries of a folder are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
