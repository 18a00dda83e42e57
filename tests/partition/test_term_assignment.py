"""A message is routed by its terms to every branch whose terms it holds."""

import numpy as np
import pytest

from nearcast.partition.masks import as_ints
from nearcast.partition.term_assignment import TermAssignment, TermRouting, posting_terms
from nearcast.partition.term_frequencies import TermFrequencies
from term_samples import footprints_of, messages_of


def test_a_branch_is_posted_under_its_rarest_term_ties_under_the_least_id():
    frequencies = TermFrequencies.of(
        messages_of({1, 2}, {1, 3}, {1, 2, 4}, {5})
    )  # 1 three times, 2 twice, 3, 4 and 5 once
    footprints = footprints_of([{1, 2}], [{1}, {3, 4}], [set()], [{2, 9, 8}, set(), {1, 2, 5}])
    branches, terms = posting_terms(footprints, frequencies)
    assert branches.tolist() == [0, 1, 2, 4, 6]
    assert terms.tolist() == [2, 1, 3, 8, 5]


def test_footprints_without_terms_are_accepted():
    branches, terms = posting_terms(footprints_of([set()], [set()]), TermFrequencies.of(messages_of({1})))
    assert branches.tolist() == terms.tolist() == []


def routed(n_shards=3):
    words = TermAssignment(np.array([1, 2, 3]), np.array([0, 1, 1], np.int32), n_shards)
    return TermRouting(n_shards, words, TermFrequencies.of(messages_of({1, 2}, {1, 3})), np.zeros(n_shards))


def test_placement_and_routing_follow_the_table_and_hash_unknown_terms():
    routing = routed()
    assignment = routing.place(footprints_of([{1}], [{1, 2}], [{1}, {3}], [{1, 8}], [{1}, set()]))
    assert as_ints(assignment) == [0b001, 0b010, 0b011, 0b100, 0b111]
    assert as_ints(routing.route(messages_of({1}, {1, 2}, {2, 3}, {1, 8}, {-1}, set()))) == [1, 3, 2, 5, 4, 1]


@pytest.mark.parametrize("n_shards", [1, 64])
def test_every_term_id_has_a_shard(n_shards):
    ends = [np.iinfo(np.int64).min, -1, 0, np.iinfo(np.int64).max]
    words = TermAssignment(np.zeros(0, np.int64), np.zeros(0, np.int32), n_shards)
    assert words.shards_of(np.array(ends)).tolist() == [end % n_shards for end in ends]
