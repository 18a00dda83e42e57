"""The pipeline refuses a session that cannot give exact results."""

import os
import signal
from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkRuntimeError

from nearcast.cli.spark_session import spark_session
from nearcast.errors import NearcastError, StateError
from nearcast.spark import check_session, match, session
from nearcast.spark.settings import choose_file_manager, driver_memory
from nearcast.testing import strategies

STORE = "spark.sql.streaming.stateStore.providerClass"


def test_tests_with_a_session_run_in_few_processes(spark, request):
    if getattr(request.config.option, "loadgroup", False):  # as `make test` distributes tests
        assert "@spark " in request.node.nodeid


def test_a_session_with_our_settings_is_accepted(spark):
    check_session(spark, shards=2)


def test_further_settings_are_applied(spark):
    again = session(shards=2, settings={"spark.sql.streaming.minBatchesToRetain": 7})
    assert again.conf.get("spark.sql.streaming.minBatchesToRetain") == "7"
    again.conf.unset("spark.sql.streaming.minBatchesToRetain")


def test_the_python_and_the_java_of_the_environment_are_kept(spark, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "./environment/bin/python")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "python3")
    before = {name: os.environ[name] for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "JAVA_HOME")}
    session(shards=2)
    assert {name: os.environ[name] for name in before} == before


@pytest.mark.parametrize(("gibibytes", "heap"), [(1, "1024m"), (8, "2048m"), (64, "4096m")])
def test_the_heap_of_the_driver_follows_the_memory_of_the_machine(monkeypatch, gibibytes, heap):
    monkeypatch.delenv("SPARK_DRIVER_MEMORY", raising=False)
    pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": gibibytes << 18}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    assert driver_memory() == heap
    monkeypatch.setenv("SPARK_DRIVER_MEMORY", "7g")
    assert driver_memory() == "7g"


def test_a_command_keeps_its_handler_of_ctrl_c(tmp_path, monkeypatch):
    def start(**options):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as PySpark does, with a handler of its own
        return SimpleNamespace(stop=lambda: None)

    monkeypatch.setattr("nearcast.spark.settings.session", start)
    before = signal.getsignal(signal.SIGINT)
    with spark_session(tmp_path / "spark.log"):
        assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (
            ":: unresolved dependency: org.x#y;1.0: not found",
            r"spark.jars.packages must be .*org\.x#y;1\.0 was not fou",
        ),
        ('Exception in thread "main" java.lang.Oops: no memory', "Spark did not start: java.lang.Oops: no memory"),
        ("", r"master must be a Spark that can be reached \(.*exited.*\); got 'spark://nowhere:1' \(session\)"),
    ],
)
def test_a_spark_that_does_not_start_is_reported_with_its_cause(tmp_path, monkeypatch, log, words):
    file = tmp_path / "spark.log"

    def fail(**options):
        file.write_text(file.read_text() + log)
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr("nearcast.spark.settings.session", fail)
    file.write_text("unresolved dependency: an#older;run: not found\n")
    settings = {"spark.jars.packages": "org.x:y:1.0"}
    with (
        pytest.raises(NearcastError, match=words),
        spark_session(file, settings=settings, master="spark://nowhere:1"),
    ):
        pass


def test_a_setting_that_is_wrong_is_named_with_its_rule_and_value(spark, shards):
    shards(5)
    with pytest.raises(StateError, match=r"shuffle\.partitions must be 3; got 5 \(session\)\. Try"):
        check_session(spark, shards=3)
    other = spark.newSession()
    other.conf.set(STORE, "somewhere.Else")
    with pytest.raises(StateError, match=r"providerClass must be .*RocksDB.*; got somewhere\.Else"):
        empty = other.createDataFrame([], "id string, x double, y double, text string, kind string")
        match(empty, empty, space=strategies.PLANE)


FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


def test_local_checkpoints_are_written_without_further_processes_and_others_as_spark_does(spark, tmp_path):
    try:
        choose_file_manager(spark, str(tmp_path))
        assert spark.conf.get(FILE_MANAGER).endswith(".FileSystemBasedCheckpointFileManager")
        choose_file_manager(spark, "memory://nearcast/state")
        assert spark.conf.get(FILE_MANAGER, None) is None
        spark.conf.set(FILE_MANAGER, "org.example.Own")
        for folder in (str(tmp_path), "memory://nearcast/state"):
            choose_file_manager(spark, folder)
            assert spark.conf.get(FILE_MANAGER) == "org.example.Own", "what the session says stays"
    finally:
        spark.conf.unset(FILE_MANAGER)
