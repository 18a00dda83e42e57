"""Expressions of one operator are recognised alike by a kernel and by patterns."""

import random

import pyarrow as pa

from nearcast.model import subscription_columns as columns

WORDS = ["a", "bike", "x1", "AND", "OR", "and", "or", "NOT", "Bike", "AN", "ANDY", "ORa", "", '"p"', "é", "_"]
EDGES = ["", " ", " a", "a ", "a  b", "AND", "OR", "a AND", "a OR", "a AND ", "a OR ", "AND a", "a AND AND b",
         "a AND b", "a OR b OR c", "a OR b c", "a AND b c", "a OR b AND c", "a\tb", "a ANDb", "a ORb"]  # fmt: skip


def check(expressions):
    by_kernel = columns._operators(expressions)
    for found, pattern in zip(by_kernel, (columns._ALL, columns._ANY), strict=True):
        assert found.tolist() == columns._which(expressions, pattern).tolist()
    return by_kernel


def test_a_kernel_recognises_what_the_patterns_do():
    rng = random.Random(2)
    drawn = [
        " ".join(rng.choices(WORDS, weights=[9, 9, 9, 5, 5] + [1] * 11, k=rng.randint(1, 5))) for _ in range(4000)
    ]
    are_all, are_any = check(pa.array([*EDGES, *drawn]))
    assert are_all.sum() > 100
    assert are_any.sum() > 20
    check(pa.array([*EDGES, *drawn]).slice(7, 900))
    check(pa.array(["a", None, "a OR b"]))
