"""STAMP's running example: Figure 1 and Examples 1 to 6."""

import pytest

import nearcast as nc
from nearcast.index import INDEXES
from nearcast.index.bounds import similarity as bounds

WEIGHT = {"t5": 0.5, "t4": 0.4, "t3": 0.3, "t2": 0.2, "t1": 0.1}
SUBSCRIPTIONS = {  # terms, delta, tau, spatial similarity to both messages
    "s0": ("t4 t2", 0.7, 0.8, 0.6),
    "s1": ("t4 t3 t2", 0.5, 0.8, 0.7),
    "s2": ("t4 t3 t1", 0.5, 0.7, 0.6),
    "s3": ("t5 t4 t1", 0.6, 0.75, 0.6),
    "s4": ("t5 t2 t1", 0.5, 0.6, 0.55),
    "s5": ("t3 t2 t1", 0.5, 0.6, 0.55),
    "s6": ("t3 t2 t1", 0.2, 0.7, 0.4),
    "s7": ("t5 t4 t1", 0.6, 0.7, 0.3),
    "s8": ("t5 t4 t2", 0.7, 0.7, 0.4),
    "s9": ("t4 t2 t1", 0.5, 0.8, 0.3),
    "s10": ("t5 t3", 0.5, 0.8, 0.4),
}
M1, M2 = "t4 t2", "t4 t3 t1"
LEAF = ("s0", "s1", "s2", "s3")  # the leaf region of Examples 5 and 6


def terms(name):
    return SUBSCRIPTIONS[name][0].split()


def weights(name):
    return [WEIGHT[t] for t in terms(name)]


def options(name):
    return {"delta": SUBSCRIPTIONS[name][1], "tau": SUBSCRIPTIONS[name][2]}


def prefix(name, **given):
    length = bounds.prefix_length(weights(name), **options(name), **given)
    return None if length is None else terms(name)[:length]


def lsb(name, term, **given):
    return bounds.least_near(weights(name), terms(name).index(term), **options(name), **given)


def sig_plus(name, k):
    start = bounds.prefix_length(weights(name), **options(name))
    ends = [start, *bounds.further_prefixes(weights(name), **options(name))]
    return terms(name)[ends[k - 1] : ends[k]] if k < len(ends) else []


@pytest.fixture(params=[e.name for e in INDEXES if e.serves("similarity")])
def engine(request):
    space = nc.Space(nc.Box(-1, -1, 1, 1), max_distance=1.0)
    engine = nc.Engine(space=space, vocabulary=nc.Vocabulary.with_weights(WEIGHT), index=request.param)
    engine.subscribe(
        nc.SimilaritySubscription(name, location=(1 - near, 0), keywords=words, delta=delta, tau=tau)
        for name, (words, delta, tau, near) in SUBSCRIPTIONS.items()
    )
    return engine


def test_example_1_both_messages_match_the_subscriptions_of_the_paper(engine):
    updates = engine.publish([nc.Message("m1", (0, 0), M1), nc.Message("m2", (0, 0), M2)])
    assert {u.subscription for u in updates if u.message == "m1"} == {"s0"}
    assert {u.subscription for u in updates if u.message == "m2"} == {"s2", "s5"}
    assert updates[0].score == pytest.approx(0.88)


def test_example_1_explains_why_s8_is_no_answer(engine):
    explained = engine.explain("s8", nc.Message("m1", (0, 0), M1))
    assert not explained.passes
    assert explained.score == pytest.approx(0.5, abs=0.005)
    assert explained.threshold == 0.7


def test_section_3_spatial_oriented_prefixes():
    assert prefix("s9") == ["t4"]
    assert prefix("s3") == ["t5"]
    assert prefix("s6") is None  # the virtual term: a message may match without a shared term
    assert [round(lsb("s6", t), 2) for t in terms("s6")] == [0.62, 0.75, 0.83]  # the paper rounds 0.625 up
    assert bounds.least_near_without_text(**options("s6")) == pytest.approx(0.875)
    assert lsb("s9", "t4") == pytest.approx(0.6)


def test_example_2_bounds_of_regions():
    assert min(lsb(s, "t4") for s in ("s0", "s1", "s2")) == pytest.approx(1 / 3)
    assert min(lsb(s, "t4") for s in ("s7", "s9")) == pytest.approx(0.6)


def test_section_4_region_aware_prefix():
    assert prefix("s7") == ["t5", "t4"]
    assert prefix("s7", most_near=0.9) == ["t5"]


def test_example_3_hierarchical_prefixes():
    assert (prefix("s8"), prefix("s9")) == (["t5"], ["t4"])
    assert min(lsb("s7", "t5"), lsb("s8", "t5")) == pytest.approx(0, abs=1e-12)
    assert prefix("s5") == ["t3", "t2"]
    assert prefix("s5", most_near=0.65) == ["t3"]
    assert lsb("s6", "t2") == pytest.approx(0.75)
    assert lsb("s5", "t2") == pytest.approx(0.7)


def test_example_4_spatio_textual_prefix():
    assert prefix("s2") == ["t4", "t3"]
    assert (lsb("s2", "t4"), lsb("s2", "t3")) == (pytest.approx(0.4), pytest.approx(0.9))
    assert sig_plus("s2", 1) == ["t1"]
    assert bounds.upper_bound_text(weights("s2"), 2, others=1) == pytest.approx(0.625)
    assert lsb("s2", "t1", others=1) == pytest.approx(0.775)


def test_example_5_spatio_textual_lists():
    lists = {t: {s for s in LEAF if t in sig_plus(s, 1)} for t in WEIGHT}
    assert lists == {"t5": set(), "t4": {"s3"}, "t3": {"s1"}, "t2": {"s0", "s1"}, "t1": {"s2", "s3"}}
    assert lsb("s1", "t2", others=1) == pytest.approx(0.93, abs=0.005)


def test_example_6_costs():
    listed_in_region = sum(len(sig_plus(s, 1)) for s in LEAF)
    assert listed_in_region == 6
    assert bounds.cost_of_verifying([1, 2, 2]) == 5
    assert bounds.cost_of_filtering([1, 2, 2], listed=3, listed_in_region=6) == pytest.approx(4)
    assert bounds.cost_of_verifying([1, 2]) == 3
    assert bounds.cost_of_filtering([1, 2], listed=4, listed_in_region=6) == pytest.approx(4.67, abs=0.005)
