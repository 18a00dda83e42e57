"""A check measures again, compares with the data, and leaves the data as it is."""

import pytest
from experiments.data_file import Record, write_record
from experiments.question import Question

from experiments import check


@pytest.fixture
def data(tmp_path, monkeypatch):
    def now(scale):
        return [{"command": "fast", "messages_per_second": 98.0}, {"command": "slow", "messages_per_second": 50.0}]

    monkeypatch.setattr(check, "QUESTIONS", {"a": Question("a", "?", {"x": now, "new": now}, minutes=1)})
    before = [{"command": name, "messages_per_second": 100.0} for name in ("fast", "slow", "gone")]
    write_record(tmp_path, "a", "x", Record("command", "0123abc", "machine", before))
    return tmp_path


def test_a_check_prints_ratios_and_marks_what_is_slower(data, capsys):
    content = (data / "a.json").read_text()
    assert check.main(["a", "--data", str(data)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "a/x, against commit 0123abc:",
        "  fast: 100 before, 98 now, ratio 0.98",
        "  slow: 100 before, 50 now, ratio 0.50, slower",
        "a/new: not measured before",
    ]
    assert (data / "a.json").read_text() == content


def test_an_unknown_name_is_refused(data, capsys):
    with pytest.raises(SystemExit):
        check.main(["b", "--data", str(data)])
    assert "got 'b'" in capsys.readouterr().err
