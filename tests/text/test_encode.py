"""The kernel and its fallback encode alike, and term ids equal XXH64."""

import random

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.text import term_ids, tokenize
from nearcast.text._kernels.encode import xxh64
from nearcast.text.encode import encode_column, encode_texts, hash_column

TEXTS = st.text() | st.text(alphabet="aAbB1 #_,é") | st.sampled_from(["", " ", "a", "a a", "x" * 300])


def same(a, b):
    assert [column.tolist() for column in a] == [column.tolist() for column in b]
    assert [column.dtype for column in a] == [column.dtype for column in b]


@pytest.mark.parametrize("n", [*range(70), 100, 1000])
def test_the_hash_is_xxh64(n):
    data = np.frombuffer(random.Random(n).randbytes(n + 3), dtype=np.uint8)
    expected = xxhash.xxh64_intdigest(data[2 : 2 + n].tobytes())
    assert xxh64(data, 2, 2 + n) % (1 << 64) == expected


@settings(max_examples=60)
@given(st.lists(TEXTS, min_size=64, max_size=90))
def test_columns_of_texts_encode_like_objects(texts):
    for kind in (pa.string(), pa.large_string()):
        same(encode_column(pa.array(texts, kind)), encode_texts(texts))
        same(encode_column(pa.array(["skipped", *texts], kind)[1:]), encode_texts(texts))


@settings(max_examples=60)
@given(st.lists(st.lists(TEXTS, max_size=5), min_size=64, max_size=90))
def test_columns_of_lists_encode_like_objects(texts):
    for kind in (pa.list_(pa.string()), pa.large_list(pa.large_string())):
        same(encode_column(pa.array(texts, kind)), encode_texts(texts))
        same(encode_column(pa.array([["skipped", "too"], *texts], kind)[1:]), encode_texts(texts))


def test_a_very_long_text_is_encoded_by_the_fallback_with_the_same_result():
    rng = random.Random(1)
    texts = [" ".join(str(rng.randrange(9000)) for _ in range(6000)), *["a b a"] * 70]
    same(encode_column(pa.array(texts)), encode_texts(texts))
    same(encode_column(pa.array([tokenize(t) for t in texts])), encode_texts(texts))


@pytest.mark.parametrize("n", [0, 1, 5, 200])
def test_the_hashes_of_a_column_are_those_of_its_strings(n):
    strings = [f"wörd{i}" * (i % 9) for i in range(n)]
    assert hash_column(pa.array(strings, pa.string())).tolist() == term_ids(strings).tolist()
