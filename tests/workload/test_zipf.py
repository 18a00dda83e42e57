import numpy as np
import pytest

from nearcast.errors import InvalidInput
from nearcast.workload.zipf import Zipf


def test_ranks_are_drawn_with_the_frequencies_of_the_law():
    law = Zipf(size=50, exponent=1.2, shift=3.0)
    weights = (np.arange(1, 51) + 3.0) ** -1.2
    expected = weights / weights.sum()
    drawn = np.bincount(law.draw(np.random.default_rng(1).random(400_000)), minlength=50) / 400_000
    np.testing.assert_allclose(drawn, expected, atol=0.002)


def test_a_truncated_law_equals_that_of_a_smaller_size():
    uniforms = np.random.default_rng(2).random(1_000)
    cut_off = Zipf(1_000, 1.1, 2.0).draw(uniforms, sizes=np.full(1_000, 30))
    assert cut_off.tolist() == Zipf(30, 1.1, 2.0).draw(uniforms).tolist()


def test_the_greatest_uniform_number_stays_within_the_law():
    almost_one = np.array([np.nextafter(1.0, 0.0)])
    for size in (1, 2, 3, 1_000, 85_000):
        assert Zipf(size, 0.9, 5.0).draw(almost_one).tolist() == [size - 1]


@pytest.mark.parametrize(("field", "value"), [("size", 0), ("exponent", -0.1), ("shift", -1.0)])
def test_bad_options_of_a_law_are_refused(field, value):
    with pytest.raises(InvalidInput, match=field):
        Zipf(**{"size": 10, field: value})
