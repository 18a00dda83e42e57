"""Weights of whole columns equal those of single rows bit by bit."""

import itertools

import numpy as np
import pytest

from nearcast.text import Vocabulary, add_up, to_units


def rows_of(rng, n_rows, ids):
    lengths = rng.integers(0, 12, n_rows)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    return indptr, rng.choice(ids, indptr[-1]), rng.integers(1, 4, indptr[-1]).astype(np.int32)


@pytest.mark.parametrize("n_known", [1, 2, 3, 1_000, 5_000])
def test_kernels_give_the_weights_of_numpy(n_known):
    rng = np.random.default_rng(n_known)
    known = np.unique(rng.integers(-(2**63), 2**63 - 1, n_known))
    known[0], known[-1] = -(2**63), 2**63 - 1
    vocabulary = Vocabulary.with_weights({"other": 3.5})
    vocabulary.__dict__["_by_id"] = known, rng.random(n_known)  # ids that no word is known for
    unknown = rng.integers(-(2**63), 2**63 - 1, 50)
    indptr, ids, counts = rows_of(rng, 200, np.concatenate([known, unknown]))
    idfs, units = vocabulary.weigh(ids, counts, indptr)
    totals = add_up(idfs, indptr)
    for row, (start, stop) in enumerate(itertools.pairwise(indptr)):
        alone = vocabulary.weigh(ids[start:stop], counts[start:stop], np.array([0, stop - start]))
        assert alone[0].tolist() == idfs[start:stop].tolist()
        assert alone[1].tolist() == units[start:stop].tolist()
        assert add_up(alone[0], np.array([0, stop - start])).tolist() == [totals[row]]


def test_rows_without_weight_stay_zero_and_columns_may_be_read_only():
    idfs, counts, indptr = np.zeros(100), np.ones(100, np.int32), np.arange(0, 101, 10)
    for column in (idfs, counts, indptr):
        column.flags.writeable = False
    assert to_units(idfs, counts, indptr).tolist() == [0.0] * 100
    assert add_up(idfs, indptr).tolist() == [0.0] * 10
