"""From text to weighted terms."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nearcast as nc
from nearcast.text import TEXT_SIMILARITIES, term_id, term_ids, tokenize


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("#Sale", ["sale"]),
        ("Coffee, coffee & CAKE!", ["coffee", "coffee", "cake"]),
        ("snake_case", ["snake", "case"]),
        ("Straße", ["strasse"]),
        ("ﬁne", ["fine"]),  # a ligature, by NFKC
        ("Ｆｕｌｌ　Ｗｉｄｔｈ", ["full", "width"]),
        ("İstanbul", ["i", "stanbul"]),  # casefold leaves a combining dot, which is no letter
        ("東京 ラーメン", ["東京", "ラーメン"]),
        ("²3", ["23"]),
        ("a1b2 3.5", ["a1b2", "3", "5"]),
        ("", []),
        ("... --- !!!", []),
        ("don't", ["don", "t"]),
    ],
)
def test_tokenize(text, terms):
    assert tokenize(text) == terms


@given(st.text())
def test_a_term_tokenizes_to_itself(text):
    for term in tokenize(text):
        assert term
        assert tokenize(term) == [term] or not term.isascii()  # casefold may undo NFKC in a few scripts
        assert all(c.isalnum() for c in term)


@given(st.text(alphabet=st.characters(max_codepoint=127)))
def test_the_fast_path_for_ascii_gives_the_same_terms(text):
    import re
    import unicodedata

    assert tokenize(text) == re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", text).casefold())


def test_lists_are_taken_verbatim():
    assert tokenize(["New York", "", "PIZZA"]) == ["New York", "", "PIZZA"]


def test_term_ids_under_a_key_never_change():
    # Machines exchange these numbers.
    assert [term_id(t) for t in ("", "a", "coffee", "東京")] == [
        7654138594423042259, 553357342721262182, -5470257318587498702, -6804298980089260147,
    ]  # fmt: skip
    assert term_ids(["a", "coffee"]).tolist() == [term_id("a"), term_id("coffee")]
    assert term_ids([]).dtype == np.int64


def test_idf():
    vocabulary = nc.Vocabulary(documents=9, frequencies={"a": 4, "b": 9})
    assert vocabulary.idf("a") == pytest.approx(math.log(1 + 9 / 5))
    assert vocabulary.idf("b") == pytest.approx(math.log(1 + 9 / 10))
    assert vocabulary.idf("never seen") == pytest.approx(math.log(1 + 9 / 1))


def test_from_texts_counts_documents_not_words():
    counted = nc.Vocabulary.from_texts(["a a a b", "a", ["A"]])
    assert counted.idf("a") == pytest.approx(math.log(1 + 3 / 3))
    assert counted.idf("A") == pytest.approx(math.log(1 + 3 / 2))
    assert len(counted) == 3


def test_weights_set_by_hand():
    vocabulary = nc.Vocabulary.with_weights({"a": 0.5, "b": 2})
    assert [vocabulary.idf(t) for t in ("a", "b", "other")] == [0.5, 2.0, 2.0]
    assert nc.Vocabulary.with_weights({}).idf("anything") == 1.0


@given(st.lists(st.lists(st.sampled_from("abcdef"), max_size=6), min_size=1, max_size=5))
def test_vectors_have_length_one(texts):
    from nearcast.model import MessageBatch

    vocabulary = nc.Vocabulary(documents=50, frequencies={"a": 40, "b": 10, "c": 1})
    batch = MessageBatch.from_messages(
        [nc.Message(i, (0, 0), text) for i, text in enumerate(texts)], vocabulary=vocabulary
    )
    for row, text in enumerate(texts):
        document = batch.documents[row]
        assert set(document.units) == {term_id(t) for t in text}
        assert list(document.units) == sorted(document.units)
        if text:
            assert math.fsum(u * u for u in document.units.values()) == pytest.approx(1)
            for term in set(text):
                raw = text.count(term) * vocabulary.idf(term)
                length = math.sqrt(sum((text.count(t) * vocabulary.idf(t)) ** 2 for t in set(text)))
                assert document.units[term_id(term)] == pytest.approx(raw / length)
        assert document.weight == pytest.approx(sum(vocabulary.idf(t) for t in set(text)))


@pytest.mark.parametrize("name", sorted(TEXT_SIMILARITIES))
def test_text_similarities_stay_in_range_and_are_one_for_equal_sets(name):
    compare = TEXT_SIMILARITIES[name]
    rng = random.Random(2)
    for _ in range(500):
        weights = {t: rng.uniform(0, 3) for t in "abcdefgh"}
        s, m = (set(rng.sample("abcdefgh", rng.randint(1, 8))) for _ in range(2))
        total = lambda group: sum(weights[t] for t in sorted(group))  # noqa: B023, E731
        value = compare(len(s & m), total(s & m), len(s), total(s), len(m), total(m))
        assert 0 <= value <= 1 + 1e-12
        assert compare(len(s), total(s), len(s), total(s), len(s), total(s)) == pytest.approx(1)
        assert compare(0, 0.0, len(s), total(s), len(m), total(m)) == 0
    assert compare(0, 0.0, 0, 0.0, 0, 0.0) == 0
