"""Sentences of the pages follow from the numbers."""

import pytest
from experiments.data_file import Record
from experiments.pages.markdown import join, paragraph, provenance, table
from experiments.pages.sentences import gain_verdict, shape, verdict


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1.0, 2.0, 3.0], "grows"),
        ([3.0, 2.0, 1.0], "falls"),
        ([3.0, 1.0, 3.0], "falls, then grows"),
        ([1.0, 3.0, 1.0], "grows, then falls"),
        ([1.0, 1.05, 1.02], "hardly changes"),
    ],
)
def test_the_course_of_values_has_words(values, words):
    assert shape(values) == words


def test_a_gain_agrees_is_smaller_or_differs():
    assert gain_verdict(9.0, 10) == verdict(True)
    assert "smaller" in gain_verdict(1.5, 10)
    assert gain_verdict(1.0, 10) == verdict(False)


def test_a_paragraph_has_short_lines_and_whole_code():
    command = "`python -m experiments " + "growth " * 5 + "`"
    text = paragraph(*["word " * 30, command] * 3)
    assert text.count(command) == 3
    assert max(map(len, text.splitlines())) <= 120


def test_a_table_has_a_cell_per_name_and_blocks_an_empty_line_between_them():
    assert table(["a", "b"], [[1, "x"]]) == "| a | b |\n|---|---|\n| 1 | x |"
    assert join("a", "", "b") == "a\n\nb"


def test_records_of_one_commit_and_machine_share_a_sentence():
    records = [
        Record("first", "c1", "m", []),
        Record("second", "c1", "m", []),
        Record("third", "c2", "m", [], 2.0, 0.5),
    ]
    assert provenance(*records).replace("\n", " ") == (
        "Measured at commit c1 on m, by `first` and `second`. Measured at commit c2 on m, by `third`, in 2.0 minutes"
        " with a load average of 0.5 at the start."
    )
