"""A job file becomes a plan, or an error with key, rule, value and file."""

from copy import deepcopy
from pathlib import Path

import pytest

import nearcast as nc
from nearcast.engine import EngineConfig
from nearcast.errors import InvalidInput, StateError
from nearcast.jobs.inputs import hash_key_of, routing_of, social_of, vocabulary_of
from nearcast.jobs.job_file import make_job_file, read_job_file
from nearcast.partition import Sample
from nearcast.partition.fitting import fit
from nearcast.partition.hash import HashRouting
from nearcast.partition.serialization import pack
from nearcast.text import DEFAULT_HASH_KEY

ROOT = Path(__file__).parents[2]
JOB = {
    "space": {"bounds": [0, 0, 8, 8]},
    "messages": {"format": "json", "path": "messages"},
    "subscriptions": {"format": "json", "path": "subscriptions"},
    "updates": {"format": "json", "path": "updates"},
    "run": {"checkpoint": "checkpoint"},
}


def changed(**tables):
    """Return the job with other keys in some tables; None removes a table."""
    content = deepcopy(JOB)
    for name, table in tables.items():
        if table is None:
            del content[name]
        else:
            content[name] = content.get(name, {}) | table if isinstance(table, dict) else table
    return content


def test_defaults_are_those_of_the_engine():
    plan = make_job_file(JOB, file=Path("job.toml"))
    job, default = plan.job(), EngineConfig(space=nc.Space(nc.Box(0, 0, 8, 8)))
    assert (job.shards, job.partitioner) == (2, "hash")
    for option in ("space", "window", "text_similarity", "analyzer", "workers", "partitioner", "index", "limits"):
        assert getattr(job.config, option) == getattr(default, option)
    assert (plan.run.trigger, plan.match.shards, plan.rejected) == ("1 second", 2, None)


def test_a_job_file_names_the_analyzer():
    job = make_job_file(changed(match={"analyzer": "german"}), file=Path("job.toml")).job()
    assert (job.config.analyzer, job.scoring.vocabulary.analyzer.name) == ("german", "german")


def test_a_job_file_declares_attributes():
    attributes = {"price": "float", "open now": "bool"}
    job = make_job_file(changed(match={"attributes": attributes}), file=Path("job.toml")).job()
    assert job.config.attributes.to_json() == attributes
    assert (
        job.fixed_settings["attributes"]
        != make_job_file(JOB, file=Path("job.toml")).job().fixed_settings["attributes"]
    )
    for wrong in ({"price": "decimal"}, {"id": "str"}):
        with pytest.raises(InvalidInput, match="attributes must"):
            make_job_file(changed(match={"attributes": wrong}), file=Path("job.toml"))


def test_a_window_is_by_count_or_by_time():
    by_count = make_job_file(changed(window={"count": 7}), file=Path("job.toml"))
    by_time = make_job_file(changed(window={"seconds": 1.5}), file=Path("job.toml"))
    assert (by_count.job().config.window, by_time.job().config.window) == (nc.CountWindow(7), nc.TimeWindow(1.5))


@pytest.mark.parametrize(
    ("tables", "clock"),
    [
        ({}, "event"),
        ({"window": {"count": 7}}, "event"),
        ({"window": {"seconds": 60}}, "wall"),
        ({"window": {"seconds": 60}, "run": {"trigger": "available now"}}, "event"),
        ({"window": {"seconds": 60}, "run": {"clock": "event"}}, "event"),
        ({"window": {"count": 7}, "run": {"clock": "wall", "trigger": "available now"}}, "wall"),
    ],
)
def test_the_clock_is_that_of_the_job_where_a_quiet_stream_has_to_expire(tables, clock):
    job = make_job_file(changed(**tables), file=Path("job.toml")).job()
    assert job.clock == clock and job.ahead_s == 300
    assert job.fixed_settings["clock"] == clock


def test_paths_are_relative_to_the_file(tmp_path):
    plan = make_job_file(JOB, file=tmp_path / "job.toml")
    assert plan.resolve("messages") == str(tmp_path / "messages")
    assert plan.resolve("/messages") == "/messages"
    assert plan.resolve("hdfs://name/messages") == "hdfs://name/messages"
    assert plan.resolve("file:/messages") == "file:/messages"


@pytest.mark.parametrize("trigger", ["available now", "200 milliseconds", "1 minute 30 seconds", "0 seconds"])
def test_a_trigger_is_an_interval_or_now(trigger):
    assert make_job_file(changed(run={"trigger": trigger}), file=Path("job.toml")).run.trigger == trigger


BAD = {
    "blocks have columns of their own": (
        changed(messages={"format": "arrow", "select": ["said AS text"]}),
        r"select must be left out for the format 'arrow'; got \['said AS text'\] \(\[messages\]",
    ),
    "a table is missing": (changed(updates=None), r"job must have the tables \['updates'\]"),
    "a table is unknown": (
        changed(sink={}),
        r"sink must be one of \['balance', 'edges', 'match', 'messages'.*; got \{\} \(job\)",
    ),
    "a table is none": (changed(window=5), r"window must be a table; got 5"),
    "a key is missing": (changed(run=None) | {"run": {}}, r"checkpoint must be given; got None \(\[run\]\)"),
    "a key is unknown": (
        changed(run={"triger": "1 day"}),
        r"triger must be one of \['checkpoint', 'clock', 'max_ahead', 'state', 'trigger'\]",
    ),
    "a string is a number": (changed(run={"trigger": 5}), r"trigger must be a string; got 5 \(\[run\]\)"),
    "a number is a string": (changed(match={"shards": "two"}), r"shards must be an integer; got 'two'"),
    "a number is a boolean": (changed(match={"shards": True}), r"shards must be an integer; got True"),
    "an item is no number": (changed(space={"bounds": [0, 0, 1, "x"]}), r"bounds must be a number; got 'x'"),
    "bounds are too few": (changed(space={"bounds": [0, 0, 1]}), r"bounds must be \[xmin, ymin, xmax, ymax\]"),
    "bounds are the wrong way round": (
        changed(space={"bounds": [5, 0, 1, 1]}),
        r"xmin must not exceed xmax; got 5.0",
    ),
    "a metric is unknown": (changed(space={"metric": "taxi"}), r"metric must be one of .*; got 'taxi' \(\[space\]\)"),
    "a trigger is no interval": (changed(run={"trigger": "often"}), r"trigger must be 'available now' or .*'often'"),
    "a clock is unknown": (changed(run={"clock": "moon"}), r"clock must be one of \['wall', 'event'\]; got 'moon'"),
    "a limit has no clock": (changed(run={"max_ahead": 5}), r"max_ahead must be left out unless the clock is 'wall'"),
    "a limit is negative": (
        changed(run={"clock": "wall", "max_ahead": -1}),
        r"max_ahead must be a number of seconds",
    ),
    "a window is both": (changed(window={"count": 1, "seconds": 1}), r"window must have one of count and seconds"),
    "a window is neither": (changed(window={}), r"window must have one of count and seconds; got \[\]"),
    "a window is empty": (changed(window={"seconds": 0}), r"seconds must be a finite number .*; got 0"),
    "there are no shards": (changed(match={"shards": 0}), r"shards must be an integer of 1 or more; got 0"),
    "a partitioner is unknown": (changed(match={"partitioner": "x"}), r"partitioner must be one of .*; got 'x'"),
    "there are too many shards": (changed(match={"shards": 4_097}), r"shards must be at most 4096; got 4097"),
    "a routing is named twice": (
        changed(match={"partitioner": "dkm", "routing": "r"}),
        r"routing must be left out where a partitioner is named; got 'r' \(\[match\]\)",
    ),
    "an analyzer is unknown": (changed(match={"analyzer": "x"}), r"analyzer must be one of .*'x'"),
    "a similarity is unknown": (changed(match={"text_similarity": "x"}), r"text_similarity must be one of .*'x'"),
    "words come from nowhere": (changed(vocabulary={}), r"vocabulary must have one of file and learn; got \[\]"),
    "no words are counted": (changed(vocabulary={"learn": "a", "rows": 0}), r"rows must be 1 or more; got 0"),
    "files have no folder": (
        changed(updates=None) | {"updates": {"format": "csv"}},
        r"path must be given for .*'csv'",
    ),
    "a name has dots": (
        changed(messages={"options": {"a": {"b": 1}}}),
        r"options must map names, in quotes if .*\{'a'",
    ),
    "a sink is a source": (
        changed(updates={"path": "./messages"}),
        r"path must be a place that no other .*messages'",
    ),
    "a sink is the state": (
        changed(updates={"path": "shards"}, run={"state": "shards"}),
        r"path must be a place that no other",
    ),
    "a column of a sink is no expression": (changed(updates={"select": [1]}), r"select must be a string; got 1"),
    "a sink is the checkpoint": (changed(updates={"path": "checkpoint"}), r"path must be a place that no other"),
}


@pytest.mark.parametrize(("content", "words"), BAD.values(), ids=BAD)
def test_a_job_that_breaks_a_rule_is_refused(content, words):
    with pytest.raises(InvalidInput, match=words):
        make_job_file(content, file=Path("job.toml"))


def test_an_error_names_the_file(tmp_path):
    file = tmp_path / "job.toml"
    with pytest.raises(StateError, match=r"job\.toml must be a job file: No such file"):
        read_job_file(file)
    file.write_text("[space\n")
    with pytest.raises(StateError, match=r"job\.toml must be TOML: .*line 1"):
        read_job_file(file)
    file.write_bytes(b"\xff")
    with pytest.raises(StateError, match=r"job\.toml must be TOML: .*utf-8"):
        read_job_file(file)
    file.write_text("[run]\nspeed = 3\n")
    with pytest.raises(InvalidInput, match=r"speed must be one of .*; got 3 \(\[run\], .*job\.toml\)"):
        read_job_file(file)


def test_the_documented_job_is_valid():
    file = ROOT / "examples" / "job.toml"
    plan = read_job_file(file)
    assert plan.vocabulary is not None and plan.window is not None and plan.rejected is not None
    assert plan.job().config.bodies
    assert f"```toml\n{file.read_text()}```" in (ROOT / "docs" / "spark.md").read_text(), "the docs show another job"


def test_a_job_draws_a_hash_key_once_and_keeps_it(tmp_path):
    plan = make_job_file(JOB, file=tmp_path / "job.toml")
    assert hash_key_of(plan) is None
    drawn = hash_key_of(plan, draw=True)
    assert drawn is not None and len(drawn) == 16
    assert hash_key_of(plan) == hash_key_of(plan, draw=True) == drawn
    other = make_job_file(JOB, file=tmp_path / "other" / "job.toml")
    assert hash_key_of(other, draw=True) != drawn
    jobs = [plan.job(hash_key=key) for key in (drawn, DEFAULT_HASH_KEY)]
    assert jobs[0].fixed_settings["hash_key"] != jobs[1].fixed_settings["hash_key"]
    assert drawn.hex() not in repr(jobs[0]) + repr(jobs[0].fixed_settings)


def test_a_job_hashes_with_the_key_of_its_routing(tmp_path):
    plan = make_job_file(changed(match={"routing": "fitted.routing"}), file=tmp_path / "job.toml")
    routing, hash_key = fit("knn_space", Sample.none(), n_shards=2), bytes(range(16))
    (tmp_path / "fitted.routing").write_bytes(pack(routing, hash_key=hash_key))
    assert hash_key_of(plan) == hash_key_of(plan, draw=True) == hash_key
    (tmp_path / "fitted.routing").write_bytes(pack(routing))
    assert hash_key_of(plan, draw=True) not in (None, hash_key)


def test_a_file_that_nests_too_deeply_is_refused(tmp_path):
    (tmp_path / "job.toml").write_text("a = " + "[" * 3000)
    with pytest.raises(StateError, match="must be TOML: it nests too deeply"):
        read_job_file(tmp_path / "job.toml")


@pytest.mark.parametrize("text", ["[" * 20_000, "{", '"jazz"', '{"weights": {"jazz": 1e999}}'])
def test_a_vocabulary_that_cannot_be_read_is_refused(tmp_path, text):
    (tmp_path / "vocabulary.json").write_text(text)
    plan = make_job_file(changed(vocabulary={"file": "vocabulary.json"}), file=tmp_path / "job.toml")
    with pytest.raises(InvalidInput, match="vocabulary"):
        vocabulary_of(plan)


@pytest.mark.parametrize(
    "text", [b"user,place\nann,caf\xe9\n", b"us\xe9r,place\nann,cafe\n", b"\xff", b"user,place\nann\n"]
)
def test_a_social_graph_that_cannot_be_read_is_refused(tmp_path, text):
    (tmp_path / "edges.csv").write_bytes(text)
    plan = make_job_file(changed(social={"file": "edges.csv"}), file=tmp_path / "job.toml")
    with pytest.raises(InvalidInput, match="file must hold the columns user and place"):
        social_of(plan)


@pytest.mark.parametrize("data", [b"", b"PK", b"x" * 40, pack(HashRouting(3))[:-30], pack(HashRouting(3))[40:]])
def test_a_routing_that_cannot_be_read_is_refused(tmp_path, data):
    (tmp_path / "routing.bin").write_bytes(data)
    plan = make_job_file(changed(match={"routing": "routing.bin"}), file=tmp_path / "job.toml")
    with pytest.raises(InvalidInput, match="routing must be a file that `nearcast advise --save` wrote"):
        routing_of(plan)
