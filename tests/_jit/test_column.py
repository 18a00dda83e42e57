import numpy as np
import pytest

from nearcast._jit import column
from nearcast.errors import InvalidInput


def test_a_suitable_array_is_not_copied():
    xs = np.arange(5)
    assert column(xs, np.int64) is xs


def read_only(xs):
    xs.flags.writeable = False
    return xs


@pytest.mark.parametrize(
    "values",
    [
        [0, 2, 4],
        range(0, 6, 2),
        np.arange(6)[::2],
        np.arange(0, 6, 2, dtype=np.int16),
        np.arange(0, 6, 2, dtype=np.uint64),
        np.arange(0, 6, 2, dtype=">i8"),
        read_only(np.arange(0, 6, 2)),
    ],
)
def test_equal_numbers_in_any_container_become_the_same_column(values):
    made = column(values, np.int64)
    assert (type(made), made.dtype, made.dtype.isnative) == (np.ndarray, np.int64, True)
    assert made.flags.c_contiguous
    assert made.flags.writeable
    assert made.tolist() == [0, 2, 4]


def test_an_empty_list_has_the_requested_dtype():
    assert column([], np.int32).dtype == np.int32


def test_a_cast_that_would_change_a_value_is_refused():
    with pytest.raises(InvalidInput, match=r"column must fit int64; got \[9223372036854775808\]"):
        column(np.array([1, 2**63], np.uint64), np.int64)
    with pytest.raises(TypeError, match="Cannot cast"):
        column([0.5], np.int64)


def test_a_matrix_is_refused():
    with pytest.raises(InvalidInput, match="column must have one dimension; got 2"):
        column([[1, 2]], np.int64)
