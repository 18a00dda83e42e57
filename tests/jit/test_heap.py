import os
import tempfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast._jit import (
    ENTERED,
    EVICTED,
    GREATEST,
    REFUSED,
    SMALLEST,
    Arena,
    Heaps,
    heap_allot,
    heap_replace,
    heap_sorted,
    heap_worst,
)
from nearcast.errors import InvalidInput, StateError

thorough = settings(
    max_examples=int(os.environ.get("NEARCAST_TEST_EXAMPLES", "100")), deadline=None, derandomize=True, database=None
)

orders = st.sampled_from([GREATEST, SMALLEST])
scores = st.sampled_from([0.0, 0.25, 0.5, 0.5, 1.0, float("inf"), float("-inf")]) | st.floats(allow_nan=False)


def best_first(pairs, order):
    """The tie rule, spelled out: greater and newer, or smaller and older."""
    if order == GREATEST:
        return sorted(pairs, key=lambda pair: (-pair[0], -pair[1]))
    return sorted(pairs, key=lambda pair: (pair[0], pair[1]))


def kept(heaps, row):
    found_scores, found_seqs = heaps.sorted(row)
    return list(zip(found_scores.tolist(), found_seqs.tolist(), strict=True))


@thorough
@given(orders, st.integers(1, 9), st.lists(scores, max_size=60))
def test_a_heap_keeps_the_k_best_of_a_stream(order, k, stream):
    heaps, model = Heaps(Arena(), "h", order=order), []
    heaps.allot([0], [k])
    for seq, score in enumerate(stream, start=1):
        outcome = heaps.push(0, score, seq)
        model = best_first([*model, (score, seq)], order)
        if len(model) <= k:
            assert outcome == (ENTERED, 0.0, -1)
        else:
            out = model.pop()
            assert outcome == (REFUSED if out[1] == seq else EVICTED, *out)
        assert heaps.worst(0) == model[-1]
        assert kept(heaps, 0) == model


@thorough
@given(
    orders,
    st.lists(st.tuples(st.integers(0, 2), scores, st.booleans()), max_size=60),
    st.randoms(use_true_random=False),
)
def test_rows_do_not_disturb_each_other_and_any_seq_can_be_removed(order, steps, random):
    limits = [3, 7, 1]
    heaps, models = Heaps(Arena(), "h", order=order), [[], [], []]
    heaps.allot([0, 1, 2], limits)
    for seq, (row, score, remove) in enumerate(steps, start=1):
        if remove and models[row]:
            gone = random.choice(models[row])
            assert heaps.remove(row, gone[1])
            models[row].remove(gone)
        heaps.push(row, score, seq)
        models[row] = best_first([*models[row], (score, seq)], order)[: limits[row]]
        assert not heaps.remove(row, -5)
    assert [kept(heaps, row) for row in range(3)] == models


def test_of_equal_scores_the_newer_stays_among_the_greatest():
    heaps = Heaps(Arena(), "h", order=GREATEST)
    heaps.allot([0], [2])
    assert [heaps.push(0, 0.5, seq)[0] for seq in (1, 2, 3)] == [ENTERED, ENTERED, EVICTED]
    assert kept(heaps, 0) == [(0.5, 3), (0.5, 2)]


def test_of_equal_scores_the_older_stays_among_the_smallest():
    heaps = Heaps(Arena(), "h", order=SMALLEST)
    heaps.allot([0], [2])
    assert [heaps.push(0, 0.5, seq)[0] for seq in (1, 2, 3)] == [ENTERED, ENTERED, REFUSED]
    assert kept(heaps, 0) == [(0.5, 1), (0.5, 2)]


@pytest.mark.parametrize(("order", "worst"), [(GREATEST, float("-inf")), (SMALLEST, float("inf"))])
def test_the_worst_of_an_empty_heap_is_worse_than_all(order, worst):
    heaps = Heaps(Arena(), "h", order=order)
    heaps.allot([0], [3])
    assert heaps.worst(0) == (worst, -1)


def test_replacing_puts_even_a_worse_one_in_the_place_of_the_worst():
    heaps = Heaps(Arena(), "h", order=GREATEST)
    heaps.allot([0], [3])
    for seq, score in enumerate((0.3, 0.9, 0.6), start=1):
        heaps.push(0, score, seq)
    assert heap_replace(heaps.arrays, 0, 0.1, 4) == (0.3, 1)
    assert heap_worst(heaps.arrays, 0) == (0.1, 4)
    assert kept(heaps, 0) == [(0.9, 2), (0.6, 3), (0.1, 4)]


def test_buffers_that_are_too_short_stay_untouched():
    heaps = Heaps(Arena(), "h", order=GREATEST)
    heaps.allot([0], [3])
    for seq in (1, 2, 3):
        heaps.push(0, 0.5, seq)
    out = np.zeros(2), np.zeros(2, np.int64)
    assert heap_sorted(heaps.arrays, 0, *out) == 3
    assert not out[1].any()


def test_allotting_stops_at_the_row_that_does_not_fit():
    heaps = Heaps(Arena(), "h", order=GREATEST)
    heaps.allot([0, 1], [4, 4])  # the pool has 8 places now, and 8 rows
    rows, limits = np.array([0, 1, 1]), np.array([3, 4, 5], np.int32)
    assert heap_allot(heaps.arrays, rows, limits, 0) == 2
    assert heaps.arrays.limits[:2].tolist() == [3, 4]


def test_a_row_keeps_its_block_when_it_is_large_enough_and_compacting_closes_gaps():
    heaps = Heaps(Arena(), "h", order=GREATEST)
    heaps.allot([0, 1, 2], [4, 2, 3])
    heaps.push(1, 0.5, 9)
    heaps.push(2, 0.5, 8)
    heaps.allot([0], [2])
    assert heaps.arrays.offsets[0] == 0
    heaps.allot([0], [6])  # moves to the end and leaves 4 places behind
    heaps.push(0, 0.5, 7)
    assert heaps.arrays.state.tolist() == [GREATEST, 15, 4]
    heaps.compact()
    assert heaps.arrays.state.tolist() == [GREATEST, 11, 0]
    assert heaps.arrays.offsets[:3].tolist() == [5, 0, 2]
    assert [kept(heaps, row) for row in range(3)] == [[(0.5, 7)], [(0.5, 9)], [(0.5, 8)]]


@thorough
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6), st.booleans()), max_size=40))
def test_rows_may_be_allotted_again_in_any_size(steps):
    heaps, models = Heaps(Arena(), "h", order=SMALLEST), {}
    for seq, (row, limit, compact) in enumerate(steps):
        heaps.allot([row], [limit])
        for place in range(limit):
            heaps.push(row, float(place), seq * 10 + place)
        models[row] = [(float(place), seq * 10 + place) for place in range(limit)]
        if compact:
            heaps.compact()
        assert {row: kept(heaps, row) for row in models} == models


def test_rows_that_were_never_allotted_are_refused():
    heaps = Heaps(Arena(), "h", order=GREATEST)
    with pytest.raises(InvalidInput, match=r"row must be in \[0, 0\), allotted before; got 0"):
        heaps.push(0, 0.5, 1)
    with pytest.raises(InvalidInput, match="limit must be at least 1; got 0"):
        heaps.allot([0], [0])


def test_a_pool_is_not_opened_in_another_order():
    arena = Arena()
    Heaps(arena, "h", order=GREATEST)
    with pytest.raises(StateError, match="heaps 'h' have order 1; asked for -1"):
        Heaps(arena, "h", order=SMALLEST)


def test_heaps_go_on_after_load_and_after_attach():
    with tempfile.TemporaryDirectory() as folder:
        arena = Arena()
        heaps = Heaps(arena, "h", order=GREATEST)
        heaps.allot([0], [2])
        heaps.push(0, 0.5, 1)
        arena.save(folder)
        for reopened in (Arena.load(folder), Arena.attach(folder)):
            heaps = Heaps(reopened, "h", order=GREATEST)
            heaps.push(0, 0.7, 2)
            heaps.allot(np.arange(1, 200), np.full(199, 10))
            heaps.push(199, 0.1, 3)
            assert (kept(heaps, 0), kept(heaps, 199)) == ([(0.7, 2), (0.5, 1)], [(0.1, 3)])
        assert kept(Heaps(Arena.attach(folder), "h", order=GREATEST), 199) == [(0.1, 3)]
