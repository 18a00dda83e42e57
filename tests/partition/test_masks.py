"""Masks are sets of any number of shards, and keys move only to shards that are new."""

import os
import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from modes import MODES, check_passes
from nearcast.errors import InvalidInput
from nearcast.partition.masks import (
    MAX_SHARDS,
    add_shard,
    all_shards,
    are_empty,
    as_ints,
    before_it,
    check_shards,
    count_rows,
    count_shards,
    from_arrow,
    has_shard,
    mask_of,
    masks_of,
    no_shards,
    place_by_key,
    rows_of_shards,
    shards_by_key,
    to_arrow,
    united,
)

SMALL = "NEARCAST_TEST_SMALL" in os.environ
SIZES = [1, 2, 63, 64, 65, 128, 130, 200]


def drawn(n_shards, n=60):
    """Return sets of shards, some empty and one of all shards, and the same as masks."""
    rng = random.Random(n_shards)
    sets = [set(rng.sample(range(n_shards), rng.choice([0, 1, min(3, n_shards), n_shards]))) for _ in range(n)]
    sets[0], sets[1] = set(), set(range(n_shards))
    pairs = np.array([(row, shard) for row, some in enumerate(sets) for shard in some])
    return sets, masks_of(pairs[:, 0].copy(), pairs[:, 1].copy(), n=n, n_shards=n_shards)


@pytest.mark.parametrize("n_shards", SIZES)
def test_masks_are_sets_of_shards(n_shards):
    sets, masks = drawn(n_shards)
    assert masks.shape == (len(sets), -(-n_shards // 64))
    assert as_ints(masks) == [sum(1 << shard for shard in some) for some in sets]
    assert are_empty(masks).tolist() == [not some for some in sets]
    assert count_shards(masks).tolist() == [len(some) for some in sets]
    assert count_rows(masks, n_shards).tolist() == [sum(s in some for some in sets) for s in range(n_shards)]
    assert from_arrow(pa.chunked_array([to_arrow(masks)])).tolist() == masks.tolist()
    rows_of = rows_of_shards(masks, n_shards)
    for shard in {0, n_shards // 2, n_shards - 1}:
        own = [row for row, some in enumerate(sets) if shard in some]
        assert np.flatnonzero(has_shard(masks, shard)).tolist() == rows_of[shard].tolist() == own
        before = [sum(1 << s for s in some if s < shard) for some in sets]
        assert as_ints(before_it(masks, shard)) == before
    assert as_ints(masks[:-1] & masks[1:]) == [sum(1 << s for s in some & other) for some, other in pairwise(sets)]
    assert as_ints(all_shards(2, n_shards)) == [(1 << n_shards) - 1] * 2
    assert as_ints(masks & ~masks) == [0] * len(sets)


@pytest.mark.parametrize("n_shards", SIZES)
def test_sets_of_one_shard_and_their_unions(n_shards):
    shards = np.arange(n_shards)
    single = mask_of(shards, n_shards)
    assert as_ints(single) == [1 << shard for shard in range(n_shards)]
    first_and_last = united(np.array([0, 2, 2, 3]), np.array([0, n_shards - 1, 0]), single)
    assert as_ints(first_and_last) == [1 | 1 << n_shards - 1, 0, 1]
    masks = no_shards(3, n_shards)
    add_shard(masks, np.array([0, 2]), n_shards - 1)
    assert as_ints(masks) == [1 << n_shards - 1, 0, 1 << n_shards - 1]
    assert as_ints(masks_of(np.array([0, 1]), np.array([-1, 0]), n=2, n_shards=n_shards)) == [0, 1]


def test_masks_of_all_shards_take_no_memory_per_row():
    assert all_shards(1_000_000, 1_024).strides[0] == 0


@pytest.mark.parametrize("n_shards", [0, -1, MAX_SHARDS + 1])
def test_numbers_of_shards_have_a_limit(n_shards):
    check_shards(MAX_SHARDS)
    with pytest.raises(InvalidInput, match=f"n_shards must be between 1 and {MAX_SHARDS}; got {n_shards}"):
        check_shards(n_shards)


def random_keys(n):
    return np.random.default_rng(n).integers(0, 2**64, n, dtype=np.uint64)


def slow_jump(key, n_shards):
    """Return the shard of a key, as figure 1 of the paper has it."""
    shard, following = -1, 0
    while following < n_shards:
        shard = following
        key = (key * 2862933555777941757 + 1) % 2**64
        following = int((shard + 1) * ((1 << 31) / ((key >> 33) + 1)))
    return shard


@pytest.mark.parametrize("n_shards", [1, 2, 7, 64, 65, 1_024, MAX_SHARDS])
def test_keys_are_placed_as_in_the_paper(n_shards):
    keys = np.append(random_keys(300), [np.uint64(0), np.uint64(2**64 - 1)])
    shards = [slow_jump(key, n_shards) for key in keys.tolist()]
    assert shards_by_key(keys, n_shards).tolist() == shards
    assert as_ints(place_by_key(keys, n_shards)) == [1 << shard for shard in shards]


@pytest.mark.parametrize("n_shards", [2, 10, 64, 1_024])
def test_keys_are_spread_evenly(n_shards):
    n = 400 * n_shards
    counts = np.bincount(shards_by_key(random_keys(n), n_shards), minlength=n_shards)
    chi_square = ((counts - n / n_shards) ** 2 / (n / n_shards)).sum()
    degrees = n_shards - 1
    assert abs(chi_square - degrees) < 5 * np.sqrt(2 * degrees)


@pytest.mark.parametrize(("n_shards", "more"), [(1, 2), (8, 9), (64, 65), (4, 6), (100, 1_024)])
def test_from_n_to_m_shards_only_those_keys_move_that_must(n_shards, more):
    keys = random_keys(50_000)
    before, after = shards_by_key(keys, n_shards), shards_by_key(keys, more)
    moved = before != after
    assert (after[moved] >= n_shards).all(), "keys move to new shards only"
    share = 1 - n_shards / more
    assert abs(moved.mean() - share) < 5 * np.sqrt(share * (1 - share) / len(keys))


@pytest.mark.soak
@pytest.mark.skipif(SMALL, reason="it would start itself again")
@pytest.mark.parametrize("mode", MODES)
def test_these_tests_pass_with(mode):
    check_passes(mode, __file__, NEARCAST_TEST_SMALL="1")
