"""The commands of the command line."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import nearcast as nc
from nearcast._jit import cache_folder
from nearcast.cli import main, serve
from nearcast.cli.city_job import NAME, write_job
from nearcast.cli.run import settings_of
from nearcast.errors import InvalidInput
from nearcast.jobs.client import JobClient, subscribed
from nearcast.jobs.inputs import hash_key_of
from nearcast.jobs.job_file import read_job_file
from nearcast.model import KINDS
from nearcast.service.json_bodies import message_from
from nearcast.service.store.cursor import Cursor
from nearcast.service.store.journal import JournalReader
from nearcast.workload.city import City
from service.serve_process import wait_ready
from sink_rows import committed_rows

ROOT = Path(__file__).parents[2]
NEARCAST = [sys.executable, "-m", "nearcast.cli"]

FIGURES = {
    "messages_per_second", "p50_ms", "p99_ms", "updates", "build_seconds", "peak_rss_mb", "visited", "candidates",
    "verified", "matched",
}  # fmt: skip


def bench(capsys, *words):
    assert main(["bench", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("kind", [kind.kind for kind in KINDS])
def test_bench_prints_one_object_with_all_figures(kind, capsys):
    report = bench(capsys, kind, "--subscriptions", "60", "--messages", "40", "--window", "30", "--batch", "7")
    assert set(report) >= FIGURES
    assert report["kind"] == kind
    assert report["visited"] >= report["candidates"] >= report["verified"] >= report["matched"]
    assert report["messages_per_second"] > 0
    assert report["p50_ms"] <= report["p99_ms"]
    assert ("step_ms" in report) == (kind == "nearest")


def test_two_runs_with_one_seed_emit_the_same_updates(capsys):
    words = ["topk", "--subscriptions", "200", "--messages", "100", "--window", "50", "--k", "5"]
    first, second = bench(capsys, *words), bench(capsys, *words)
    other = bench(capsys, *words, "--seed", "1")
    assert first["updates"] == second["updates"] > 0
    assert first["updates"] != other["updates"]
    shared = bench(capsys, *words, "--workers", "3")
    assert shared["updates"] == first["updates"]


def test_a_baseline_runs_on_the_same_messages(capsys):
    report = bench(
        capsys, "nearest", "--subscriptions", "50", "--messages", "20", "--window", "10", "--baseline", "scan"
    )
    assert set(report["baseline"]) >= FIGURES
    assert report["baseline"]["updates"] == report["updates"]
    assert report["ratio"] == pytest.approx(
        report["messages_per_second"] / report["baseline"]["messages_per_second"], rel=1e-3
    )


@pytest.mark.parametrize("queries", ["q1", "q2", "q3"])
def test_boolean_queries_can_be_chosen(queries, capsys):
    words = ["boolean", "--subscriptions", "40", "--messages", "10", "--queries", queries, "--index", "scan"]
    assert bench(capsys, *words)["visited"] == 400


def test_the_indexes_of_the_papers_can_be_baselines(capsys, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    words = ["boolean", "--subscriptions", "3000", "--messages", "200", "--baseline", "gi2"]
    report = bench(capsys, *words)
    assert report["baseline"]["updates"] == report["updates"] > 0
    assert main(["bench", "social", "--subscriptions", "3", "--messages", "2", "--baseline", "gi2"]) == 2
    assert "baseline must be one of ['scan', 'baseline1'," in capsys.readouterr().err


def test_without_json_a_table_is_printed(capsys):
    assert main(["bench", "boolean", "--subscriptions", "20", "--messages", "10", "--baseline", "scan"]) == 0
    out = capsys.readouterr().out
    assert "messages_per_second" in out and "ratio" in out


@pytest.mark.parametrize(
    ("words", "published"),
    [
        (["bench", "magic"], "invalid choice"),
        (["bench", "topk", "--subscriptions", "0"], "must be a whole number of 1 or more; got '0'"),
        (["bench", "topk", "--messages", "many"], "must be a whole number of 0 or more; got 'many'"),
        (["bench", "topk", "--max-distance", "-3"], "must be a number of 0 or more; got '-3'"),
        (["bench", "topk", "--workload", "magic"], "invalid choice"),
        ([], "COMMAND"),
    ],
)
def test_bad_arguments_are_explained(words, published, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    assert published in capsys.readouterr().err


def test_an_error_of_the_engine_is_printed_in_one_line(capsys):
    assert main(["bench", "topk", "--subscriptions", "5", "--messages", "5", "--k", "20_000"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("nearcast: k must be at most 10000; got 20000")
    assert "Traceback" not in err


def test_the_version_is_printed(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"nearcast {nc.__version__}\n"


@pytest.mark.parametrize(
    ("text", "window"),
    [("5min", {"window_seconds": 300.0}), ("1h", {"window_seconds": 3600.0}), ("100k", {"window_count": 100_000})],
)
def test_a_service_takes_negative_bounds_and_windows_with_units(text, window, monkeypatch):
    taken = []
    monkeypatch.setattr(serve, "run", lambda options: taken.append(serve._config(options)) or 0)
    assert main(["serve", "--data", "new", "--bounds", "-10,35,30,60", "--window", text]) == 0
    (config,) = taken
    assert config.bounds == (-10.0, 35.0, 30.0, 60.0)
    assert {name: getattr(config, name) for name in window} == window


@pytest.mark.parametrize(
    ("options", "clock"),
    [(["--window", "1h"], "wall"), (["--window", "9"], "wall"), (["--window", "1h", "--clock", "event"], "event")],
)
def test_a_service_has_a_wall_clock_unless_another_is_given(options, clock, monkeypatch):
    taken = []
    monkeypatch.setattr(serve, "run", lambda options: taken.append((serve._config(options), options.max_ahead)) or 0)
    assert main(["serve", "--data", "new", "--bounds", "0,0,1,1", "--max-ahead", "60", *options]) == 0
    assert [(config.clock, max_ahead) for config, max_ahead in taken] == [(clock, 60.0)]


def test_a_service_declares_attributes(monkeypatch, capsys):
    taken = []
    monkeypatch.setattr(serve, "run", lambda options: taken.append(serve._config(options)) or 0)
    arguments = ["serve", "--data", "new", "--bounds", "0,0,1,1", "--attributes"]
    assert main([*arguments, "price=float, category=str"]) == 0
    assert taken[0].attributes == {"price": "float", "category": "str"}
    assert main([*arguments, "price=money"]) == 2
    assert "attributes must map names to float, int, str or bool; got {'price': 'money'}" in capsys.readouterr().err
    for text in ("price", "=float", "price=float,price=int"):
        with pytest.raises(SystemExit):
            main([*arguments, text])
        assert "must be NAME=TYPE,... with different names" in capsys.readouterr().err


def test_help_imports_no_heavy_library():
    """Help must be fast; imports can be tested without a clock."""
    code = (
        "import sys\n"
        "from nearcast.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('numba', 'pyspark', 'rich', 'hypothesis') if m in sys.modules], file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stderr.strip() == "[]"
    assert "demo" in ran.stdout and "bench" in ran.stdout


@contextmanager
def demo(*words):
    """Run the demo in its own process group, as a terminal does; yield the process and the address of the map."""
    command = [*NEARCAST, "demo", "--port", "0", "--subscriptions", "40", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as ran:  # fmt: skip
        lines = iter(ran.stdout.readline, "")
        published = next((line for line in lines if "live map is at" in line), None)
        assert published is not None, ran.stderr.read()
        yield ran, published.partition(" at ")[2].split()[0]


def test_the_embedded_demo_serves_a_city_until_it_is_stopped_and_leaves_no_files(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with demo("--embedded") as (ran, address), httpx.Client(base_url=address, timeout=600) as client:
        assert "<title>Nearcast</title>" in client.get("/").text
        wait_ready(client)
        while not (subscriptions := client.get("/v1/subscriptions").json()["subscriptions"]):
            pass
        kinds = Counter(one["kind"] for one in subscriptions)
        assert set(kinds.values()) == {8} and len(kinds) == 5
        with client.stream("GET", "/v1/updates/events") as updates:
            assert any(line == "event: update" for line in updates.iter_lines()), "the city emits updates"
        assert any(tmp_path.iterdir())
        os.killpg(ran.pid, signal.SIGTERM)
        out, err = ran.communicate()
    assert ran.returncode == 0, err
    assert "nearcast: stopping\n" in out and " updates" in out and "Traceback" not in err
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(httpx.ConnectError):
        httpx.get(address)


def test_the_map_opens_while_kernels_are_compiled_and_ctrl_c_ends_that(tmp_path, monkeypatch):
    monkeypatch.setenv("NEARCAST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with demo("--embedded") as (ran, address), httpx.Client(base_url=address, timeout=600) as client:
        assert "<title>Nearcast</title>" in client.get("/").text
        while "compiling kernels" not in (answer := client.get("/health/ready")).json()["detail"]:
            pass
        assert answer.status_code == 503
        os.killpg(ran.pid, signal.SIGINT)
        out, err = ran.communicate()
    assert ran.returncode == 0, err
    assert "nearcast: stopping\n" in out and "Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def city_engine(city, job):
    """Return one engine for the city of the demo, which hashes as its job does."""
    hash_key = hash_key_of(read_job_file(job))
    assert hash_key is not None
    options = {"vocabulary": city.vocabulary(), "window": nc.TimeWindow(300), "social": city.social}
    return nc.Engine(space=city.space, hash_key=hash_key, **options)


def city_updates(job, *, messages, subscriptions, seed=0):
    """Return the updates of one engine for the city of the demo."""
    city = City(seed=seed)
    engine = city_engine(city, job)
    engine.subscribe(city.subscriptions(subscriptions))
    return Counter(
        (u.seq, u.subscription, u.message, u.change, u.score) for u in engine.publish(list(city.messages(messages)))
    )


def committed(folder):
    """Return the updates that a job has committed."""
    return Counter(
        (row["seq"], row["subscription"], row["message"], row["change"], row["score"])
        for row in committed_rows(folder / "updates")
    )


def test_the_demo_on_spark_serves_the_results_of_one_engine(tmp_path, capsys):
    folder = tmp_path / "city"
    with demo("--messages", "60", "--master", "local[2]", "--folder", str(folder)) as (ran, address):
        assert httpx.get(f"{address}/v1/config").json()["window_seconds"] == 300
        out, err = ran.communicate()
    assert ran.returncode == 0, err
    assert "starting Spark" in err and "WARN" not in err and "Traceback" not in err, "Spark writes to its log"
    journal = JournalReader(folder / "data" / "journal.sqlite")
    published = [message_from(body) for body in journal.newest_messages(1000)]
    emitted = journal.updates("local", after=Cursor(0, 0), up_to=Cursor(1 << 40, 0), limit=10_000)
    journal.close()
    city = City()
    engine = city_engine(city, folder / "job" / NAME)
    engine.subscribe(city.subscriptions(40))
    expected = Counter((u.seq, u.subscription, u.message, u.change, u.score) for u in engine.publish(published))
    names = ("seq", "subscription", "message", "change", "score")
    assert Counter(tuple(json.loads(one.body)[name] for name in names) for one in emitted) == expected
    assert f"60 messages published, {expected.total():,} updates" in out

    assert main(["demo", "--folder", str(folder)]) == 2, "a folder that is not empty is refused"
    assert f"folder must be empty or new; got {str(folder)!r}" in capsys.readouterr().err


@pytest.mark.soak
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_job_continues_where_it_stopped(tmp_path, number):
    """The process group is interrupted, as terminals and service managers do it; then the same command runs again."""
    n_files, a_file = 3, 20
    city = City()
    job = write_job(tmp_path, city, window_s=300)
    link = JobClient(read_job_file(job))
    link.write_operations("all.json", [subscribed(one, order=i) for i, one in enumerate(city.subscriptions(40))])
    rows = list(city.messages(n_files * a_file))
    for i in range(n_files):
        link.write_messages(f"{i}.json", rows[i * a_file : (i + 1) * a_file])
        os.utime(tmp_path / "messages" / f"{i}.json", (1_000_000 + i, 1_000_000 + i))  # Spark takes older files first
    text = job.read_text().replace('"200 milliseconds"', '"available now"')
    one_by_one = 'path = "messages"\noptions = {maxFilesPerTrigger = 1}'
    job.write_text(text.replace('path = "messages"', one_by_one))

    words = [*NEARCAST, "run", str(job), "--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as ran:
        first = json.loads(ran.stdout.readline())
        os.killpg(ran.pid, number)
        _, err = ran.communicate()
    assert ran.returncode == 130, err
    assert "the same command continues from here" in err and "Traceback" not in err
    assert first["messages"] > 0
    expected = city_updates(job, messages=n_files * a_file, subscriptions=40)
    assert committed(tmp_path) < expected, "stopped before the end"

    again = subprocess.run(words, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    last = json.loads(again.stdout.splitlines()[-1])
    assert 0 < last["messages"] < n_files * a_file, "committed batches are not repeated"
    assert (last["subscriptions"], last["rejected"], last["late"]) == (40, 0, 0)
    assert committed(tmp_path) == expected


def test_an_invalid_job_file_does_not_start_spark(tmp_path, capsys):
    file = tmp_path / "job.toml"
    assert main(["run", str(file)]) == 2
    assert f"nearcast: {file} must be a job file: No such file" in capsys.readouterr().err
    file.write_text("[space]\nbounds = 3\n")
    assert main(["run", str(file)]) == 2
    err = capsys.readouterr().err
    assert err == f"nearcast: bounds must be a list; got 3 ([space], {file})\n"


def test_settings_of_spark_are_keys_and_values(capsys):
    assert settings_of(["a.b=c=d", "e="]) == {"a.b": "c=d", "e": ""}
    for wrong in ("nothing", "=x"):
        with pytest.raises(InvalidInput, match=f"conf must be NAME=VALUE; got '{wrong}'"):
            settings_of([wrong])


def test_compilation_is_reported_once_and_not_if_the_code_is_stored(tmp_path):
    """All kernels but one are copied from an existing cache, so that little is compiled."""
    script = [sys.executable, ROOT / "examples" / "boolean.py"]

    def errors(**environment):
        return subprocess.run(script, env=os.environ | environment, capture_output=True, text=True, check=True).stderr

    errors()
    lacking = tmp_path / cache_folder().name
    lacking.mkdir()
    for path in cache_folder().glob("nearcast.*.code"):
        if not path.name.startswith("nearcast.engine._kernels.registry.find_ids-"):
            shutil.copy(path, lacking)
    line = "Nearcast compiles its kernels, once per machine; `nearcast warmup` does this in advance.\n"
    assert [errors(NEARCAST_CACHE=str(tmp_path)), errors(NEARCAST_CACHE=str(tmp_path))] == [line, ""]
