"""Every page can be generated, and the committed pages are those of the committed data files."""

import re
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
from experiments.data_file import FOLDER, Record, write_record
from experiments.pages.command_line import main
from experiments.pages.generator import NAMES, PAGES, generate
from experiments.pages.page import Data
from experiments.pages.readme_figures import BEGIN, END, NEEDS
from experiments.registry import QUESTIONS

from experiments import (
    baselines,
    command_line,
    growth,
    headline,
    nearest_k,
    social_windows,
    spark_batches,
    topk_alternatives,
    topk_sweeps,
    topk_tuning,
    workers,
)

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "docs" / "benchmarks"
RECORDED = ("balance", "filters", "many-shards", "merge-stage", "partitioners", "rescaling", "topk-windows")
"""Questions whose committed data stands in for a measurement, which takes too long here."""
MADE_UP = ("cliffs",)
"""Questions whose rows are made up here, part by part."""
MEASURED = Data(FOLDER)
HAVE_DATA = [name for name, page in PAGES.items() if all(map(MEASURED.has, page.needs))]


def bench_row(kind, *, scale=1.0, **options):
    """Return a row as `nearcast bench` gives it, with made-up figures."""
    work = dict.fromkeys(("updates", "visited", "candidates", "verified", "matched"), 5_000)
    figures = {"messages_per_second": 2e9 / options["subscriptions"], "p50_ms": 1.0, "p99_ms": 2.0, "step_ms": 9.5}
    row = {"command": f"nearcast bench {kind}", "kind": kind, "window": 1_000, "k": 20, **options, **figures, **work}
    row |= {"build_seconds": 0.5, "peak_rss_mb": 300.0}
    if "baseline" in options:
        row["baseline"] = {"name": options["baseline"], "messages_per_second": 1e3, "step_ms": 20.0}
        row["ratio"] = row["messages_per_second"] / 1e3
    if "spark" in options:
        stages = ("planning_s", "log_s", "reading_shuffle_rows_s", "state_s", "matching_s")
        others = ("batch_s", "batch_of_100_p50_s", "first_batch_s", "restart_engines_lost_s", "ratio")
        row["spark"] = dict.fromkeys((*stages, *others), 0.5) | {"messages_per_second": 1e4}
    return row


def topk_rows(*settings):
    """Return rows as runs of top-k give them, with made-up figures."""
    names = ("both_us", "arrivals_us", "expiries_us", "updates", "searches", "buffer", "visited", "candidates")
    return [asdict(one) | {"batch": 500, "batches": 20} | dict.fromkeys(names, 10.0 + one.k) for one in settings]


def cliffs_rows(part):
    """Return rows as a part of the question gives them, with made-up figures."""
    names = ("us_per_message", "updates_per_message", "us_per_update", "terms_per_message", "longest_ms", "results")
    more = ("us_to_subscribe", "us_to_delete", "mean_ms", "p50_ms", "p99_ms", "ratio")
    case = "first" if part == "first" else "uniform"
    row = {"kind": "boolean", "case": case, "workload": "tweets", "subscriptions": 9, "window": 9, "calls": 9}
    return [row | dict.fromkeys((*names, *more), 1.0), row | dict.fromkeys((*names, *more), 0.5)]


@pytest.fixture
def data(monkeypatch, tmp_path):
    """Measure every question with made-up figures into a folder."""
    for module in (baselines, growth, headline, nearest_k, social_windows, spark_batches, workers):
        monkeypatch.setattr(module, "bench", bench_row)
    for module in (topk_tuning, topk_alternatives, topk_sweeps):
        for name, fake in (
            ("by_count", topk_rows),
            ("by_time", topk_rows),
            ("measure", lambda setting: topk_rows(setting)[0]),
            ("register_baselines", lambda: None),
            ("_register", lambda name, create, result_store: name),
        ):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, fake)
    monkeypatch.setattr(topk_tuning.window, "register", lambda entry: None)
    monkeypatch.setattr(command_line, "repository_commit", lambda: "0123abc")
    folder = tmp_path / "data"
    names = [name for name in QUESTIONS if name not in (*RECORDED, *MADE_UP)]
    assert command_line.main([*names, "--data", str(folder)]) == 0
    for name in RECORDED:
        shutil.copy(FOLDER / f"{name}.json", folder)
    for part in QUESTIONS["cliffs"].parts:
        command = f"python -m experiments cliffs/{part}"
        write_record(folder, "cliffs", part, Record(command, "0123abc", "a machine", cliffs_rows(part)))
    return folder


def test_every_page_and_plot_is_generated_from_the_rows_that_questions_measure(data, tmp_path):
    out, readme = tmp_path / "pages", tmp_path / "PROJECT.md"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    assert main(["--data", str(data), "--out", str(out), "--readme", str(readme)]) == 0
    assert {path.stem for path in out.glob("*.md")} == set(PAGES)
    drawn = {path.name for path in out.glob("*.svg")}
    shown = {name for page in out.glob("*.md") for name in re.findall(r"\]\(([^)]+\.svg)\)", page.read_text())}
    assert drawn == shown and len(drawn) > 20
    assert shown <= {path.name for path in BENCHMARKS.glob("*.svg")}
    for page in out.glob("*.md"):
        text = page.read_text()
        assert "Measured at commit" in text and "python -m experiments" in text
    assert readme.read_text().startswith("before") and readme.read_text().endswith("after\n")
    assert "old" not in readme.read_text() and "nearcast bench topk" in readme.read_text()


def test_every_part_is_shown_somewhere():
    needs = {*NEEDS, *(need for page in PAGES.values() for need in page.needs)}
    parts = {f"{name}/{part}" for name, question in QUESTIONS.items() for part in question.parts}
    assert {part for part in parts if part not in needs and part.partition("/")[0] not in needs} == set()
    assert {need for need in needs if need not in parts and need not in QUESTIONS} == set()


def test_the_same_data_gives_the_same_plot(tmp_path):
    for folder in (tmp_path / "first", tmp_path / "second"):
        generate(["topk-windows"], data=MEASURED, out=folder, readme=tmp_path / "README.md", report=lambda line: None)
    plots = [(tmp_path / folder / "topk-windows.svg").read_bytes() for folder in ("first", "second")]
    assert plots[0] == plots[1]


def test_a_page_without_data_is_reported_and_stays_as_it_is(tmp_path):
    (tmp_path / "README.md").write_text("as it was")
    lines = []
    skipped = generate(NAMES, data=Data(tmp_path), out=tmp_path, readme=tmp_path / "README.md", report=lines.append)
    assert skipped == list(NAMES)
    assert (tmp_path / "README.md").read_text() == "as it was"
    assert any("growth/topk" in line for line in lines if line.startswith("topk:"))
    assert main(["topk", "--data", str(tmp_path), "--out", str(tmp_path)]) == 1, "a page that was named has no data"


def test_committed_pages_are_those_of_the_committed_data(tmp_path):
    assert {"partitioners", "topk-windows"} <= set(HAVE_DATA)
    generate(HAVE_DATA, data=MEASURED, out=tmp_path, readme=tmp_path / "README.md", report=lambda line: None)
    for name in HAVE_DATA:
        generated = (tmp_path / f"{name}.md").read_text()
        assert generated == (BENCHMARKS / f"{name}.md").read_text(), f"run python -m experiments.pages {name}"
    for plot in tmp_path.glob("*.svg"):
        assert (BENCHMARKS / plot.name).exists(), f"{plot.name} is not committed"


def test_the_readme_shows_the_recorded_figures(tmp_path):
    shutil.copy(ROOT / "README.md", tmp_path)
    assert main(["figures", "--out", str(tmp_path), "--readme", str(tmp_path / "README.md")]) == 0
    assert (tmp_path / "README.md").read_text() == (ROOT / "README.md").read_text()
