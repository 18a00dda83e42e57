import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from nearcast.workload.sample import TermRanks, start_of

rows_of_terms = st.lists(st.lists(st.integers(0, 12), max_size=8), max_size=12)


def texts_of(rows):
    flat = [term for row in rows for term in row]
    return TermRanks(start_of(np.array([len(row) for row in rows], dtype=np.int64)), np.array(flat, dtype=np.int64))


def rows_of(texts):
    return [texts.ranks[a:b].tolist() for a, b in zip(texts.indptr[:-1], texts.indptr[1:], strict=True)]


@given(rows_of_terms)
def test_distinct_keeps_the_first_of_each_term_in_order(rows):
    assert rows_of(texts_of(rows).distinct()) == [list(dict.fromkeys(row)) for row in rows]


@given(rows_of_terms, st.data())
def test_take_gathers_rows(rows, data):
    wanted = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=20)) if rows else []
    taken = texts_of(rows).take(np.array(wanted, dtype=np.int64))
    assert rows_of(taken) == [rows[row] for row in wanted]


@given(rows_of_terms, st.data())
def test_put_replaces_only_the_given_rows(rows, data):
    places = data.draw(st.lists(st.integers(0, len(rows) - 1), unique=True)) if rows else []
    others = [[100 + place] * (place % 3) for place in places]
    put = texts_of(rows).put(np.array(places, dtype=np.int64), texts_of(others))
    expected = list(rows)
    for place, other in zip(places, others, strict=True):
        expected[place] = other
    assert rows_of(put) == expected


@given(rows_of_terms, st.integers(0, 12), st.integers(0, 99), st.data())
def test_pick_draws_terms_of_a_row_and_includes_a_wanted_one(rows, rare_from, seed, data):
    texts = texts_of(rows).distinct()
    counts = np.array([data.draw(st.integers(1, 6)) for _ in rows], dtype=np.int64)
    rare = texts.ranks >= rare_from
    picked = rows_of(texts.pick(np.random.default_rng(seed), counts, one_of=rare))
    for row, some, count in zip(rows_of(texts), picked, counts, strict=True):
        assert len(some) == len(set(some)) == min(count, len(row))
        assert set(some) <= set(row)
        assert any(term >= rare_from for term in some) == any(term >= rare_from for term in row)


def test_pick_gives_every_term_of_a_row_the_same_chance():
    texts = texts_of([list(range(6))] * 30_000)
    picked = texts.pick(np.random.default_rng(3), np.full(30_000, 2))
    np.testing.assert_allclose(np.bincount(picked.ranks) / 30_000, 1 / 3, atol=0.015)


def test_any_flags_rows_and_not_empty_ones():
    texts = texts_of([[1, 9], [], [2]])
    assert texts.any(texts.ranks > 5).tolist() == [True, False, False]


def test_spelt_rows_are_lists_of_words():
    assert texts_of([[1, 0], [], [1]]).spelt(pa.array(["ba", "xu"])).to_pylist() == [["xu", "ba"], [], ["xu"]]
