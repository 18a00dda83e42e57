"""Filters through the whole engine: results of k that pass, whatever happens to messages and subscriptions."""

import random

import pytest
import shapely

import nearcast as nc
from nearcast.space.region_formats import MAX_POINTS, to_wkb
from nearcast.text import Vocabulary

CENTER = (13.4, 52.5)
BIKES = nc.TopKSubscription(
    "bikes", location=CENTER, keywords="bike", k=5, alpha=0.5,
    region=nc.Circle(CENTER, 10_000), where="price <= 300", require="bike AND NOT kids",
)  # fmt: skip


def city(**options):
    return nc.Engine(
        space=nc.Space.earth(max_distance=20_000),
        vocabulary=nc.Vocabulary.with_weights({"bike": 2.0, "red": 1.0, "kids": 1.5, "car": 1.0}),
        window=nc.CountWindow(200),
        attributes={"price": float, "category": str},
        **options,
    )


def offers(n, seed=1):
    rng = random.Random(seed)
    for i in range(n):
        location = (CENTER[0] + rng.uniform(-0.2, 0.2), CENTER[1] + rng.uniform(-0.12, 0.12))
        text = " ".join(rng.sample(["bike", "red", "kids", "car"], rng.randint(1, 2)))
        values = {"price": rng.choice([None, 100, 300, 300.5, 900]), "category": rng.choice(["sport", "toys"])}
        yield nc.Message(f"m{i}", location, text, attributes=values)


def passes(one):
    near = nc.Space.earth().distance(one.location, CENTER) <= 10_000
    words = one.text.split()
    price = one.attributes["price"]
    return near and price is not None and price <= 300 and "bike" in words and "kids" not in words


def by_hand(messages):
    """Return the five best of the offers that pass, computed from the definition alone."""
    with city() as plain:
        free = nc.TopKSubscription("free", location=CENTER, keywords="bike", k=200, alpha=0.5)
        plain.subscribe(free)
        plain.publish(messages)
        kept = {one.id for one in messages if passes(one)}
        return [tuple(result) for result in plain.results("free") if result.message in kept][:5]


@pytest.mark.parametrize("options", [{}, {"workers": 3}, {"workers": 3, "partitioner": "keyword"}, {"index": "scan"}])
def test_a_result_of_five_holds_the_five_best_that_pass(options, tmp_path):
    messages = list(offers(200))
    expected = by_hand(messages)
    assert len(expected) == 5
    with city(**options) as engine:
        engine.subscribe(BIKES)
        engine.publish(messages[:120])
        engine.save(tmp_path / "saved")
        engine.publish(messages[120:])
        assert [tuple(result) for result in engine.results("bikes")] == expected
        late = nc.TopKSubscription("late", **{name: getattr(BIKES, name) for name in FIELDS})
        engine.subscribe(late)
        assert engine.results("late") == engine.results("bikes"), "from the window"
        best = expected[0][0]
        changes = {(u.subscription, u.message, u.change) for u in engine.retract(best)}
        without = by_hand([one for one in messages if one.id != best])
        assert changes == {
            (name, message, change)
            for name in ("bikes", "late")
            for message, change in ((best, "leave"), (without[4][0], "enter"))
        }
    with nc.Engine.load(tmp_path / "saved") as again:
        again.publish(messages[120:])
        assert [tuple(result) for result in again.results("bikes")] == expected


FIELDS = ("location", "keywords", "k", "alpha", "region", "where", "require")


def test_a_message_that_no_longer_passes_leaves_when_it_is_replaced():
    with city() as engine:
        engine.subscribe(BIKES)
        offer = nc.Message("m", CENTER, "bike", attributes={"price": 100})
        assert [u.change for u in engine.publish(offer)] == ["enter"]
        dearer = nc.Message("m", CENTER, "bike", attributes={"price": 500})
        assert [u.change for u in engine.replace(dearer)] == ["leave"]
        assert [u.change for u in engine.replace(offer)] == ["enter"]


def test_an_explanation_names_the_filters_that_fail():
    with city() as engine:
        engine.subscribe(BIKES)
        far = nc.Message("far", (14.0, 52.5), "bike for kids", attributes={"price": 301})
        explained = engine.explain("bikes", far)
        assert {part.name for part in explained.parts if part.passes is False} == {"region", "where", "require"}
        assert not explained.passes and explained.score is None
        near = engine.explain("bikes", nc.Message("near", CENTER, "red bike", attributes={"price": 300}))
        assert near.passes and near.score is not None
        assert [part.condition for part in near.parts if part.name == "where"] == ["price <= 300"]


def test_a_region_comes_in_every_form():
    square = nc.Polygon([(0, 0), (4, 0), (4, 4), (0, 4)], [[(1, 1), (2, 1), (2, 2), (1, 2)]])
    shape = shapely.from_wkb(to_wkb(square))
    forms = [square, shape, shape.wkt, shape.wkb, shape.wkb_hex, shape.__geo_interface__]
    with nc.Engine(space=nc.Space(nc.Box(0, 0, 9, 9))) as engine:
        for i, form in enumerate(forms):
            engine.subscribe(nc.BooleanSubscription(i, region=form, keywords="a"))
        assert {one.region for one in engine.subscriptions()} == {square}
        assert len(engine.publish(nc.Message("edge", (4, 2), "a"))) == len(forms)
        assert engine.publish(nc.Message("hole", (1.5, 1.5), "a")) == []


REFUSED = [
    ({"where": "colour = 'red'"}, "where must name attributes of the engine"),
    ({"where": "price <"}, "Something is missing at the end"),
    ({"where": "price = 'x'"}, "must compare price with a number"),
    ({"require": "bike AND ("}, "require must"),
    ({"region": "POLYGON ((0 0, 1 1, 1 0, 0 1, 0 0))"}, "Self-intersection"),
    ({"region": nc.Circle((500, 0), 10)}, "center at a longitude"),
    ({"region": {"type": "Point", "coordinates": [0, 0]}}, "radius"),
]


@pytest.mark.parametrize(("filters", "reason"), REFUSED)
def test_a_bad_filter_is_refused_and_nothing_changes(filters, reason):
    with city() as engine:
        good = nc.NearestSubscription("good", location=CENTER, keywords="bike", k=1)
        with pytest.raises(nc.InvalidInput, match=reason):
            engine.subscribe([good, nc.NearestSubscription("bad", location=CENTER, keywords="bike", k=1, **filters)])
        assert len(list(engine.subscriptions())) == 0


BAD_VALUES = [
    ({"price": "cheap"}, "price must be a finite number; got 'cheap'"),
    ({"price": float("nan")}, "price must be a finite number"),
    ({"price": True}, "price must be a finite number"),
    ({"category": 3}, "category must be a string"),
    ({"colour": "red"}, "must be declared by the engine"),
    ({"category": "x" * 600}, "category must be at most 512 bytes"),
]


@pytest.mark.parametrize(("values", "reason"), BAD_VALUES)
def test_a_bad_value_of_an_attribute_is_refused_and_nothing_changes(values, reason):
    with city() as engine:
        good = nc.Message("good", CENTER, "bike")
        with pytest.raises(nc.InvalidInput, match=reason):
            engine.publish([good, nc.Message("bad", CENTER, "bike", attributes=values)])
        assert engine.stats().messages == 0


def test_limits_count_bytes_and_points_before_work():
    limits = nc.Limits(keywords_bytes=40, region_points=10)
    with city(limits=limits) as engine:
        fields = {"location": CENTER, "keywords": "bike", "k": 1}
        engine.subscribe(nc.NearestSubscription("n", where="price = " + "1" * 32, **fields))
        with pytest.raises(nc.InvalidInput, match="where must be at most 40 bytes; got 41"):
            engine.subscribe(nc.NearestSubscription("m", where="price = " + "1" * 33, **fields))
        ring = [(x, x * x) for x in range(9)]
        engine.subscribe(nc.NearestSubscription("n", region=nc.Polygon(ring), **fields))
        with pytest.raises(nc.InvalidInput, match="region must have at most 10 points; got 11"):
            engine.subscribe(nc.NearestSubscription("m", region=nc.Polygon([*ring, (9, 81)]), **fields))


def test_a_region_has_as_many_points_as_any_may_have_by_default():
    assert nc.Limits().region_points == MAX_POINTS
    ring = [(i * 1e-3, (i * 1e-3) ** 2) for i in range(MAX_POINTS)]  # closing it adds one
    with pytest.raises(nc.InvalidInput, match="region must have at most 10000 points; got 10001"):
        nc.NearestSubscription("n", region=nc.Polygon(ring), location=CENTER, keywords="bike", k=1)


def test_a_condition_that_is_far_too_long_names_its_subscription():
    with pytest.raises(nc.InvalidInput, match=r"where must be at most 1048576 characters; .*\(subscription 'n'\)"):
        nc.NearestSubscription("n", where=" " * (1 << 21), location=CENTER, keywords="bike", k=1)


def test_a_text_is_encoded_once_also_where_its_body_is_dropped(monkeypatch):
    encoded = []
    encode = Vocabulary.encode

    def counted(self, texts, **options):
        encoded.append(len(texts))
        return encode(self, texts, **options)

    with city() as engine:
        engine.subscribe(nc.NearestSubscription("n", location=CENTER, keywords="bike", k=1))
        monkeypatch.setattr(Vocabulary, "encode", counted)
        engine.publish([nc.Message("m", CENTER, "red bike", body="dropped")])
    assert encoded == [1]
