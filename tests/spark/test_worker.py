"""Spark accepts the output of a shard."""

import pyarrow as pa
from pyspark.sql.conversion import PandasToArrowConversion
from pyspark.sql.types import StructType

from nearcast.jobs.frame import SHARD_UPDATES
from nearcast.model.columns import GROUPS
from nearcast.spark.worker import _columns


def test_a_table_in_several_pieces_becomes_one_batch(spark):
    row = {"seq": 1, "at": None, "message": "m", "change": "enter", "subscriptions": ["s", "t"], "scores": [1.0]}
    pieces = pa.concat_tables([pa.Table.from_pylist([row], schema=GROUPS)] * 3)
    assert pieces["seq"].num_chunks == 3
    schema = StructType.fromDDL(SHARD_UPDATES)
    batch = PandasToArrowConversion.convert(_columns(pieces), schema, timezone="UTC", arrow_cast=True)
    assert batch.num_rows == 3
    assert batch.column(4).to_pylist() == [["s", "t"]] * 3
