"""Hypothesis strategies for a small data set with few terms, few places and many ties.

Coordinates lie on a coarse grid and weights are small powers of two, so equal scores are common and exact. Everything
is drawn as plain keyword arguments as well as objects, so that an oracle can work without this package.
"""

from __future__ import annotations

import re
from typing import Any

from hypothesis import strategies as st

from nearcast.model import Message, ScoringContext, Subscription, find_kind
from nearcast.social import SocialGraph
from nearcast.space import Box, Space
from nearcast.text import TEXT_SIMILARITIES, Vocabulary

TERMS = tuple("abcdef")
WEIGHTS = {"a": 4.0, "b": 2.0, "c": 2.0, "d": 1.0, "e": 1.0, "f": 0.5}
USERS = ("u0", "u1", "u2", "u3")
PLACES = ("p0", "p1", "p2", "p3", "p4")
EDGES = (
    ("u0", "p0"), ("u0", "p1"), ("u1", "p1"), ("u1", "p2"), ("u2", "p1"), ("u2", "p2"), ("u2", "p3"), ("u3", "p4"),
)  # fmt: skip

PLANE = Space(Box(0, 0, 8, 8), max_distance=8)
GLOBE = Space.earth(max_distance=2_000_000)
SPACES = (PLANE, GLOBE)

GRID = {
    PLANE: tuple((float(x), float(y)) for x in range(0, 9, 2) for y in range(0, 9, 4)),
    # On both sides of the antimeridian, close to a pole, and a few degrees apart.
    GLOBE: tuple((float(x), float(y)) for x in (-180, -179, -5, 0, 3, 179, 180) for y in (-3, 0, 4, 89)),
}
SPELLED = {"a": "Running", "b": "b", "c": "カフェで", "d": "RUNS", "e": "naïve", "f": "e't"}
"""Texts that stand for terms: by an analyzer they give several terms, or the same one."""
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


def vocabulary() -> Vocabulary:
    """Return the vocabulary of the small data set."""
    return Vocabulary.with_weights(WEIGHTS)


def social_graph() -> SocialGraph:
    """Return the social graph of the small data set."""
    return SocialGraph(EDGES)


def scoring(space: Space = PLANE, text_similarity: str = "containment") -> ScoringContext:
    """Return the scoring context of the small data set."""
    return ScoringContext(space, vocabulary(), social_graph(), TEXT_SIMILARITIES[text_similarity])


def locations(space: Space) -> st.SearchStrategy[tuple[float, float]]:
    """Draw points that often coincide."""
    return st.sampled_from(GRID[space])


def term_lists(*, min_size: int = 0, max_size: int = 5) -> st.SearchStrategy[list[str]]:
    """Draw terms, repetitions included."""
    return st.lists(st.sampled_from(TERMS), min_size=min_size, max_size=max_size)


def spell(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a message or a subscription with texts instead of terms.

    >>> spell({"text": ["a", "b"]}), spell({"keywords": "a AND (b OR d)"})
    ({'text': 'Running b'}, {'keywords': 'Running AND (b OR RUNS)'})
    """
    spelled = dict(fields)
    for name in {"text", "keywords"} & fields.keys():
        given = fields[name] if isinstance(fields[name], str) else " ".join(fields[name])
        spelled[name] = re.sub(r"\b[a-f]\b", lambda found: SPELLED[found[0]], given)
    return spelled


def message_fields(space: Space) -> st.SearchStrategy[dict[str, Any]]:
    """Draw the fields of a message, apart from id and time."""
    return st.fixed_dictionaries(
        {
            "location": locations(space),
            "text": term_lists(),
            "place": st.none() | st.sampled_from((*PLACES, "nowhere")),
        }
    )


def messages(space: Space = PLANE) -> st.SearchStrategy[Message]:
    """Draw messages with arbitrary ids."""
    return st.builds(
        lambda id_, fields: Message(id=id_, **fields), st.integers(0, 1 << 40) | st.text(), message_fields(space)
    )


def expressions() -> st.SearchStrategy[str]:
    """Draw boolean expressions."""
    words = st.sampled_from(TERMS)
    return st.recursive(
        words,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map(lambda p: f"{p[0]} AND {p[1]}"),
            st.tuples(inner, inner).map(lambda p: f"{p[0]} OR {p[1]}"),
            st.tuples(inner, inner).map(lambda p: f"{p[0]} {p[1]}"),
            inner.map(lambda e: f"({e})"),
        ),
        max_leaves=5,
    )


def boxes(space: Space) -> st.SearchStrategy[tuple[float, float, float, float]]:
    """Draw boxes as (xmin, ymin, xmax, ymax), their corners where messages lie."""
    return st.tuples(locations(space), locations(space)).map(
        lambda p: (min(p[0][0], p[1][0]), min(p[0][1], p[1][1]), max(p[0][0], p[1][0]), max(p[0][1], p[1][1]))
    )


def subscription_fields(kind: str, space: Space = PLANE) -> st.SearchStrategy[dict[str, Any]]:
    """Draw the fields of a subscription of one kind, apart from its id; a region is a tuple."""
    if kind == "boolean":
        return st.fixed_dictionaries({"region": boxes(space), "keywords": expressions()})
    point = {"location": locations(space), "keywords": term_lists(min_size=1)}
    k, share = st.integers(1, 4), st.sampled_from(SHARES)
    extra: dict[str, dict[str, st.SearchStrategy[Any]]] = {
        "similarity": {"delta": share, "tau": share},
        "topk": {"k": k, "alpha": share},
        "nearest": {"k": k},
        "social": {"k": k, "user": st.sampled_from(USERS)},
    }
    return st.fixed_dictionaries({**point, **extra[kind]})


def make_subscription(kind: str, id_: Any, fields: dict[str, Any]) -> Subscription:
    """Return a subscription with fields as drawn."""
    given = dict(fields)
    if "region" in given:
        given["region"] = Box(*given["region"])
    return find_kind(kind)(id=id_, **given)


def subscriptions(kind: str, space: Space = PLANE) -> st.SearchStrategy[Subscription]:
    """Draw subscriptions of one kind with arbitrary ids."""
    ids = st.integers(0, 1 << 40) | st.text()
    return st.builds(lambda id_, fields: make_subscription(kind, id_, fields), ids, subscription_fields(kind, space))
