"""How do the answers of shards become one? As they are: a subscription lives in one shard, so nothing is told twice.

Here is the place to join what replicas found, once a partitioner makes some. Shards answer in groups, a row for all
whom a message is told at once; Spark writes them out. Rows come in no order; `seq` has it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from nearcast.model.columns import GROUPS, UPDATES


def merge(told: DataFrame) -> DataFrame:
    """Return the updates of all shards, one a row."""
    shared = [name for name in GROUPS.names if name != "subscriptions"]
    each = told.select(*shared, F.posexplode("subscriptions").alias("place", "subscription"))
    score = F.expr("if(size(scores) = 1, scores[0], scores[place])").alias("score")
    return each.select(*(score if name == "score" else F.col(name) for name in UPDATES.names))
