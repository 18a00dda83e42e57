"""Transfers: what one engine of a distributed job gives to another when the routing changes.

    old owner ── subscriptions that move, with all that they hold ───────────┐
    first shard ── the window, counters and social graph, for a new shard ───┴── bytes ── new owner

A transfer is an `EngineState` with some of the subscriptions. Where every shard sees every message, all windows are
alike, and only a new shard needs one. Where shards see some messages only, the new routing also decides which
messages a window must hold, and each message is passed on by the first shard that has it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.engine import archive
from nearcast.engine.config import EngineConfig
from nearcast.engine.state import EngineState
from nearcast.errors import FormatError
from nearcast.model import IdColumn, MessageBatch, SubscriptionBatch
from nearcast.partition import Masks
from nearcast.partition.balance.changed_area import Area

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_COUNTERS = b"nearcast.counters"


class Placement(NamedTuple):
    """Where a routing places subscriptions and sends messages."""

    n_shards: int
    sends_all: bool
    """True if every message goes to every shard."""
    place: Callable[[SubscriptionBatch, Longs], Masks]
    """Places subscriptions, given the step at which each was added."""
    route: Callable[[MessageBatch], Masks]
    place_ids: Callable[[IdColumn], Masks] | None = None
    """Places subscriptions by their ids alone, if that is enough: their other columns are then not read."""
    are_old: Callable[[Longs], Flags] = lambda sinces: np.zeros(len(sinces), np.bool_)
    """Returns which subscriptions stay where an old routing placed them, given the step at which each was added."""
    may_move: Callable[[Longs], Flags] | None = None
    """Returns which subscriptions the routing before may have placed elsewhere; None if all."""
    changed: Area | None = None
    """Where the routing before may have placed subscriptions elsewhere; None for everywhere."""


class Rerouting(NamedTuple):
    """A change of the routing, as the engine of one shard sees it."""

    shard: int
    before: Placement
    after: Placement


def pack_transfer(state: EngineState, *, has_graph: bool) -> bytes:
    """Return a transfer as bytes; the social graph is left out unless the receiver has none."""
    saved = archive.joined(state.subscriptions)
    tables = {
        "results": archive.table_of_results([(one.kind.kind, one.results) for one in saved]),
        **({"graph": archive.table_of_graph(state.config.social)} if has_graph else {}),
        **({} if state.live is None else {"window": state.live}),
        **({} if state.bodies is None else {"bodies": state.bodies}),
        **({} if state.expiries is None else {"expiries": state.expiries}),
        **{one.kind.kind: archive.table_of_subscriptions(one) for one in saved},
    }
    columns = [pa.array(list(tables)), pa.array(map(_stream, tables.values()), pa.large_binary())]
    whole = pa.table(columns, names=["name", "table"])
    return _stream(whole.replace_schema_metadata({_COUNTERS: json.dumps(state.counters)}))


def unpack_transfer(data: bytes, config: EngineConfig) -> EngineState:
    """Return a transfer, for an engine of the given configuration."""
    try:
        whole = pa.ipc.open_stream(data).read_all()
        counters = json.loads(whole.schema.metadata[_COUNTERS])
        tables = {
            name: pa.ipc.open_stream(table).read_all()
            for name, table in zip(whole["name"].to_pylist(), whole["table"].to_pylist(), strict=True)
        }
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise FormatError(f"bytes must be those of a transfer of subscriptions: {error}") from None
    if "graph" in tables:
        config = replace(config, social=archive.read_graph(tables["graph"]))
    return EngineState(
        config,
        **counters,
        live=tables.get("window"),
        bodies=tables.get("bodies"),
        expiries=tables.get("expiries"),
        subscriptions=archive.read_subscriptions(tables),
    )


def joined_transfers(states: Sequence[EngineState]) -> EngineState:
    """Return one state with the messages and subscriptions of all; the first one also has counters and graph."""
    return replace(
        states[0],
        live=_by_seq([state.live for state in states]),
        bodies=_by_seq([state.bodies for state in states]),
        expiries=_by_seq([state.expiries for state in states]),
        subscriptions=[saved for state in states for saved in state.subscriptions],
    )


def _by_seq(tables: Sequence[pa.Table | None]) -> pa.Table | None:
    """Return the rows of all tables, one per message, in the order of the stream."""
    known = [table for table in tables if table is not None]
    if not known:
        return None
    whole = pa.concat_tables(known)
    _, rows = np.unique(whole["seq"].to_numpy(), return_index=True)
    return whole.take(pa.array(rows)).combine_chunks()


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
