"""The pipeline refuses a session that cannot give exact results."""

import pytest

from nearcast.errors import StateError
from nearcast.spark import check_session, match, session
from nearcast.testing import strategies

STORE = "spark.sql.streaming.stateStore.providerClass"


def test_a_session_with_our_settings_is_accepted(spark):
    check_session(spark, shards=2)


def test_further_settings_are_applied(spark):
    again = session(shards=2, settings={"spark.sql.streaming.minBatchesToRetain": 7})
    assert again.conf.get("spark.sql.streaming.minBatchesToRetain") == "7"
    again.conf.unset("spark.sql.streaming.minBatchesToRetain")


def test_a_setting_that_is_wrong_is_named_with_its_rule_and_value(spark, shards):
    shards(5)
    with pytest.raises(StateError, match=r"shuffle\.partitions must be 3; got 5 \(session\)\. Try"):
        check_session(spark, shards=3)
    other = spark.newSession()
    other.conf.set(STORE, "somewhere.Else")
    with pytest.raises(StateError, match=r"providerClass must be .*RocksDB.*; got somewhere\.Else"):
        empty = other.createDataFrame([], "id string, x double, y double, text string, kind string")
        match(empty, empty, space=strategies.PLANE)
