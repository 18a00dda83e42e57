"""Rules that hold for every kind."""

import random
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nearcast as nc
from effort import effort
from nearcast.model import KINDS, Limits, MessageBatch, SubscriptionBatch
from nearcast.model.columns import subscriptions_schema
from nearcast.testing import strategies
from nearcast.text import TEXT_SIMILARITIES

KIND_NAMES = [kind.kind for kind in KINDS]


def document_of(drawn, vocabulary):
    return MessageBatch.from_messages([nc.Message(id="m", **drawn)], vocabulary=vocabulary).documents[0]


@pytest.mark.parametrize("kind", KIND_NAMES)
@pytest.mark.parametrize("space", strategies.SPACES, ids=lambda s: s.metric)
@pytest.mark.parametrize("text", sorted(TEXT_SIMILARITIES))
@settings(max_examples=effort(20, 100))
@given(data=st.data())
def test_a_message_with_a_score_matches_the_footprint(kind, space, text, data):
    scoring = strategies.scoring(space, text)
    subscription = strategies.make_subscription(kind, "s", data.draw(strategies.subscription_fields(kind, space)))
    document = document_of(data.draw(strategies.message_fields(space)), scoring.vocabulary)
    if subscription.bind(scoring)(document) is not None:
        footprint = SubscriptionBatch.of([subscription], scoring).footprints[0]
        assert footprint.may_match(*document.location, document.units.keys())


@pytest.mark.parametrize("kind", KIND_NAMES)
@settings(max_examples=60)
@given(data=st.data())
def test_explain_agrees_with_the_score(kind, data):
    scoring = strategies.scoring(strategies.PLANE)
    subscription = strategies.make_subscription(kind, "s", data.draw(strategies.subscription_fields(kind)))
    document = document_of(data.draw(strategies.message_fields(strategies.PLANE)), scoring.vocabulary)
    score = subscription.bind(scoring)(document)
    explained = subscription.explain(document, scoring)
    weighted = [part for part in explained.parts if part.weight is not None]
    if weighted and explained.score is not None:
        assert sum(p.value * p.weight for p in weighted) == pytest.approx(explained.score, abs=1e-12)
    if score is not None:
        assert explained.score == score
        assert all(part.passes for part in explained.parts)
    elif explained.score is not None:
        assert explained.score < explained.threshold
    else:
        assert not all(part.passes for part in explained.parts)
        assert "failed" in explained.reason
    assert repr(subscription.id) in str(explained)


@pytest.mark.parametrize("kind", KIND_NAMES)
@settings(max_examples=30)
@given(data=st.data())
def test_a_subscription_is_restored_from_its_row(kind, data):
    subscription = strategies.make_subscription(kind, "s", data.draw(strategies.subscription_fields(kind)))
    row = subscription.to_row()
    assert set(row) <= set(subscriptions_schema().names)
    assert type(subscription).from_row(row, subject="s") == subscription


@pytest.mark.parametrize("kind", KINDS, ids=KIND_NAMES)
def test_every_field_has_a_column(kind):
    spread = {"location": {"x", "y"}, "region": {"xmin", "ymin", "xmax", "ymax"}}
    for field in fields(kind):
        if field.init:
            assert spread.get(field.name, {field.name}) <= set(subscriptions_schema().names)


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_scores_do_not_depend_on_the_order_of_words(kind):
    rng = random.Random(7)
    scoring = strategies.scoring(strategies.PLANE)
    words = list("abcdef")
    given = {
        "boolean": {"region": (0, 0, 8, 8), "keywords": "a b"},
        "similarity": {"location": (1, 1), "keywords": words, "delta": 0.3, "tau": 0},
        "topk": {"location": (1, 1), "keywords": words, "k": 1, "alpha": 0.3},
        "nearest": {"location": (1, 1), "keywords": words, "k": 1},
        "social": {"location": (1, 1), "keywords": words, "k": 1, "user": "u0"},
    }[kind]
    seen = set()
    for _ in range(20):
        rng.shuffle(words)
        shuffled = {**given, "keywords": list(words)} if kind != "boolean" else given
        subscription = strategies.make_subscription(kind, "s", shuffled)
        rng.shuffle(words)
        message = {"location": (2.0, 3.0), "text": list(words), "place": None}
        seen.add(subscription.bind(scoring)(document_of(message, scoring.vocabulary)))
    assert len(seen) == 1, "the order of the terms changes the score"


@pytest.mark.parametrize("kind", KIND_NAMES)
@settings(max_examples=20)
@given(data=st.data())
def test_generated_subscriptions_are_valid(kind, data):
    data.draw(strategies.subscriptions(kind)).check(strategies.scoring(strategies.PLANE), Limits())
