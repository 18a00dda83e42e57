"""The kernel and its fallback encode alike, and term ids equal SipHash-2-4."""

import random
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.text import Vocabulary, hash_bytes, term_ids, tokenize
from nearcast.text._kernels.encode import siphash
from nearcast.text.encode import encode_column, encode_texts, hash_column
from nearcast.text.hashing import key_words

TEXTS = st.text() | st.text(alphabet="aAbB1 #_,é") | st.sampled_from(["", " ", "a", "a a", "x" * 300])
OTHER_KEY = bytes(range(16))


column_of, rows_of = partial(encode_column, ordered=True), partial(encode_texts, ordered=True)


def same(a, b):
    columns = [(*rows[:3], *rows.order) for rows in (a, b)]
    assert [column.tolist() for column in columns[0]] == [column.tolist() for column in columns[1]]
    assert [column.dtype for column in columns[0]] == [column.dtype for column in columns[1]]


@pytest.mark.parametrize("n", [*range(70), 100, 1000])
def test_the_hash_is_siphash(n):
    random_ = random.Random(n)
    data, key = np.frombuffer(random_.randbytes(n + 3), dtype=np.uint8), random_.randbytes(16)
    assert siphash(data, 2, 2 + n, key_words(key)) == hash_bytes(data[2 : 2 + n].tobytes(), key)


def test_the_hash_is_that_of_the_specification():
    assert hash_bytes(bytes(range(15)), bytes(range(16))) % (1 << 64) == 0xA129CA6149BE45E5


@settings(max_examples=60)
@given(st.lists(TEXTS, min_size=64, max_size=90))
def test_columns_of_texts_encode_like_objects(texts):
    for kind in (pa.string(), pa.large_string()):
        same(column_of(pa.array(texts, kind)), rows_of(texts))
        same(column_of(pa.array(["skipped", *texts], kind)[1:], OTHER_KEY), rows_of(texts, OTHER_KEY))


@settings(max_examples=60)
@given(st.lists(st.lists(TEXTS, max_size=5), min_size=64, max_size=90))
def test_columns_of_lists_encode_like_objects(texts):
    for kind in (pa.list_(pa.string()), pa.large_list(pa.large_string())):
        same(column_of(pa.array(texts, kind)), rows_of(texts))
        same(column_of(pa.array([["skipped", "too"], *texts], kind)[1:], OTHER_KEY), rows_of(texts, OTHER_KEY))


def test_a_very_long_text_is_encoded_by_the_fallback_with_the_same_result():
    rng = random.Random(1)
    texts = [" ".join(str(rng.randrange(9000)) for _ in range(6000)), *["a b a"] * 70]
    same(column_of(pa.array(texts)), rows_of(texts))
    same(column_of(pa.array([tokenize(t) for t in texts])), rows_of(texts))


@pytest.mark.parametrize("n", [0, 1, 5, 200])
def test_the_hashes_of_a_column_are_those_of_its_strings(n):
    strings = [f"wörd{i}" * (i % 9) for i in range(n)]
    assert hash_column(pa.array(strings, pa.string())).tolist() == term_ids(strings).tolist()
    after = hash_column(pa.array(strings, pa.string()), prefix="s")
    assert after.tolist() == term_ids([f"s{string}" for string in strings]).tolist()


def test_an_empty_column_of_lists_is_encoded():
    """Its type cannot be told from its rows."""
    rows = Vocabulary(0, {}).encode(pa.array([], pa.list_(pa.string())))
    assert (rows.indptr.tolist(), rows.ids.tolist()) == ([0], [])
