"""Facets change which lists a message visits, never what it finds."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nearcast as nc
from effort import effort
from nearcast.model import MessageBatch, SubscriptionBatch
from nearcast.model.attributes import Attributes
from nearcast.model.facet_columns import SHIFTS, FacetOptions, cells_of, value_ids
from nearcast.model.where import parse_where
from nearcast.space import Box
from nearcast.testing import strategies
from oracle import is_true

ATTRIBUTES = Attributes.of({"price": float, "category": str, "new": bool, "stars": int})
KEY = bytes(16)
NUMBERS = st.sampled_from([-300.0, -1.0, -0.0, 0.0, 1e-300, 1.0, 99.5, 100.0, 101.0, 119.0, 120.0, 1e6]) | st.floats(
    allow_nan=False, allow_infinity=False, width=32
)


def options_of(text, most_values=16):
    return FacetOptions.of({0: parse_where(text)}, ATTRIBUTES, KEY, most_values=most_values)


def has_value(options, option, values):
    """Return whether a message has one of the values of an option."""
    codes = np.array([ATTRIBUTES.encode(values, KEY)], np.int64)
    facet = int(options.facets[option])
    own = value_ids(cells_of(codes, [facet]).ravel(), np.array([facet]), KEY)
    return own[0] in options.values[options.indptr[option] : options.indptr[option + 1]]


@settings(max_examples=effort(200, 20_000))
@given(NUMBERS, NUMBERS, NUMBERS, st.sampled_from(["BETWEEN", "strict", "=", "IN"]))
def test_a_message_that_passes_has_a_value_that_is_needed(low, high, price, form):
    text = {
        "BETWEEN": f"price BETWEEN {low!r} AND {high!r}",
        "strict": f"price > {low!r} AND price < {high!r}",
        "=": f"price = {low!r}",
        "IN": f"price IN ({low!r}, {high!r})",
    }[form]
    for most_values in (1, 16):
        options = options_of(text, most_values)
        assert (np.diff(options.indptr) <= most_values).all()
        for value in (price, low, high, (low + high) / 2):
            if is_true(text, {"price": value}):
                assert all(has_value(options, i, {"price": value}) for i in range(len(options.rows)))


def test_a_narrow_range_needs_few_cells_and_others_none():
    fine = options_of("price BETWEEN 100 AND 120")
    assert len(fine.rows) == 1 and 2 <= len(fine.values) <= 4
    assert not has_value(fine, 0, {"price": 60.0}) and not has_value(fine, 0, {"price": 200.0})
    assert not has_value(fine, 0, {})
    for text in ("price <= 300", "price BETWEEN 0 AND 300", "price BETWEEN -5 AND 5", "price BETWEEN 120 AND 100"):
        assert len(options_of(text).rows) == 0, text
    assert options_of("price BETWEEN -120 AND -100").rows.tolist() == [0]


def test_only_what_the_whole_condition_needs_is_an_option():
    assert len(options_of("category = 'a' OR price = 3").rows) == 0
    assert len(options_of("category <> 'a' AND price IS NOT NULL").rows) == 0
    facets = options_of("category IN ('a', 'b') AND new = TRUE AND stars = 3").facets
    assert (facets // len(SHIFTS)).tolist() == [1, 2, 3]
    assert len(options_of("category IN ('a', 'b')", most_values=1).rows) == 0


def test_values_of_different_facets_have_different_ids():
    same = options_of("price = 1 AND stars = 1 AND new = TRUE")
    assert len(set(same.values.tolist())) == 3
    other_key = FacetOptions.of({0: parse_where("price = 1")}, ATTRIBUTES, bytes([1] * 16), most_values=1)
    assert other_key.values[0] != same.values[0]


KINDS = ["boolean", "topk", "nearest", "similarity", "social"]
CATEGORIES = [f"c{i}" for i in range(50)]
WORDS = ["sale", "new", "old", "red", "blue"]


def subscription(kind, id_, rng):
    where = rng.choice([
        f"category = '{rng.choice(CATEGORIES)}'",
        f"category IN ('{rng.choice(CATEGORIES)}', '{rng.choice(CATEGORIES)}') AND price BETWEEN 10 AND 90",
        f"price BETWEEN {(low := rng.randrange(10, 500))} AND {low + 5}",
        f"price > {rng.randrange(500)}",
        None,
    ])  # fmt: skip
    words = " ".join(rng.sample(WORDS, 2))
    near = {"location": (rng.random(), rng.random()), "keywords": words, "where": where}
    if kind == "boolean":
        half = rng.random() / 2
        keywords = rng.choice([words, words.replace(" ", " OR "), f"{words} NOT red"])
        return nc.BooleanSubscription(id_, region=Box(half, 0, half + 0.5, 1), keywords=keywords, where=where)
    if kind == "topk":
        return nc.TopKSubscription(id_, k=3, alpha=0.5, **near)
    if kind == "nearest":
        return nc.NearestSubscription(id_, k=3, **near)
    if kind == "similarity":
        return nc.SimilaritySubscription(id_, delta=0.5, tau=0.6, **near)
    return nc.SocialSubscription(id_, k=3, user="ann", **near)


def message(i, rng):
    values = {"category": rng.choice([*CATEGORIES, None]), "price": rng.choice([None, rng.random() * 500])}
    text = " ".join(rng.sample(WORDS, 2))
    return nc.Message(f"m{i}", (rng.random(), rng.random()), text, place="cafe", attributes=values)


@settings(max_examples=effort(150, 10_000))
@given(st.sampled_from(KINDS), st.data())
def test_a_message_in_a_result_may_match_by_the_footprint_of_partitioners(kind, data):
    scoring = strategies.scoring()
    drawn = st.lists(strategies.filtered_fields(kind), min_size=1, max_size=4)
    subscriptions = [strategies.make_subscription(kind, i, fields) for i, fields in enumerate(data.draw(drawn))]
    batch = SubscriptionBatch.of(subscriptions, scoring)
    fields = data.draw(st.lists(strategies.message_fields(strategies.PLANE), min_size=1, max_size=4))
    messages = [
        nc.Message(i, **own, attributes=data.draw(strategies.attribute_values())) for i, own in enumerate(fields)
    ]
    published = MessageBatch.from_messages(
        messages, vocabulary=scoring.vocabulary, attributes=Attributes.of(strategies.ATTRIBUTES)
    )
    routed = published.for_routing
    for row, document in enumerate(published.documents):
        terms = set(routed.term_ids[routed.term_indptr[row] : routed.term_indptr[row + 1]].tolist())
        for score_of, footprint in zip(batch.scorers, batch.routing_footprints, strict=True):
            assert score_of(document) is None or footprint.may_match(*document.location, terms)


def test_partitioners_see_the_values_that_messages_must_have():
    scoring = strategies.scoring()
    wheres = ["category = 'bike'", "category IN ('bike', '') AND stars = 3", "price < 3", None]
    batch = SubscriptionBatch.of(
        [
            nc.NearestSubscription(i, location=(0, 0), keywords="a b", k=1, where=where)
            for i, where in enumerate(wheres)
        ],
        scoring,
    )
    branches = [footprint.branches for footprint in batch.routing_footprints]
    assert [(len(own), {len(branch) for branch in own}) for own in branches] == [
        (2, {2}),
        (2, {2}),
        (2, {1}),
        (2, {1}),
    ]
    assert batch.footprints[0].branches == batch.footprints[3].branches == batch.routing_footprints[3].branches


@pytest.mark.parametrize("kind", KINDS)
def test_a_region_narrows_the_footprint_of_every_kind(kind):
    rng, scoring = random.Random(1), strategies.scoring()
    triangle = nc.Polygon([(1, 1), (3, 1), (1, 4)])
    regions = [triangle, nc.Circle((2, 2), 1), Box(0, 1, 2, 3)]
    drawn = [subscription(kind, i, rng) for i in range(3)]
    made = [replace(one, region=region, where=None) for one, region in zip(drawn, regions, strict=True)]
    if kind == "social":
        made = [replace(one, user="u0") for one in made]
    boxes = [footprint.box for footprint in SubscriptionBatch.of(made, scoring).footprints]
    for box, (xmin, ymin, xmax, ymax) in zip(boxes, [(1, 1, 3, 4), (1, 1, 3, 3), (0, 1, 2, 3)], strict=True):
        assert (
            xmin - 1e-9 <= box.xmin
            and box.xmax <= xmax + 1e-9
            and ymin - 1e-9 <= box.ymin
            and box.ymax <= ymax + 1e-9
        )


def engine(index, **options):
    return nc.Engine(
        space=nc.Space(Box(0, 0, 1, 1)),
        vocabulary=nc.Vocabulary.with_weights(dict.fromkeys(WORDS, 1.0)),
        window=nc.CountWindow(60),
        social=nc.SocialGraph(edges=[("ann", "cafe")]),
        attributes={"price": float, "category": str},
        index=index,
        **options,
    )


def in_order(updates):
    return sorted((u.seq, u.subscription, u.message, u.change, round(u.score, 9)) for u in updates)


@pytest.mark.parametrize("kind", KINDS)
def test_many_filtered_subscriptions_get_what_scan_finds(kind, tmp_path):
    rng = random.Random(5)
    fast, slow = engine("auto"), engine("scan")
    for turn in range(effort(2, 40)):
        added = [subscription(kind, f"s{rng.randrange(200)}", rng) for _ in range(80)]
        assert in_order(fast.subscribe(added)) == in_order(slow.subscribe(added))
        published = [message(turn * 100 + i, rng) for i in range(30)]
        found = fast.publish(published)
        assert in_order(found) == in_order(slow.publish(published)) and found
        gone = list(dict.fromkeys(one.id for one in rng.sample(added, 20)))
        for one in (fast, slow):
            one.unsubscribe(gone)
            one.retract([f"m{turn * 100 + 29}"])
        fast.save(tmp_path / f"{kind}{turn}")
        fast = nc.Engine.load(tmp_path / f"{kind}{turn}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_visits_the_subscriptions_of_its_category_only(kind):
    rng, visited = random.Random(6), {}
    published = [message(i, rng) for i in range(100)]
    for name in ("afterwards", "facets"):
        one = engine("auto")
        subscriptions = []
        for i in range(2_000):
            where = f"category = 'c{i % 50}'"
            if name == "afterwards":  # the same meaning in a form that is no facet
                where += f" OR {where}"
            drawn = subscription(kind, f"s{i}", random.Random(i))
            subscriptions.append(replace(drawn, keywords="sale new", where=where))
        one.subscribe(subscriptions)
        updates = one.publish(published)
        visited[name] = one.stats().visited, in_order(updates)
    assert visited["facets"][1] == visited["afterwards"][1]
    assert visited["facets"][0] < visited["afterwards"][0] / 10
