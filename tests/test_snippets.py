"""Every snippet of README and docs runs as it would when pasted into a new script or shell, in an empty folder."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from nearcast.advice import generated
from nearcast.cli import main, warmup
from nearcast.cli.city_job import write_job
from nearcast.service import server
from nearcast.workload.city import City

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "how-to").glob("*.md"))]
ENVIRONMENT = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
SMALL = {
    "advise": ["--subscriptions", "60", "--sample", "80", "--partitioner", "hash"],
    "bench": ["--subscriptions", "60", "--messages", "40", "--window", "30", "--batch", "7"],
    "serve": ["--port", "0"],
}
"""Command to options that keep a run short, or out of the way of other runs."""


def snippets(language):
    """Return the snippets of a language as parameters: page and code."""
    found = [
        (page.name, code)
        for page in PAGES
        for code in re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.M | re.S)
    ]
    return [pytest.param(code, id=f"{page}-{number}") for number, (page, code) in enumerate(found)]


def nearcast_commands():
    """Return every line of a shell snippet that runs `nearcast`, without the comment at its end."""
    lines = [line for snippet in snippets("sh") for line in snippet.values[0].splitlines()]
    commands = [shlex.split(line, comments=True) for line in lines if re.match(r"(\.venv/bin/)?nearcast ", line)]
    return [pytest.param(words[1:], id=" ".join(words[1:])) for words in commands if "--new-token" not in words]


def run_script(code, folder, *arguments):
    script = folder / "snippet.py"
    script.write_text(code)
    command = [sys.executable, script, *arguments]
    ran = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def is_on_spark(snippet):
    return "from nearcast.spark import" in snippet.values[0]


@pytest.mark.parametrize("code", [one for one in snippets("python") if not is_on_spark(one)])
def test_a_python_snippet_runs(code, tmp_path):
    run_script(code, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("code", [one for one in snippets("python") if is_on_spark(one)])
def test_a_snippet_on_spark_runs_alone(code, tmp_path):
    run_script(code, tmp_path)


def test_the_snippets_on_spark_run_one_after_the_other(tmp_path):
    """One session serves all of them, since starting one takes longer than they do."""
    codes = [one.values[0] for one in snippets("python") if is_on_spark(one)]
    assert len(codes) > 1
    for i, code in enumerate(codes):
        (tmp_path / f"{i}.py").write_text(code)
    run_all = "import runpy, sys\nfor name in sys.argv[1:]:\n    runpy.run_path(name)\n"
    run_script(run_all, tmp_path, *(f"{i}.py" for i in range(len(codes))))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with the files that commands of the documentation name."""
    monkeypatch.chdir(tmp_path)
    stream = generated("places", ["nearest"], n_subscriptions=60, n_messages=80, window=10)
    rows = stream.messages.select(["id", "x", "y", "text"]).to_pylist()
    Path("messages.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(stream.subscriptions, "subscriptions.parquet")
    write_job(tmp_path, City(), window_s=300).rename("job.toml")
    assert main(["serve", "--tokens", "tokens.toml", "--new-token", "ann"]) == 0
    return tmp_path


@pytest.mark.parametrize("words", nearcast_commands())
def test_a_command_runs(words, folder, monkeypatch):
    started = []
    monkeypatch.setattr(warmup, "warm_kinds", lambda: None)
    for name in ("run_small_city", "publish_small_city"):
        monkeypatch.setattr(warmup, name, lambda: None)
    monkeypatch.setattr(server, "serve", lambda service, bound, on_start: started.append(service))
    is_new = not {"--city", "--bounds", "--spark"} & set(words)
    if words[0] == "serve" and is_new:
        words = [*words, "--city"]  # the text says that the folder exists
    assert main([*words, *SMALL.get(words[0], [])]) == 0
    assert len(started) == (words[0] == "serve")
