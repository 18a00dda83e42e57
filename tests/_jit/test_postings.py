import os
import tempfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast._jit import (
    Arena,
    Postings,
    kernel,
    postings_append_many,
    postings_copy,
    postings_first,
    postings_next,
    postings_remove_at,
)
from nearcast.errors import InvalidInput, StateError

thorough = settings(
    max_examples=int(os.environ.get("NEARCAST_TEST_EXAMPLES", "100")), derandomize=True, database=None
)

rows = st.integers(0, 4)
items = st.integers(0, 8) | st.integers(-(2**31), 2**31 - 1)
sizes = st.sampled_from([1, 2, 4, 16])
dtypes = st.sampled_from([np.int32, np.int64])
steps = st.lists(
    st.tuples(st.sampled_from(["append", "append", "append", "remove"]), rows, items)
    | st.tuples(st.sampled_from(["clear", "compact"]), rows, st.just(0)),
    max_size=100,
)


def remove_from(model, item):
    """Remove an item as the postings do: the last item fills the gap."""
    if item not in model:
        return False
    place, last = model.index(item), model.pop()
    if place < len(model):
        model[place] = last
    return True


def check(postings, model):
    """Compare the lists, and check that every chunk is either free or on exactly one list."""
    assert {row: postings[row].tolist() for row in model} == model
    arrays = postings.arrays
    on_lists = sum(-(-len(items) // arrays.items.shape[1]) for items in model.values())
    free, chunk = 0, int(arrays.state[1])
    while chunk != -1:
        free, chunk = free + 1, int(arrays.nexts[chunk])
    assert on_lists + free == arrays.state[0]


@thorough
@given(sizes, dtypes, steps)
def test_postings_behave_like_lists(chunk_size, dtype, steps):
    postings, model = Postings(Arena(), "p", chunk_size=chunk_size, dtype=dtype), {row: [] for row in range(5)}
    for step, row, item in steps:
        if step == "append":
            postings.append(row, item)
            model[row].append(item)
        elif step == "remove":
            assert postings.remove(row, item) == remove_from(model[row], item)
        elif step == "clear":
            postings.clear(row)
            model[row] = []
        else:
            postings.compact()
            assert postings.arrays.state[1] == -1  # nothing is free
    check(postings, model)


@thorough
@given(sizes, st.lists(st.tuples(rows, items), max_size=300))
def test_batches_equal_single_calls(chunk_size, pairs):
    postings, model = Postings(Arena(), "p", chunk_size=chunk_size), {row: [] for row in range(5)}
    postings.append_many([row for row, _ in pairs], [item for _, item in pairs])
    for row, item in pairs:
        model[row].append(item)
    check(postings, model)


@kernel
def total_even(postings, row):
    """Read a list chunk by chunk, as other kernels do."""
    total = 0
    chunk, n = postings_first(postings, row)
    while n > 0:
        for place in range(n):
            if postings.items[chunk, place] % 2 == 0:
                total += postings.items[chunk, place]
        chunk, n = postings_next(postings, row, chunk)
    return total


@kernel
def keep_even(postings, row):
    """Remove items while reading a list."""
    chunk, n = postings_first(postings, row)
    while n > 0:
        place = 0
        while place < n:
            if postings.items[chunk, place] % 2 == 0:
                place += 1
            else:
                n = postings_remove_at(postings, row, chunk, place)
        if n > 0:
            chunk, n = postings_next(postings, row, chunk)


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 8, 33])
def test_kernels_walk_a_list_chunk_by_chunk(length):
    postings = Postings(Arena(), "p", chunk_size=4)
    postings.reserve_rows(2)
    postings.append_many(np.ones(length, np.int64), np.arange(length))
    assert total_even(postings.arrays, 1) == sum(range(0, length, 2))


@thorough
@given(st.lists(st.integers(0, 20), max_size=40))
def test_kernels_remove_while_they_walk(numbers):
    postings = Postings(Arena(), "p", chunk_size=4, rows=1)
    postings.append_many([0] * len(numbers), numbers)
    keep_even(postings.arrays, 0)
    assert sorted(postings[0].tolist()) == sorted(number for number in numbers if number % 2 == 0)


def test_a_batch_stops_where_the_chunks_end_and_can_be_resumed():
    postings = Postings(Arena(), "p", chunk_size=4, rows=3)
    rows, numbers = np.array([0, 1, 2] * 20), np.arange(60)
    postings.reserve_chunks(2)  # gives 8, of 4 places each
    stopped = postings_append_many(postings.arrays, rows, numbers, 0)
    # Chunks are taken in rounds of three: the last list of the third round needs a ninth.
    assert stopped == 26
    assert postings[2].tolist() == [2, 5, 8, 11, 14, 17, 20, 23]
    postings.reserve_chunks(20)
    assert postings_append_many(postings.arrays, rows, numbers, stopped) == 60
    assert postings[2].tolist() == list(range(2, 60, 3))


def test_a_buffer_that_is_too_short_stays_untouched():
    postings = Postings(Arena(), "p")
    postings.append_many([0, 0, 0], [1, 2, 3])
    out = np.zeros(2, np.int64)
    assert postings_copy(postings.arrays, 0, out) == 3
    assert not out.any()


def test_freed_chunks_are_reused_by_any_list():
    postings = Postings(Arena(), "p", chunk_size=2)
    for round_ in range(50):
        postings.append_many([round_ % 5] * 6, range(6))
        postings.clear(round_ % 5)
    assert postings.arrays.state[0] == 3


def test_compacting_frees_memory():
    arena = Arena()
    postings = Postings(arena, "p", chunk_size=4)
    postings.append_many(np.arange(4000) % 10, np.arange(4000))
    for row in range(1, 10):
        postings.clear(row)
    before = arena.nbytes
    postings.compact()
    assert arena.nbytes < before / 5
    assert postings[0].tolist() == list(range(0, 4000, 10))
    assert postings.arrays.nexts[:3].tolist() == [1, 2, 3]  # side by side


def test_unused_rows_are_empty():
    postings = Postings(Arena(), "p")
    assert (postings[3].tolist(), postings.remove(3, 1)) == ([], False)
    postings.clear(3)
    with pytest.raises(InvalidInput, match="row must be at least 0; got -1"):
        postings.append(-1, 5)


def test_items_that_do_not_fit_are_refused():
    with pytest.raises(InvalidInput, match=r"column must fit int32; got \[4294967296\]"):
        Postings(Arena(), "p", dtype=np.int32).append(0, 2**32)


def test_wrong_chunk_sizes_are_refused():
    arena = Arena()
    with pytest.raises(InvalidInput, match="chunk_size must be a power of two; got 12"):
        Postings(arena, "p", chunk_size=12)
    Postings(arena, "p", chunk_size=8)
    with pytest.raises(StateError, match="postings 'p' must have 8 int64 per chunk"):
        Postings(arena, "p", chunk_size=4)


def test_postings_continue_after_load_and_after_attach():
    with tempfile.TemporaryDirectory() as folder:
        arena = Arena()
        Postings(arena, "p", chunk_size=2).append_many([0, 1, 0, 0], [1, 2, 3, 4])
        arena.save(folder)
        for reopened in (Arena.load(folder), Arena.attach(folder)):
            postings = Postings(reopened, "p", chunk_size=2)
            postings.append_many(np.arange(200), np.arange(200))
            assert postings.remove(0, 3)
            postings.compact()
            assert postings[0].tolist() == [1, 0, 4]
        assert Postings(Arena.attach(folder), "p", chunk_size=2)[199].tolist() == [199]
