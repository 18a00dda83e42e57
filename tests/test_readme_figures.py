"""The figures of the README come from a committed data file."""

import json
from pathlib import Path

from experiments import readme_figures
from experiments.headline import DATA, RUNS

ROOT = Path(__file__).parents[1]


def test_the_readme_shows_the_recorded_figures():
    recorded = json.loads(DATA.read_text())
    readme = (ROOT / "README.md").read_text()
    assert readme_figures.render(readme, recorded) == readme


def test_every_figure_has_its_command_commit_and_machine():
    recorded = json.loads(DATA.read_text())
    assert set(recorded) == set(RUNS)
    for run in recorded.values():
        assert run["command"].startswith("nearcast bench ") and run["commit"] and run["machine"]
        assert run["figures"]["messages_per_second"] > 0
