"""The command line measures what is named and records every part at once."""

import pytest
from experiments.command_line import UnknownName, main, measure, select
from experiments.data_file import FOLDER, Record, read_records, to_json, write_record
from experiments.question import Question, scaled
from experiments.registry import QUESTIONS

from experiments import headline


def question(name, *, is_long=False, **parts):
    return Question(name, "?", parts, minutes=1, is_long=is_long)


def names(selected):
    return [f"{one.name}/{part}" for one, part in selected]


def rows_at(scale):
    return [{"scale": scale}]


def test_names_stand_for_questions_parts_and_all_but_the_long_ones():
    questions = {"a": question("a", x=rows_at, y=rows_at), "b": question("b", z=rows_at, is_long=True)}
    assert names(select(["all"], questions)) == ["a/x", "a/y"]
    assert names(select(["b", "a/y", "a"], questions)) == ["b/z", "a/y", "a/x"]
    with pytest.raises(UnknownName, match="one of a, b; got 'c'"):
        select(["c"], questions)
    with pytest.raises(UnknownName, match="a/x, a/y; got 'a/z'"):
        select(["a/z"], questions)


def test_a_part_is_recorded_before_the_next_one_starts(tmp_path):
    def fails(scale):
        assert read_records(tmp_path, "a")["x"].rows == [{"scale": 0.5}]
        raise KeyboardInterrupt

    one = question("a", x=rows_at, y=fails)
    measure(one, "x", scale=0.5, folder=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        measure(one, "y", scale=0.5, folder=tmp_path)
    (record,) = read_records(tmp_path, "a").values()
    assert record.command == "python -m experiments a/x --scale 0.5"
    assert record.commit and record.machine and record.minutes is not None and record.load is not None


def test_a_part_that_is_measured_again_replaces_its_record_and_keeps_the_others(tmp_path):
    for part, commit in (("x", "c1"), ("y", "c1"), ("x", "c2")):
        write_record(tmp_path, "a", part, Record("command", commit, "machine", [{"n": 1}, {"n": [1.5, 2.5]}]))
    assert [(part, record.commit) for part, record in read_records(tmp_path, "a").items()] == [
        ("x", "c2"),
        ("y", "c1"),
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_the_list_names_every_question_and_part(capsys):
    assert main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in QUESTIONS)
    assert all(part in listed for one in QUESTIONS.values() for part in one.parts)


@pytest.mark.parametrize("arguments", [[], ["nothing"], ["growth/nothing"]])
def test_a_name_that_is_missing_or_unknown_is_an_error(arguments):
    with pytest.raises(SystemExit):
        main(arguments)


def test_scales_keep_small_sizes():
    assert (scaled(50_000, 0.1), scaled(50_000, 0.001), scaled(300, 0.001), scaled(300, 2)) == (
        5_000,
        1_000,
        300,
        600,
    )


def test_checkouts_are_compared_in_alternating_order(monkeypatch, capsys, tmp_path):
    measured = []

    def bench(kind, *, scale, checkout, **options):
        measured.append("before" if checkout == tmp_path else "after")
        return {"messages_per_second": 100.0 if checkout == tmp_path else 150.0}

    monkeypatch.setattr(headline, "bench", bench)
    headline.compare(["boolean"], tmp_path, rounds=2)
    assert measured == ["before", "after", "after", "before"]
    assert capsys.readouterr().out == "boolean: 100 before, 150 after, ratio 1.500\n"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_every_committed_data_file_has_command_commit_and_machine(path):
    records = read_records(FOLDER, path.stem)
    assert records.keys() <= QUESTIONS[path.stem].parts.keys()
    for record in records.values():
        assert record.command and record.commit and record.machine and record.rows
    assert path.read_text() == to_json(records)
