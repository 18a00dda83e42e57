"""Saved engines: a folder of Arrow files and a manifest with their checksums.

    engine.saved/
      manifest.json          format, version, configuration, counters; name, size and checksum of each file; its own
      vocabulary-*.arrow     terms and idfs
      graph-*.arrow          users, places and edges of the social graph
      boolean-*.arrow ...    the stored subscriptions of each kind, with the step at which each was added, and the
                             earlier engines that hold it too
      results-*.arrow        results that do not follow from the window, by kind and row
      window-*.arrow         the messages of the window with their weighted terms
      bodies-*.arrow         the bodies of the messages that the window or a result holds, if the engine has bodies
      expiries-*.arrow       when such messages expire by a time of their own, if some do
      routing-*.arrow        the fitted routing, if there is one

The manifest is the engine: a save writes files under new names and then replaces the manifest in one step, so the
folder always holds a complete engine, also after a crash. Reading refuses another format, another version, a missing
or changed file, a changed manifest, and names that it does not know.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.engine.config import EngineConfig
from nearcast.engine.message_bodies import BODIES
from nearcast.engine.state import EXPIRIES, EngineState, SavedSubscriptions
from nearcast.errors import FormatError
from nearcast.index import Work
from nearcast.model import NO_TIME, IdColumn, Limits, Subscription, kinds
from nearcast.model.split_columns import join, split
from nearcast.model.subscription_rows import stored_schema
from nearcast.model.timestamps import FARTHEST_US
from nearcast.partition.balance.policy import Balance
from nearcast.partition.masks import from_arrow, to_arrow
from nearcast.partition.serialization import unpack
from nearcast.social import SocialGraph
from nearcast.space import Box, Space
from nearcast.text import Vocabulary
from nearcast.window import LIVE, CountWindow, Results, TimeWindow, WindowPolicy

FORMAT = "nearcast-engine"
VERSION = 8
MANIFEST = "manifest.json"

_WINDOWS: dict[str, type[CountWindow] | type[TimeWindow]] = {"count": CountWindow, "time": TimeWindow}
_NAMES = {
    "vocabulary",
    "graph",
    "results",
    "window",
    "bodies",
    "expiries",
    "routing",
}  # files other than those of kinds
_LARGEST = 1 << 62  # no counter of an engine gets there
_BEFORE = "before"  # the column of earlier engines, of an engine that is one of many
_GIVEN = "given"  # the partitioner is a fitted routing without a name


def write(state: EngineState, path: str | PathLike[str]) -> None:
    """Write an engine to a folder; a saved engine that is there is replaced. It is on disk when this returns."""
    folder = Path(path)
    is_new = not folder.exists()
    if not is_new and not (folder / MANIFEST).is_file():
        raise FormatError(f"{folder} must be new or hold a saved engine; it holds something else")
    folder.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(4)  # no file of the engine that is there is touched
    try:
        manifest = folder / f"{MANIFEST}-{token}"
        manifest.write_text(json.dumps(_write_files(state, folder, token), indent=1) + "\n")
        sync(manifest)
        manifest.replace(folder / MANIFEST)
    except BaseException:
        for file in folder.glob(f"*-{token}*"):
            file.unlink()
        if is_new:
            folder.rmdir()
        raise
    sync(folder)
    sync(folder.parent)
    _sweep(folder, token)


def _sweep(folder: Path, token: str) -> None:
    """Remove the files of earlier engines, and of saves that were interrupted."""
    for file in folder.iterdir():
        is_ours = re.fullmatch(rf"(\w+|{re.escape(MANIFEST)})-[0-9a-f]{{8}}(\.arrow)?", file.name)
        if is_ours and not file.name.endswith((f"-{token}", f"-{token}.arrow")):
            file.unlink(missing_ok=True)


def read(path: str | PathLike[str]) -> EngineState:
    """Read a saved engine; raise `FormatError` if anything differs from what was written."""
    folder = Path(path)
    manifest = _read_manifest(folder)
    with as_format_errors(folder):
        tables = {name: _read_table(folder, entry) for name, entry in manifest["files"].items()}
        _check_counters(manifest["counters"])
        return _read_state(manifest, tables)


@contextmanager
def as_format_errors(path: str | PathLike[str]) -> Iterator[None]:
    """Raise any error as a `FormatError` while an engine is made of files whose checksums are right.

    Some parts of a state fit together only if all come from one engine, which shows when they are used.
    """
    try:
        yield
    except (FormatError, MemoryError):
        raise
    except Exception as error:
        raise FormatError(f"{path} is not a saved engine of version {VERSION}: {error}") from error


def _check_counters(counters: dict[str, Any]) -> None:
    """Raise `ValueError` for a counter that no engine can have, or a time that no message can have."""
    for name, count in counters.items():
        is_time = name == "now_us"
        least, most = (-FARTHEST_US, FARTHEST_US) if is_time else (0, _LARGEST)
        if type(count) is not int or not (least <= count < most or (is_time and count == NO_TIME)):
            raise ValueError(f"{name} must be an integer from {least} to {most}; got {count!r}")


def _write_files(state: EngineState, folder: Path, token: str) -> dict[str, Any]:
    """Write everything but the manifest, which is returned."""
    config, by_kind = state.config, joined(state.subscriptions)
    tables = {
        "vocabulary": pa.table(
            {"term": config.vocabulary.state()["terms"], "idf": config.vocabulary.state()["idfs"]}
        ),
        "graph": table_of_graph(config.social),
        "results": table_of_results([(saved.kind.kind, saved.results) for saved in by_kind]),
        **({} if state.live is None else {"window": state.live}),
        **({} if state.bodies is None else {"bodies": state.bodies}),
        **({} if state.expiries is None else {"expiries": state.expiries}),
        **({} if state.routing is None else {"routing": table_of_routing(state.routing)}),
        **{saved.kind.kind: table_of_subscriptions(saved) for saved in by_kind},
    }
    files = {}
    for name, table in tables.items():
        file = folder / f"{name}-{token}.arrow"
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        sync(file)
        files[name] = {"file": file.name, "bytes": file.stat().st_size, "crc32": _checksum(file)}
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
            "analyzer": config.analyzer,
            "bodies": config.bodies,
            "attributes": config.attributes.to_json(),
            "workers": config.workers,
            "partitioner": config.partitioner if isinstance(config.partitioner, str) else _GIVEN,
            "balance": None if config.balance is None else asdict(config.balance),
            "index": config.index,
            "limits": asdict(config.limits),
            "hash_key": config.hash_key.hex(),
        },
        "vocabulary_default": config.vocabulary.default,
        "counters": state.counters,
        "work": {kind: asdict(work) for kind, work in state.work.items()},
        "files": files,
    }
    return manifest | {"sha256": digest_of(manifest)}


def digest_of(manifest: dict[str, Any]) -> str:
    """Return the checksum of a manifest, which covers everything but itself."""
    content = {name: value for name, value in manifest.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _read_manifest(folder: Path) -> dict[str, Any]:
    file = folder / MANIFEST
    if not file.is_file():
        raise FormatError(f"{folder} must be a saved engine; it has no {MANIFEST}")
    try:
        manifest = json.loads(file.read_text())
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{file} must be JSON: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        found = manifest.get("format") if isinstance(manifest, dict) else manifest
        raise FormatError(f"{file}: format must be {FORMAT!r}; got {found!r}")
    if manifest.get("version") != VERSION:
        raise FormatError(f"{file}: version must be {VERSION}; got {manifest.get('version')!r}")
    if manifest.get("sha256") != digest_of(manifest):
        raise FormatError(f"{file} is not as it was written: its checksum differs")
    expected = {"format", "version", "config", "vocabulary_default", "counters", "work", "files", "sha256"}
    if set(manifest) != expected:
        raise FormatError(f"{file}: must hold {sorted(expected)}; got {sorted(manifest)}")
    return manifest


def _read_table(folder: Path, entry: dict[str, Any]) -> pa.Table:
    file = folder / entry["file"]
    if not file.is_file():
        raise FormatError(f"{file} is missing")
    if file.stat().st_size != entry["bytes"] or _checksum(file) != entry["crc32"]:
        raise FormatError(f"{file} is not as it was written: size or checksum differ")
    with pa.OSFile(str(file), "rb") as source:
        return pa.ipc.open_file(source).read_all()


def _read_state(manifest: dict[str, Any], tables: dict[str, pa.Table]) -> EngineState:
    config = dict(manifest["config"])
    space, hash_key = config.pop("space"), bytes.fromhex(config.pop("hash_key"))
    vocabulary = tables["vocabulary"]
    routing = read_routing(tables["routing"]) if "routing" in tables else None
    if config["partitioner"] == _GIVEN and routing is not None:
        config["partitioner"] = unpack(routing)
    return EngineState(
        EngineConfig(
            space=Space(Box(*space["bounds"]), metric=space["metric"], max_distance=space["max_distance"]),
            window=_make_window(config.pop("window")),
            limits=Limits(**config.pop("limits")),
            balance=None if (balance := config.pop("balance")) is None else Balance(**balance),
            vocabulary=Vocabulary.from_state(
                terms=vocabulary["term"].combine_chunks(),
                idfs=vocabulary["idf"].to_numpy(),
                default=manifest["vocabulary_default"],
                hash_key=hash_key,
            ),
            hash_key=hash_key,
            social=read_graph(tables["graph"]),
            **config,
        ),
        **manifest["counters"],
        work={kind: Work(**work) for kind, work in manifest["work"].items()},
        live=None if manifest["config"]["window"] is None else tables["window"].cast(LIVE),
        bodies=tables["bodies"].cast(BODIES) if config["bodies"] else None,
        expiries=tables["expiries"].cast(EXPIRIES) if "expiries" in tables else None,
        subscriptions=read_subscriptions(tables),
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


def table_of_subscriptions(saved: SavedSubscriptions) -> pa.Table:
    """Return saved subscriptions as a table, without their results."""
    table = saved.stored.append_column("since", pa.array(saved.sinces))
    return table if saved.before is None else table.append_column(_BEFORE, to_arrow(saved.before))


def joined(saved_subscriptions: Sequence[SavedSubscriptions]) -> list[SavedSubscriptions]:
    """Return one item per kind; the number of shards is not saved."""
    by_kind: dict[type[Subscription], list[SavedSubscriptions]] = {}
    for saved in saved_subscriptions:
        by_kind.setdefault(saved.kind, []).append(saved)
    return [
        SavedSubscriptions(
            kind,
            pa.concat_tables([saved.stored for saved in group]).combine_chunks(),
            np.concatenate([saved.sinces for saved in group]),
            group[0].before if len(group) == 1 else None,
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


def read_subscriptions(tables: dict[str, pa.Table]) -> list[SavedSubscriptions]:
    """Return the subscriptions of all tables that are named after a kind, with the results of the table `results`."""
    by_name = {kind.kind: kind for kind in kinds()}
    unknown = set(tables) - set(by_name) - _NAMES
    if unknown:
        raise ValueError(f"files of unknown kinds: {sorted(unknown)}")
    results = read_results(tables["results"])
    return [
        SavedSubscriptions(
            by_name[name],
            table.drop_columns([n for n in ("since", _BEFORE) if n in table.column_names]).cast(
                stored_schema(by_name[name])
            ),
            table["since"].to_numpy(),
            from_arrow(table[_BEFORE]) if _BEFORE in table.column_names else None,
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
