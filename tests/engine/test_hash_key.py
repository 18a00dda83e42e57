"""Terms and ids are hashed under a secret key, which belongs to the engine's state."""

import json
import random

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

import nearcast as nc
from nearcast.model import MessageBatch
from nearcast.text import DEFAULT_HASH_KEY, new_hash_key

SPACE = nc.Space(nc.Box(0, 0, 1, 1))
ALIKE = (
    "abcdefghabcdefghabcdefghabcdefghijklmnopijklmnopijklmnopijklmnop",
    "hdbidkneabcdefghabcdefghabcdefghqklubzduijklmnopijklmnopijklmnop",
)
"""Two words with one XXH64, which anyone can compute."""
KEYS = st.binary(min_size=16, max_size=16)


def engine_of(**options):
    return nc.Engine(space=SPACE, window=nc.CountWindow(10), **options)


def subscriptions_to(word):
    nearby = {"location": (0.5, 0.5), "keywords": word}
    return [
        nc.BooleanSubscription("b", region=SPACE.bounds, keywords=word),
        nc.SimilaritySubscription("s", delta=0.9, tau=0.8, **nearby),
        nc.TopKSubscription("t", k=1, alpha=0.5, **nearby),
        nc.NearestSubscription("n", k=1, **nearby),
    ]


def test_a_word_with_the_same_public_hash_does_not_match():
    wanted, sent = ALIKE
    assert xxhash.xxh64_intdigest(wanted.encode()) == xxhash.xxh64_intdigest(sent.encode())
    engine = engine_of()
    engine.subscribe(subscriptions_to(wanted))
    assert engine.publish([nc.Message("other", (0.5, 0.5), sent)]) == []
    assert {update.subscription for update in engine.publish([nc.Message("same", (0.5, 0.5), wanted)])} == set("bstn")


@settings(max_examples=25)
@given(KEYS, st.randoms(use_true_random=False))
def test_results_do_not_depend_on_the_key(hash_key, rng):
    words = [f"w{i}" for i in range(30)]
    wanted = subscriptions_to("w1 w2 w3")
    messages = [
        nc.Message(i, (rng.random(), rng.random()), " ".join(rng.choices(words, k=rng.randint(0, 9))))
        for i in range(90)
    ]
    weights = nc.Vocabulary.with_weights({word: 1 + i for i, word in enumerate(words)})
    engines = [engine_of(vocabulary=weights, hash_key=key) for key in (DEFAULT_HASH_KEY, hash_key)]
    for engine in engines:
        engine.subscribe(wanted)
    expected, found = (engine.publish(messages) for engine in engines)
    assert [update[:4] for update in map(tuple_of, found)] == [update[:4] for update in map(tuple_of, expected)]
    assert [u.score for u in found] == pytest.approx([u.score for u in expected], abs=1e-9)


def tuple_of(update):
    return update.seq, update.subscription, update.message, update.change


def test_a_saved_engine_continues_under_its_key(tmp_path):
    hash_key = new_hash_key()
    engine = engine_of(hash_key=hash_key, vocabulary=nc.Vocabulary.with_weights({"jazz": 2.0, "tea": 1.0}))
    engine.subscribe(subscriptions_to("jazz"))
    engine.publish([nc.Message("m1", (0.5, 0.5), "jazz tea")])
    engine.save(tmp_path / "saved")
    assert json.loads((tmp_path / "saved" / "manifest.json").read_text())["config"]["hash_key"] == hash_key.hex()
    again = nc.Engine.load(tmp_path / "saved")
    later = [nc.Message("m2", (0.5, 0.4), "jazz"), nc.Message("m3", (0.5, 0.4), "tea")]
    assert again.publish(later) == engine.publish(later)


@pytest.mark.parametrize("hash_key", [b"", bytes(15), bytes(17), "0123456789abcdef", 7])
def test_a_key_that_is_none_is_refused_without_showing_it(hash_key):
    with pytest.raises(nc.InvalidInput, match="hash_key must be 16 bytes") as refused:
        engine_of(hash_key=hash_key)
    assert repr(hash_key) not in str(refused.value)


def test_a_key_is_shown_by_no_description():
    hash_key = random.Random(1).randbytes(16)
    engine = engine_of(hash_key=hash_key)
    shown = repr(engine) + repr(engine._config) + repr(engine.stats())
    assert hash_key.hex() not in shown and repr(hash_key) not in shown


def test_terms_under_another_key_are_refused():
    engine, vocabulary = engine_of(hash_key=new_hash_key()), nc.Vocabulary.with_weights({})
    batch = MessageBatch.from_messages([nc.Message("m", (0.5, 0.5), "jazz")], vocabulary=vocabulary)
    engine.publish(batch)  # a text is hashed by the engine
    with pytest.raises(nc.InvalidInput, match="must hold terms hashed with the engine's key"):
        engine.publish(batch.take(np.arange(1)))
    assert engine.stats().messages == 1
