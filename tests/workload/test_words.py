import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from nearcast.errors import InvalidInput
from nearcast.text import tokenize
from nearcast.workload.words import LARGEST, words


def test_terms_of_different_ranks_differ():
    terms = words(1_100_000)  # reaches into the words of four syllables
    assert len(terms) == 1_100_000
    assert pc.count_distinct(terms).as_py() == len(terms)


def test_every_term_tokenizes_to_itself():
    terms = words(60_000).to_pylist()
    assert tokenize(" ".join(terms)) == terms
    assert all(term.isascii() and term.islower() and term.isalpha() for term in terms)


def test_every_term_of_the_largest_vocabulary_is_a_run_of_lower_case_letters():
    assert pc.all(pc.match_substring_regex(words(1_700_000), "^[a-z]+$")).as_py()


def test_no_term_is_a_boolean_operator():
    assert not pc.any(pc.is_in(words(1_700_000), pa.array(["and", "or", "not"]))).as_py()


def test_common_terms_are_short():
    lengths = pc.utf8_length(words(20_000)).to_numpy()
    assert np.all(np.diff(lengths) >= 0)
    assert lengths[[0, 99, 100, 10_099, 10_100]].tolist() == [2, 2, 4, 4, 6]


def test_a_smaller_vocabulary_is_a_prefix_of_a_larger_one():
    assert words(5_000).equals(words(20_000)[:5_000])


@pytest.mark.parametrize("size", [-1, LARGEST + 1])
def test_a_size_that_cannot_be_spelt_is_refused(size):
    with pytest.raises(InvalidInput, match="size must be between"):
        words(size)
