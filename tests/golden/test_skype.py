"""Skype's Examples 2 to 8. Figures 4, 8 and 9 have no numbers: weights are chosen to agree with the text."""

import pytest

import nearcast as nc
from nearcast.index.bounds import topk as bounds
from nearcast.model import ScoringContext, SubscriptionBatch
from nearcast.text import TEXT_SIMILARITIES, term_id

S1, S1_THRESHOLD, S1_ALPHA = [0.5, 0.2, 0.2, 0.1], 0.7, 0.6  # w1 w2 w3 w4
S2, S2_THRESHOLD, S2_ALPHA = [0.6, 0.5, 0.3], 0.6, 0.5  # w1 w2 w3
S3 = [0.3, 0.4, 0.3, 0.1]  # w1 w2 w3 w5
M2 = [0.4, 0.3]  # w2 w3
M3 = [0.7, 0.3, 0.2]  # w2 and two later ones


def test_examples_2_and_3_location_aware_prefix():
    lam = bounds.least_cosine(threshold=S1_THRESHOLD, alpha=S1_ALPHA, most_near=0.98)
    assert lam == pytest.approx(0.28)
    assert bounds.prefix_length(S1, needed=lam) == 3
    assert bounds.rest(S1, 3) == pytest.approx(0.1)
    assert bounds.rest(S1, 3) < lam  # m1 holds only w4: skipped


def test_example_4_refined_prefix():
    lam = bounds.least_cosine(threshold=S1_THRESHOLD, alpha=S1_ALPHA, most_near=0.99)
    assert lam == pytest.approx(0.265)
    assert bounds.prefix_length(S1, needed=lam) == 3
    assert bounds.refined_prefix_length(S1, [0, 0, 1, 2], M2, needed=lam) == 1


def test_section_5_1_2_spatial_bounds():
    assert bounds.most_near(0.25, 0, max_distance=1.6) == pytest.approx(0.84, abs=0.005)
    assert bounds.most_near(0, 0.3, max_distance=1.6) == pytest.approx(0.81, abs=0.005)
    assert bounds.most_near(0.25, 0.3, max_distance=1.6) == pytest.approx(0.65, abs=0.01)


def test_example_5_both_spatial_bounds_together_shorten_the_prefix():
    loose = bounds.least_cosine(threshold=S2_THRESHOLD, alpha=S2_ALPHA)
    tight = bounds.least_cosine(threshold=S2_THRESHOLD, alpha=S2_ALPHA, most_near=0.65)
    assert (loose, tight) == (pytest.approx(0.2), pytest.approx(0.55))
    assert bounds.refined_prefix_length(S2, [0, 0, 1], M2, needed=loose) == 2
    assert bounds.refined_prefix_length(S2, [0, 0, 1], M2, needed=tight) == 1


def test_example_6_unseen_terms():
    assert bounds.refined_prefix_length(S3, [0, 0, 1, 2], M3, needed=0.48) == 2
    seen = S3[1] * M3[0]
    assert seen == pytest.approx(0.28)
    unseen = bounds.upper_bound_unseen(S3[2:], M3[1:])
    assert unseen == pytest.approx(0.12)
    assert seen + unseen < 0.48


BOLTS = {1: {"w1", "w2", "w3"}, 2: {"w4", "w5"}, 3: {"w6", "w7"}, 4: {"w8", "w9", "w10"}}
WORDS = ["w1", "w2", "w4", "w6"]
S_WEIGHTS = [0.5, 0.3, 0.25, 0.2]


def bolts_of(words):
    return {bolt for bolt, own in BOLTS.items() if own & set(words)}


def test_example_7_a_footprint_gives_the_keyword_shards():
    scoring = ScoringContext(
        nc.Space(nc.Box(0, 0, 1, 1)), nc.Vocabulary.with_weights({}), nc.SocialGraph(), TEXT_SIMILARITIES["dice"]
    )
    subscription = nc.TopKSubscription("s", location=(0, 0), keywords=WORDS, k=1, alpha=0.6)
    branches = SubscriptionBatch.of([subscription], scoring).footprints[0].branches
    touched = {bolt for bolt, own in BOLTS.items() if any(branch & set(map(term_id, own)) for branch in branches)}
    assert touched == {1, 2, 3}
    assert bolts_of(["w7", "w9"]) == {3, 4}


def test_example_8_the_loose_prefix_needs_fewer_shards():
    lam = bounds.least_cosine(threshold=0.8, alpha=0.6)
    assert lam == pytest.approx(0.5)
    assert WORDS[: bounds.prefix_length(S_WEIGHTS, needed=lam)] == ["w1", "w2"]
    assert bolts_of(["w1", "w2"]) == {1}
