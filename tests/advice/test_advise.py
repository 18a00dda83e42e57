"""`nearcast advise` estimates every partitioner and presents the report."""

import json
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nearcast.advice import generated
from nearcast.advice.report import adjusted_costs, recommend_measured
from nearcast.advice.shard_costs import Adjusting, ShardCosts, adjusting_of
from nearcast.advice.trial import Trial, measure_constants
from nearcast.cli import main
from nearcast.partition import PARTITIONERS, Sample
from nearcast.partition.balance.policy import Balance
from nearcast.partition.estimate import Constants, MergeCost, estimate_partitioners, recommend
from nearcast.partition.serialization import unpack

NAMES = [partitioner.name for partitioner in PARTITIONERS]
SMALL = ["--subscriptions", "300", "--sample", "400", "--shards", "4"]
FIGURES = {
    "name", "replication", "reach", "dropped", "busiest_us", "merging_us", "adjusted_us", "moved_per_message",
    "total_load", "busy_max_over_mean", "busy_max_over_min",
    "load_max_over_mean", "load_max_over_min", "own_load_max_over_mean", "own_load_max_over_min", "fit_seconds",
    "placed_per_second", "routed_per_second", "messages_per_second", "replicas_after_run",
}  # fmt: skip


def advise(capsys, *words):
    assert main(["advise", *SMALL, *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


class Page(HTMLParser):
    """Counts maps and rows, records what a page would fetch, and checks that every tag is closed."""

    EMPTY = ("meta", "!doctype")

    def __init__(self, text):
        super().__init__()
        self.maps, self.n_rows, self.fetched, self.open = [], 0, [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.fetched += [value for name, value in attrs.items() if name in ("src", "href") and value[:1] != "#"]
        self.maps += [attrs["aria-label"]] if attrs.get("class") == "map" else []
        self.n_rows += tag == "tr"
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_every_partitioner_is_estimated_and_run_and_one_is_recommended(capsys, tmp_path):
    page, routing = tmp_path / "page.html", tmp_path / "routing"
    report = advise(capsys, "--html", str(page), "--save", str(routing))
    assert [row["name"] for row in report["partitioners"]] == NAMES
    assert all(set(row) == FIGURES for row in report["partitioners"])
    assert all(row["messages_per_second"] > 0 and row["replicas_after_run"] >= 1 for row in report["partitioners"])
    assert (report["subscriptions"], report["messages"], report["shards"]) == (300, 400, 4)
    assert report["kinds"] == ["boolean"]
    assert report["recommended"] in NAMES and report["reason"]
    assert set(report["constants"]) == {"check", "handle", "insert"}
    assert unpack(routing.read_bytes()).n_shards == 4
    read = Page(page.read_text(encoding="utf-8"))
    spatial = {f"map of {name}" for name in ("location", "space_grid", "space_kd", "knn_space", "spatial_first")}
    assert spatial <= set(read.maps)
    assert "map of hash" not in read.maps
    assert read.n_rows == len(NAMES) + 1
    assert read.fetched == []


def test_the_table_shows_the_recommendation_and_the_reason(capsys):
    assert main(["advise", *SMALL, "--partitioner", "space_kd", "--partitioner", "hash"]) == 0
    out = capsys.readouterr().out
    assert "300 boolean subscriptions, 400 messages, 4 threads" in " ".join(out.split())
    assert "space_kd" in out and "location" not in out
    assert "messages per second in a short run" in out
    assert "replicas: shards that hold a subscription" in " ".join(out.split())
    assert "reach: shards that receive a message" in " ".join(out.split())


def test_the_recommendation_follows_the_runs_when_there_are_runs():
    stream = generated("tweets", ["boolean"], n_subscriptions=60, n_messages=80, window=10)
    partitioners = [one for one in PARTITIONERS if one.name in ("hash", "space_kd")]
    estimates = estimate_partitioners(stream.sample, n_shards=2, partitioners=partitioners)

    def recommended(hash_rate, kd_rate):
        trials = {"hash": Trial(hash_rate, 1.0), "space_kd": Trial(kd_rate, 1.0)}
        return recommend_measured(estimates, trials)

    taken, reason = recommended(100.0, 160.0)
    assert taken.name == "space_kd"
    assert reason == "it handled 160 messages per second in a short run, and hash, the simplest, 100"
    taken, reason = recommended(100.0, 105.0)
    assert taken.name == "hash"
    assert "no other was faster by more than a tenth" in reason


def test_processes_are_not_run_and_do_not_share_messages(capsys):
    report = advise(capsys, "--processes", "--partitioner", "hash", "--partitioner", "space_kd")
    rows = {row["name"]: row for row in report["partitioners"]}
    assert rows["hash"]["reach"] == 4 and rows["space_kd"]["reach"] == 1
    assert rows["hash"]["messages_per_second"] is None


def test_for_processes_and_stateful_kinds_the_cost_of_merging_counts(capsys):
    words = ["--processes", "--kind", "nearest", "--partitioner", "space_kd", "--partitioner", "hash"]
    report = advise(capsys, *words)
    rows = {row["name"]: row for row in report["partitioners"]}
    assert report["merging"]["change_us"] > 0 and report["merging"]["changes"] > 0
    assert report["move_us"] > 0
    assert rows["hash"]["merging_us"] == 0.0
    merging, replicas = report["merging"], rows["space_kd"]["replication"]
    expected = merging["change_us"] * merging["changes"] * replicas / 4
    assert rows["space_kd"]["merging_us"] == pytest.approx(expected, rel=0.01), "replicas are rounded"
    assert advise(capsys, "--processes", "--partitioner", "hash")["merging"] is None, "boolean stores no results"


def test_the_recommendation_changes_with_the_cost_of_merging():
    stream = generated("tweets", ["nearest"], n_subscriptions=400, n_messages=400, window=10)
    partitioners = [one for one in PARTITIONERS if one.name in ("hash", "space_kd")]

    def recommended(change_us):
        merging = MergeCost(change_us, changes=10.0)
        constants = Constants(check=1e-9, handle=10.0, insert=1.0)
        return recommend(
            estimate_partitioners(
                stream.sample, n_shards=4, partitioners=partitioners, constants=constants, in_threads=False,
                merging=merging,
            )
        )[0].name  # fmt: skip

    assert recommended(0.01) == "space_kd"
    assert recommended(10.0) == "hash"


def test_the_recommendation_changes_with_the_cost_of_moving():
    stream = generated("tweets", ["boolean"], n_subscriptions=300, n_messages=400, window=10)
    partitioners = [one for one in PARTITIONERS if one.name in ("space_grid", "space_kd")]
    estimates = estimate_partitioners(stream.sample, n_shards=4, partitioners=partitioners, in_threads=False)
    estimates = [replace(one, busy_us=np.full(4, 10.0)) for one in estimates]

    def adjusted(move_us):
        costs = ShardCosts(move_us, None)
        return adjusted_costs(estimates, {"space_kd": Adjusting(busiest=0.5, moved=0.1)}, costs)

    taken, reason = recommend(estimates, adjusted_us=adjusted(10.0))
    assert (taken.name, adjusted(10.0)) == ("space_kd", {"space_kd": 6.0})
    assert reason.startswith("its busiest shard works 6 microseconds a message if its load is adjusted")
    assert recommend(estimates, adjusted_us=adjusted(100.0))[0].name == "space_grid"
    trials = {name: Trial(100.0, 1.0) for name in ("space_grid", "space_kd")}
    taken, reason = recommend_measured(estimates, trials, adjusted_us=adjusted(10.0))
    assert taken.name == "space_kd"
    assert reason.startswith("it would handle 167 messages per second with load adjustment, and handled 100 in a")
    assert recommend_measured(estimates, trials, adjusted_us=adjusted(100.0))[0].name == "space_grid"


def test_an_adjustment_is_found_where_later_messages_are_elsewhere():
    stream = generated("tweets", ["boolean"], n_subscriptions=2_000, n_messages=2_000, window=10)
    footprints, messages = stream.sample
    sample = Sample(footprints, messages.take(np.argsort(messages.xs, kind="stable")))
    named = {one.name: one for one in PARTITIONERS}

    def found(name, *, in_threads=False):
        return adjusting_of(named[name], sample, n_shards=4, in_threads=in_threads, balance=Balance())

    adjusting = found("space_kd")
    assert adjusting is not None
    assert 0 < adjusting.busiest < 0.8
    assert adjusting.moved > 0
    assert found("hash") is None, "it has no cells"
    assert found("location", in_threads=True) is None, "threads share all subscriptions"


def test_kinds_can_be_mixed(capsys):
    kinds = ["boolean", "nearest", "social"]
    words = [word for kind in kinds for word in ("--kind", kind)]
    report = advise(capsys, *words, "--window", "100", "--partitioner", "hash", "--partitioner", "dkm")
    assert report["kinds"] == kinds
    assert report["subscriptions"] == 300


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Write messages as JSON lines and subscriptions as Parquet."""
    folder, stream = (
        tmp_path_factory.mktemp("files"),
        generated("places", ["boolean", "nearest"], n_subscriptions=60, n_messages=80, window=10),
    )
    messages, subscriptions = folder / "messages.ndjson", folder / "subscriptions.parquet"
    rows = stream.messages.select(["id", "x", "y", "text"]).to_pylist()
    messages.write_text("".join(json.dumps(row | {"other": 1}) + "\n" for row in rows))
    leaving = pa.table({"op": ["unsubscribe"], "id": ["gone"]})
    pq.write_table(pa.concat_tables([stream.subscriptions, leaving], promote_options="permissive"), subscriptions)
    return messages, subscriptions


def test_files_are_read_by_their_endings(files, capsys):
    words = ["--messages-file", str(files[0]), "--subscriptions-file", str(files[1]), "--partitioner", "hash"]
    report = advise(capsys, *words)
    assert (report["subscriptions"], report["messages"], report["kinds"]) == (60, 80, ["boolean", "nearest"])
    assert report["stream"] == "messages.ndjson and subscriptions.parquet"
    few = advise(capsys, *words, "--kind", "nearest", "--sample", "50", "--metric", "euclidean")
    assert (few["subscriptions"], few["messages"], few["kinds"]) == (30, 50, ["nearest"])


@pytest.mark.parametrize(("x", "y"), [("lon", "lat"), ("longitude", "latitude")])
def test_longitude_and_latitude_of_files_are_coordinates(x, y, files, capsys, tmp_path):
    def renamed(row):
        return {{"x": x, "y": y}.get(name, name): value for name, value in row.items() if value is not None}

    messages, subscriptions = tmp_path / "messages.jsonl", tmp_path / "subscriptions.jsonl"
    rows = [json.loads(line) for line in files[0].read_text().splitlines()]
    messages.write_text("".join(json.dumps(renamed(row)) + "\n" for row in rows))
    rows = pq.read_table(files[1]).to_pylist()
    subscriptions.write_text("".join(json.dumps(renamed(row), default=str) + "\n" for row in rows))
    words = ["--messages-file", str(messages), "--subscriptions-file", str(subscriptions), "--partitioner", "hash"]
    report = advise(capsys, *words)
    assert (report["subscriptions"], report["messages"], report["kinds"]) == (60, 80, ["boolean", "nearest"])


def test_a_file_of_lines_without_coordinates_lacks_columns(files, capsys, tmp_path):
    messages = tmp_path / "messages.jsonl"
    messages.write_text(json.dumps({"id": "m1", "text": "coffee"}) + "\n")
    assert main(["advise", "--messages-file", str(messages), "--subscriptions-file", str(files[1])]) == 2
    assert "messages-file must have the columns ['x', 'y']; got ['id', 'text']" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "published"),
    [
        (["--messages-file", "{messages}"], "subscriptions-file must be given too; got None"),
        (["--subscriptions-file", "{messages}"], "messages-file must be given too; got None"),
        (["--messages-file", "none.json", "--subscriptions-file", "{subscriptions}"], "messages-file must exist; got"),
        (["--messages-file", "{text}", "--subscriptions-file", "{subscriptions}"], "messages-file must be Parquet or"),
        (["--messages-file", "{subscriptions}", "--subscriptions-file", "{messages}"], "must have the columns ['text']"),
        (["--messages-file", "{broken}", "--subscriptions-file", "{subscriptions}"], "broken.json cannot be read"),
        (["--messages-file", "{messages}", "--subscriptions-file", "{subscriptions}", "--kind", "topk"],
         "subscriptions-file must hold rows to learn from; got 0"),
        (["--shards", "4097"], "n_shards must be between 1 and 4096; got 4097"),
    ],
)  # fmt: skip
def test_bad_options_are_refused_with_field_rule_and_value(words, published, files, capsys, tmp_path):
    text, broken = tmp_path / "messages.txt", tmp_path / "broken.json"
    text.write_text("hello")
    broken.write_text('{"id": ')
    places = {"messages": files[0], "subscriptions": files[1], "text": text, "broken": broken}
    assert main(["advise", *(word.format(**places) for word in words)]) == 2
    assert published in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "published"),
    [
        (["--kind", "magic"], "argument --kind: invalid choice: 'magic'"),
        (["--workload", "magic"], "argument --workload: invalid choice: 'magic'"),
        (["--partitioner", "magic"], "argument --partitioner: invalid choice: 'magic'"),
        (["--shards", "0"], "must be a whole number of 1 or more; got '0'"),
    ],
)
def test_unknown_names_are_refused(words, published, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["advise", *words])
    assert stopped.value.code == 2
    assert published in capsys.readouterr().err


@pytest.mark.parametrize("n_subscriptions", [1, 3, 50])
def test_constants_are_above_zero_however_small_the_stream(n_subscriptions):
    stream = generated("places", ["nearest"], n_subscriptions=n_subscriptions, n_messages=40, window=10)
    assert min(measure_constants(stream)) > 0
