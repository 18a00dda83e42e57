"""Changes of results in columns: messages named once, parts merged by step, and the matches of a part."""

import numpy as np
import pytest

from nearcast.model import IdColumn, Matches
from nearcast.window._kernels.changes import name_once
from nearcast.window._kernels.parts import part_of
from nearcast.window.own_matches import own_matches
from nearcast.window.result_store import Changes

RNG = np.random.default_rng(5)


def test_numbers_are_named_once_in_the_order_of_first_occurrence():
    numbers, places = np.array([70, 9, 70, 64, 9, 70]), np.full(64, -1, np.int32)
    rows, named = np.empty(6, np.int64), np.empty(6, np.int64)
    n = name_once(numbers, places, rows, named)
    assert named[:n].tolist() == [70, 9, 64]
    assert rows.tolist() == [0, 1, 0, 2, 1, 0]
    assert (places == -1).all(), "ready for the next batch"


def random_changes(n, n_steps, name):
    steps = np.sort(RNG.integers(3, 3 + n_steps, n))
    n_ids = max(1, n // 2)
    return Changes(
        steps,
        RNG.integers(0, 99, n).astype(np.int32),
        RNG.random(n) < 0.5,
        RNG.random(n),
        IdColumn.of([f"{name}{i}" for i in range(n_ids)]),
        RNG.integers(0, 99, n_ids),
        RNG.integers(0, n_ids, n),
        n_matched=n // 3,
    )


def listed(changes):
    rows = range(len(changes.steps)) if changes.rows is None else changes.rows.tolist()
    columns = (column.tolist() for column in changes[:4])
    return [(*values, changes.ids[row], int(changes.seqs[row])) for *values, row in zip(*columns, rows, strict=True)]


@pytest.mark.parametrize("sizes", [(5, 9), (40, 0), (0, 3), (0, 0), (30, 20, 25), (1, 1)])
@pytest.mark.parametrize("rows_are_given", [True, False])
def test_parts_are_merged_by_step_and_in_their_order_within_a_step(sizes, rows_are_given):
    parts = [random_changes(n, 6, name) for n, name in zip(sizes, "abc", strict=False)]
    if not rows_are_given:
        parts = [part._replace(ids=part.ids.take(part.rows), seqs=part.seqs[part.rows], rows=None) for part in parts]
    expected = sorted((row for part in parts for row in listed(part)), key=lambda row: row[0])
    merged = Changes.merged(parts)
    assert listed(merged) == expected
    assert merged.n_matched == sum(part.n_matched for part in parts)


@pytest.mark.parametrize("n_pieces", [1, 2, 5])
def test_pieces_of_changes_follow_each_other(n_pieces):
    parts = [random_changes(50, 20, "a"), random_changes(70, 20, "b")]
    pieces = [Changes.merged(piece) for piece in Changes.divided(parts, n_pieces)]
    assert len(pieces) == n_pieces
    assert [row for piece in pieces for row in listed(piece)] == listed(Changes.merged(parts))
    assert [piece.n_matched for piece in pieces] == [50 // 3 + 70 // 3] + [0] * (n_pieces - 1)


@pytest.mark.parametrize("n_parts", [1, 2, 3])
def test_each_match_that_reaches_its_threshold_belongs_to_one_part(n_parts):
    n = 200
    found = Matches(np.sort(RNG.integers(0, 9, n)), RNG.integers(0, 40, n).astype(np.int32), RNG.random(n))
    thresholds = np.full(40, 0.5, np.float32)
    for limits, reach in ((thresholds, found.scores >= 0.5), (thresholds[:0], np.ones(n, bool))):
        for part in range(n_parts):
            own = own_matches(found, part, n_parts, limits)
            chosen = reach & (part_of(found.slots, n_parts) == part)
            assert [column.tolist() for column in own] == [column[chosen].tolist() for column in found]
