"""Hypothesis strategies for a small data set with few terms, few places and many ties.

Coordinates lie on a coarse grid and weights are small powers of two, so equal scores are common and exact. Everything
is drawn as plain keyword arguments as well as objects, so that an oracle can work without this package.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from nearcast.model import Attributes, Message, ScoringContext, Subscription, find_kind
from nearcast.social import SocialGraph
from nearcast.space import Box, Circle, Polygon, Region, Space
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
ATTRIBUTES: Mapping[str, type] = {"price": float, "stars": int, "category": str, "open now": bool}
VALUES: Mapping[str, tuple[Any, ...]] = {
    "price": (None, -0.0, 0.0, 1.5, 300.0),
    "stars": (None, -1, 0, 3),
    "category": (None, "", "bike", "it's"),
    "open now": (None, False, True),
}
"""The attributes of the small data set, and the values that messages have and conditions name."""
RADII = {PLANE: (0.0, 2.7, 5.3), GLOBE: (0.0, 250_000.0, 3_000_000.0)}
"""Radii of circles on whose boundary no point of the grid lies, except for the center."""


def vocabulary() -> Vocabulary:
    """Return the vocabulary of the small data set."""
    return Vocabulary.with_weights(WEIGHTS)


def social_graph() -> SocialGraph:
    """Return the social graph of the small data set."""
    return SocialGraph(EDGES)


def scoring(space: Space = PLANE, text_similarity: str = "containment") -> ScoringContext:
    """Return the scoring context of the small data set."""
    attributes = Attributes.of(ATTRIBUTES)
    return ScoringContext(space, vocabulary(), social_graph(), TEXT_SIMILARITIES[text_similarity], attributes)


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
    for name in {"text", "keywords", "require"} & fields.keys():
        if fields[name] is None:
            continue
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


def attribute_values() -> st.SearchStrategy[dict[str, Any]]:
    """Draw the attributes of a message."""
    return st.fixed_dictionaries({}, optional={name: st.sampled_from(VALUES[name]) for name in ATTRIBUTES})


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


def literals() -> st.SearchStrategy[str]:
    """Draw words, phrases, and what is excluded by NOT."""
    words = st.sampled_from(TERMS)
    phrases = st.lists(words, min_size=1, max_size=3).map(lambda terms: f'"{" ".join(terms)}"')
    return st.one_of(words, words, phrases).flatmap(lambda one: st.sampled_from([one, one, f"NOT {one}"]))


def requirements() -> st.SearchStrategy[str]:
    """Draw expressions with NOT and phrases, of which nothing is required."""
    return st.recursive(
        literals(),
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from([" AND ", " OR ", " "]), inner).map("".join),
            inner.map(lambda e: f"({e})"),
            inner.map(lambda e: f"NOT ({e})"),
        ),
        max_leaves=4,
    )


def rich_expressions() -> st.SearchStrategy[str]:
    """Draw expressions with NOT and phrases that have a positive term in each branch."""
    return st.tuples(expressions(), requirements()).map(lambda pair: f"({pair[0]}) AND ({pair[1]})")


def conditions() -> st.SearchStrategy[str]:
    """Draw conditions on the attributes, in the part of SQL that CQL2 shares."""
    return st.recursive(
        st.sampled_from(tuple(ATTRIBUTES)).flatmap(_tests_of),
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from([" AND ", " OR ", " and "]), inner).map("".join),
            inner.map(lambda e: f"({e})"),
            inner.map(lambda e: f"NOT ({e})"),
        ),
        max_leaves=4,
    )


def _tests_of(name: str) -> st.SearchStrategy[str]:
    values = st.sampled_from([_written(value) for value in VALUES[name] if value is not None])
    column = f'"{name}"' if " " in name else name
    no = st.sampled_from(["", "NOT "])
    tests = [
        st.tuples(no, st.lists(values, min_size=1, max_size=3)).map(
            lambda p: f"{column} {p[0]}IN ({', '.join(p[1])})"
        ),
        st.tuples(st.sampled_from(["=", "<>"]), values).map(lambda p: f"{column} {p[0]} {p[1]}"),
        no.map(lambda negated: f"{column} IS {negated}NULL"),
    ]
    if ATTRIBUTES[name] in (float, int):
        orders = st.sampled_from(["<", "<=", ">", ">="])
        tests.append(st.tuples(orders, values).map(lambda p: f"{column} {p[0]} {p[1]}"))
        tests.append(st.tuples(values, orders).map(lambda p: f"{p[0]} {p[1]} {column}"))
        tests.append(st.tuples(no, values, values).map(lambda p: f"{column} {p[0]}BETWEEN {p[1]} AND {p[2]}"))
    return st.one_of(tests)


def _written(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value).upper()


def regions(space: Space) -> st.SearchStrategy[tuple[Any, ...]]:
    """Draw boxes as tuples, `("circle", center, radius)`, and `("polygon", shell, holes)`."""
    circles = st.tuples(st.just("circle"), locations(space), st.sampled_from(RADII[space]))
    drawn = [boxes(space), circles, triangles(space)]
    if space.metric == "haversine":
        drawn.append(boxes(space).map(lambda box: (box[2], box[1], box[0], box[3])))  # across the antimeridian
    return st.one_of(drawn)


def triangles(space: Space) -> st.SearchStrategy[tuple[Any, ...]]:
    """Draw triangles with corners where messages lie."""
    corners = st.tuples(locations(space), locations(space), locations(space))
    return corners.filter(_has_area).map(lambda shell: ("polygon", shell, ()))


def _has_area(corners: tuple[tuple[float, float], ...]) -> bool:
    (ax, ay), (bx, by), (cx, cy) = corners
    return (bx - ax) * (cy - ay) != (cx - ax) * (by - ay)


def filters(kind: str, space: Space = PLANE) -> st.SearchStrategy[dict[str, Any]]:
    """Draw filters of a subscription; None where there is none. `boolean` has a region and keywords of its own."""
    drawn: dict[str, st.SearchStrategy[Any]] = {"where": st.none() | conditions()}
    if kind != "boolean":
        drawn |= {"region": st.none() | regions(space), "require": st.none() | requirements()}
    return st.fixed_dictionaries(drawn)


def filtered_fields(kind: str, space: Space = PLANE) -> st.SearchStrategy[dict[str, Any]]:
    """Draw the fields of a subscription with filters, NOT, phrases and all forms of regions."""
    own = subscription_fields(kind, space)
    if kind == "boolean":
        own = st.fixed_dictionaries({"region": regions(space), "keywords": expressions() | rich_expressions()})
    return st.tuples(own, filters(kind, space)).map(lambda pair: pair[0] | pair[1])


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
    if given.get("region") is not None:
        given["region"] = make_region(given["region"])
    return find_kind(kind)(id=id_, **given)


def make_region(drawn: tuple[Any, ...]) -> Region:
    """Return a region as drawn.

    >>> make_region(("circle", (1, 2), 3))
    Circle(center=(1.0, 2.0), radius=3.0)
    """
    if drawn[0] == "circle":
        return Circle(drawn[1], drawn[2])
    return Polygon(drawn[1], drawn[2]) if drawn[0] == "polygon" else Box(*drawn)


def subscriptions(kind: str, space: Space = PLANE) -> st.SearchStrategy[Subscription]:
    """Draw subscriptions of one kind with arbitrary ids."""
    ids = st.integers(0, 1 << 40) | st.text()
    return st.builds(lambda id_, fields: make_subscription(kind, id_, fields), ids, subscription_fields(kind, space))
