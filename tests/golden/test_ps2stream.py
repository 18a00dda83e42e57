"""PS2Stream, sections III-A and IV-D: the matches of an STS query, and the terms that it is posted under."""

import pytest

import nearcast as nc
from nearcast.model import ScoringContext, SubscriptionBatch
from nearcast.text import TEXT_SIMILARITIES, term_id

KANSAS = nc.Box(-102.05, 36.99, -94.59, 40.0)


@pytest.fixture
def engine():
    return nc.Engine(space=nc.Space.earth(max_distance=50_000))


@pytest.mark.parametrize(
    ("keywords", "text", "matches"),
    [
        ("kobe AND retired", "Kobe has retired", True),
        ("kobe AND retired", "Kobe plays on", False),
        ("kobe OR lebron", "LeBron scores", True),
        ("kobe AND retired OR lebron AND traded", "lebron retired", False),
        ("kobe AND retired OR lebron AND traded", "lebron was traded", True),
    ],
)
def test_an_object_must_lie_in_the_region_and_satisfy_the_expression(engine, keywords, text, matches):
    engine.subscribe([nc.BooleanSubscription("q", region=KANSAS, keywords=keywords)])
    inside = engine.publish([nc.Message("in", (-98, 38), text)])
    outside = engine.publish([nc.Message("out", (-98, 41), text)])
    assert [u.message for u in inside] == (["in"] if matches else [])
    assert outside == []


def test_an_or_query_is_reported_once_if_several_branches_hold(engine):
    engine.subscribe([nc.BooleanSubscription("q", region=KANSAS, keywords="a OR b OR c AND d")])
    assert len(engine.publish([nc.Message("m", (-98, 38), "a b c d")])) == 1


def test_the_footprint_is_the_box_and_the_branches():
    scoring = ScoringContext(
        nc.Space.earth(), nc.Vocabulary.with_weights({}), nc.SocialGraph(), TEXT_SIMILARITIES["dice"]
    )
    query = nc.BooleanSubscription("q", region=KANSAS, keywords="(kobe AND retired) OR lebron")
    footprint = SubscriptionBatch.of([query], scoring).footprints[0]
    assert footprint.box == KANSAS
    assert set(footprint.branches) == {
        frozenset({term_id("lebron")}),
        frozenset({term_id("kobe"), term_id("retired")}),
    }
