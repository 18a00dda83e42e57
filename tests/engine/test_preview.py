"""A preview equals the result of an engine in which the subscription exists."""

import random

import pytest

import nearcast as nc
from nearcast.model import KINDS
from nearcast.testing import strategies


@pytest.mark.parametrize("kind", [kind.kind for kind in KINDS])
@pytest.mark.parametrize("options", [{}, {"workers": 3, "partitioner": "keyword"}], ids=["alone", "shared"])
def test_a_preview_holds_what_the_subscription_would_have_from_the_start(kind, options, random_fields):
    rng = random.Random(4)
    made = {"space": strategies.PLANE, "vocabulary": strategies.vocabulary(), "social": strategies.social_graph()}
    for _ in range(8):
        subscription = strategies.make_subscription(kind, "s", random_fields(kind, strategies.PLANE, rng))
        other = strategies.make_subscription("topk", "t", random_fields("topk", strategies.PLANE, rng))
        messages = [
            nc.Message(i, rng.choice(strategies.GRID[strategies.PLANE]), rng.choices(strategies.TERMS, k=3))
            for i in range(30)
        ]
        with nc.Engine(**made, window=nc.CountWindow(40), **options) as engine:
            engine.subscribe([other])
            engine.publish(messages)
            before = engine.stats().subscriptions
            previewed = engine.preview(subscription).results
            assert engine.stats().subscriptions == before
            assert all(explained.passes for explained in previewed)
        with nc.Engine(**made, window=nc.CountWindow(40)) as alone:
            alone.subscribe([subscription])
            alone.publish(messages)
            results = alone.results("s")
        assert [(published.message, published.score) for published in previewed] == [
            tuple(result) for result in results
        ]


def test_a_preview_refuses_invalid_subscriptions():
    with (
        nc.Engine(space=strategies.PLANE, window=nc.CountWindow(5)) as engine,
        pytest.raises(nc.InvalidInput, match="location must lie in"),
    ):
        engine.preview(nc.TopKSubscription("s", location=(99, 0), keywords="tea", k=1, alpha=0.5))


def test_regions_are_those_of_the_routing():
    with nc.Engine(space=strategies.PLANE, window=nc.CountWindow(5), workers=3, partitioner="location") as engine:
        assert engine.shard_areas() == []
        engine.subscribe(
            [nc.NearestSubscription(i, location=(i % 8, i // 8), keywords="tea", k=1) for i in range(40)]
        )
        assert [region.shards for region in engine.shard_areas()] == [1, 2, 4]


def test_a_preview_considers_the_newest_messages_only_and_counts_them():
    options = {"space": strategies.PLANE, "window": nc.CountWindow(50)}
    tea = nc.NearestSubscription("s", location=(1, 1), keywords="tea", k=50)
    for more in ({}, {"workers": 3, "partitioner": "space_kd"}):
        with nc.Engine(**options, **more) as engine:
            engine.subscribe([nc.NearestSubscription(i, location=(i, i), keywords="tea", k=1) for i in range(8)])
            engine.publish([nc.Message(i, (i % 8, i % 8), "tea") for i in range(40)])
            newest, shortened = engine.preview(tea, among=5), engine.preview(tea, most=3)
            assert sorted(published.message for published in newest.results) == [35, 36, 37, 38, 39]
            assert (newest.total, newest.among) == (5, 5)
            assert (len(shortened.results), shortened.total, shortened.among) == (3, 40, 40)
