"""Merging: the updates of all shards as one stream.

Mostly they are simply concatenated: of the shards that hold a subscription, the first one that receives a message
reports the match. Where subscriptions may move, a replaced one may leave one shard and enter another, and each
reports one half: a message that leaves here and enters there has done neither. The updates of one operation are
therefore joined before they are emitted. Operations happen within a micro-batch, so no state is needed.

Shards return groups, one row for all receivers of a message; Spark expands them. Rows are in no particular order;
`seq` gives it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from nearcast.engine.groups import count_updates
from nearcast.jobs.frame import OP, PACKED, pack, shard_updates
from nearcast.model import LEAVE
from nearcast.model.columns import BODY, groups_schema, updates_schema

_PACKED_COLUMNS = pa.schema({"seq": pa.int64(), "updates": pa.int64(), "payload": pa.binary()})


def merge(updates: DataFrame) -> DataFrame:
    """Return the updates of all shards, one per row."""
    bodies = BODY.name in updates.columns
    shared = [name for name in groups_schema(bodies=bodies).names if name != "subscriptions"]
    each = updates.select(*shared, F.posexplode("subscriptions").alias("place", "subscription"))
    score = F.expr("if(size(scores) = 1, scores[0], scores[place])").alias("score")
    return each.select(*(score if name == "score" else F.col(name) for name in updates_schema(bodies=bodies).names))


def join(loose: DataFrame, *, tasks: int, is_packed: bool = False) -> DataFrame:
    """Return the output of all shards where the updates of one operation may come from several of them."""
    together, bodies = loose.repartition(tasks, "key"), BODY.name in loose.columns
    return together.mapInArrow(
        _pack_joined if is_packed else _join, PACKED if is_packed else shard_updates(bodies=bodies)
    )


def _join(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for table in joined(pa.Table.from_batches([batch]) for batch in batches):
        yield from table.to_batches()


def _pack_joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for table in joined(pa.Table.from_batches([batch]) for batch in batches):
        if len(table):
            row = [[table["seq"][0].as_py()], [count_updates(table)], [pack(table)]]
            yield pa.RecordBatch.from_arrays(
                [pa.array(values, field.type) for values, field in zip(row, _PACKED_COLUMNS, strict=True)],
                schema=_PACKED_COLUMNS,
            )


def joined(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield groups without updates that cancel out: a leave and an enter of the same operation."""
    caused: list[pa.Table] = []
    for table in tables:
        is_caused = pc.is_valid(table[OP])
        names = groups_schema(bodies=BODY.name in table.column_names).names
        yield table.filter(pc.invert(is_caused)).select(names)
        caused.append(table.filter(is_caused))
    if not caused:
        return
    whole = pa.concat_tables(caused)
    has_left = pc.is_in(whole[OP], value_set=whole.filter(pc.equal(whole["change"], LEAVE))[OP].combine_chunks())
    yield whole.filter(pc.invert(has_left)).select(names)
    yield _net(whole.filter(has_left)).select(names)


def _net(caused: pa.Table) -> pa.Table:
    """Return the net updates of operations; messages are compared by id."""
    updates = caused.select([OP, "message", "change"]).to_pandas()
    both = updates.groupby([OP, "message"])["change"]
    left = (updates["change"] == LEAVE).groupby([updates[OP], updates["message"]]).transform("sum")
    n_pairs = np.minimum(left, both.transform("size") - left)
    return caused.filter(pa.array(updates.groupby([OP, "message", "change"]).cumcount() >= n_pairs))
