import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import InvalidInput
from nearcast.workload.streams import BLOCK, cut, generator


def endless(number):
    return pa.table({"row": np.arange(number * BLOCK, (number + 1) * BLOCK)})


@given(n=st.integers(0, 3 * BLOCK), start=st.integers(0, 2 * BLOCK), block=st.integers(50, 4 * BLOCK))
def test_any_range_of_rows_is_cut_into_tables_of_one_size(n, start, block):
    tables = list(cut(endless, n, start=start, block=block))
    rows = [table["row"].to_numpy() for table in tables]
    assert np.array_equal(np.concatenate([[], *rows]), np.arange(start, start + n))
    assert [table.num_rows for table in tables[:-1]] == [block] * max(0, len(tables) - 1)
    assert all(0 < table.num_rows <= block for table in tables)


def test_blocks_and_names_and_seeds_have_independent_generators():
    draws = {generator(seed, name, block).random() for seed in range(5) for name in ("a", "b") for block in range(5)}
    assert len(draws) == 50


@pytest.mark.parametrize("bad", [{"n": -1}, {"start": -1}, {"block": 0}, {"n": 1.5}, {"n": True}])
def test_bad_table_sizes_are_refused_at_once(bad):
    with pytest.raises(InvalidInput, match=next(iter(bad))):
        cut(endless, **{"n": 1, **bad})
