"""Subscriptions after each paper's experiments, made from random messages.

    kind        paper, section            location                keywords                     the rest
    boolean     PS2Stream, VI-A and VI-C  a square around it      1-3 of its terms, AND or OR  q1, q2 or q3
    similarity  STAMP, VII-A              of a random message     1-5 of its terms             delta 0-1, tau 0.5-1
    topk        Skype, 8.1.1              of a random message     1-5 of its terms             alpha 0-1, k given
    nearest     DkM-SKS, 5.1              of a random message     1-5 of its terms             k in 1..k
    social      geo-social, 4.1           anywhere in the bounds  1-11 of a random message     k in 1..k, one per user

All ranges are uniform. The boolean groups of queries:

    q1    side 1-50 km, keywords as frequent as terms are
    q2    side 1-100 km, at least one keyword outside the most frequent 1 % of all terms
    q3    the bounds cut into 10 x 10 regions, each with the rule of q1 or of q2, by the seed

Where the papers leave room: a message with too few terms gives all it has. Keywords of a boolean query are terms of
one message, whose location is also the centre: they are then as frequent as terms are, and an AND of them occurs. AND
and OR are equally likely. A q2 query whose message has no rare term takes the words of another message. Squares are
cut at the bounds. Figure 5 of the geo-social paper, the numbers of keywords, is not in its text; they are uniform
here, as is k below the greatest k of each paper's default.

Subscription i of a seed, a kind and its options is always the same, see `streams`; kinds are independent of each
other and of the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import InvalidInput, require
from nearcast.workload.cities import DEGREES_PER_METRE, scatter
from nearcast.workload.columns import SUBSCRIPTIONS, constant, fill, numbered
from nearcast.workload.community import Community
from nearcast.workload.sample import MessageSample, SampleSource, TermRanks
from nearcast.workload.streams import BLOCK, cut, generator

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Columns = dict[str, Any]

_MAX_KEYWORDS = 5  # of topk, similarity and nearest
_MAX_BOOLEAN = 3
_MAX_SOCIAL = 11
_SIDE_MIN_M = 1_000.0
_SIDE_Q1_M = 50_000.0
_SIDE_Q2_M = 100_000.0
_FREQUENT_SHARE = 0.01  # share of the vocabulary that q2 avoids
_REGIONS = 10  # of q3, along each axis
_TAU_MIN = 0.5
_MAX_REDRAWS = 1_000


class Order(NamedTuple):
    """A request for one block of rows."""

    source: SampleSource
    rng: np.random.Generator
    first: int  # number of the first row
    k: int | None
    queries: str
    community: Community | None


class Maker(NamedTuple):
    """A generator of subscriptions of one kind."""

    kind: str
    prefix: str  # prefix of ids
    k: int | None  # default; None if the kind has no k
    of_users: bool  # true if each belongs to a user of a community
    make: Callable[[Order], Columns]


def subscribe(
    source: SampleSource,
    kind: str,
    n: int,
    *,
    start: int = 0,
    k: int | None = None,
    queries: str = "q1",
    block: int = BLOCK,
    community: Community | None = None,
) -> Iterator[pa.Table]:
    """Yield subscriptions start to start + n of a kind, `block` rows per table.

    `k` is the k of `topk` and the greatest one of `nearest` and `social`; `queries` is for `boolean`, and `community`
    for `social`.

        >>> from nearcast.workload.generator import make
        >>> row = next(make("tweets").subscriptions("topk", 1)).to_pylist()[0]
        >>> row["id"], row["kind"], row["k"], row["tau"]
        ('t0', 'topk', 20, None)
    """
    maker = _maker(kind)
    _rule_of(queries)
    k = maker.k if k is None else k
    require(k is None or k >= 1, "k", "must be 1 or more", k)
    if maker.of_users:
        if community is None:
            hint = "Make one with workload.social(users)"
            raise InvalidInput("community", f"must be given for kind {kind!r}", None, hint=hint)
        rule = f"must not exceed {community.users}, the users of the community: each has one subscription"
        require(start + n <= community.users, "start + n", rule, start + n)

    def made(number: int) -> pa.Table:
        rng = generator(source.seed, f"{source.name}/subscriptions/{kind}", number)
        columns = maker.make(Order(source, rng, number * BLOCK, k, queries, community))
        columns["op"] = constant("subscribe", BLOCK)
        columns["kind"] = constant(kind, BLOCK)
        columns["id"] = numbered(maker.prefix, number * BLOCK, BLOCK)
        return fill(SUBSCRIPTIONS, BLOCK, columns)

    return cut(made, n, start=start, block=block)


def _boolean(order: Order) -> Columns:
    source, rng = order.source, order.rng
    sample = source.sample(rng, BLOCK)
    xs, ys = sample.xs, sample.ys
    by_q2 = _rule_of(order.queries)(source, xs, ys)
    sides = _uniform(rng, _SIDE_MIN_M, np.where(by_q2, _SIDE_Q2_M, _SIDE_Q1_M))
    frequent = int(len(source.terms()) * _FREQUENT_SHARE)
    texts = _with_rare(order, sample, by_q2, frequent)
    rare = (texts.ranks >= frequent) & by_q2[texts.owners()]
    picked = texts.pick(rng, _integers(rng, _MAX_BOOLEAN), one_of=rare)
    operators = np.where(rng.random(BLOCK) < 0.5, " AND ", " OR ")
    half_y = sides * (DEGREES_PER_METRE / 2)
    half_x = half_y / np.cos(np.radians(ys))
    bounds = source.bounds
    return {
        "xmin": np.maximum(xs - half_x, bounds.xmin),
        "ymin": np.maximum(ys - half_y, bounds.ymin),
        "xmax": np.minimum(xs + half_x, bounds.xmax),
        "ymax": np.minimum(ys + half_y, bounds.ymax),
        "keywords": pc.binary_join(picked.spelt(source.terms()), pa.array(operators, pa.string())),
    }


def _similarity(order: Order) -> Columns:
    columns = _at_a_message(order)
    columns["delta"] = order.rng.random(BLOCK)
    columns["tau"] = _uniform(order.rng, _TAU_MIN, 1.0)
    return columns


def _topk(order: Order) -> Columns:
    columns = _at_a_message(order)
    columns["alpha"] = order.rng.random(BLOCK)
    columns["k"] = np.full(BLOCK, order.k, dtype=np.int32)
    return columns


def _nearest(order: Order) -> Columns:
    columns = _at_a_message(order)
    columns["k"] = _up_to_k(order)
    return columns


def _social(order: Order) -> Columns:
    source, rng = order.source, order.rng
    texts = source.sample(rng, BLOCK).texts
    columns: Columns = {"keywords": _keywords(order, texts, _MAX_SOCIAL)}
    columns["x"], columns["y"] = scatter(rng, source.bounds, BLOCK)
    columns["k"] = _up_to_k(order)
    columns["user"] = numbered("u", order.first, BLOCK)
    return columns


def _at_a_message(order: Order) -> Columns:
    """Return the columns that most kinds share: the location of a random message, and some of its terms."""
    sample = order.source.sample(order.rng, BLOCK)
    return {"x": sample.xs, "y": sample.ys, "keywords": _keywords(order, sample.texts, _MAX_KEYWORDS)}


def _keywords(order: Order, texts: TermRanks, most: int) -> pa.StringArray:
    picked = texts.pick(order.rng, _integers(order.rng, most))
    return pc.binary_join(picked.spelt(order.source.terms()), " ")


def _with_rare(order: Order, sample: MessageSample, wanted: Flags, frequent: int) -> TermRanks:
    """Return the texts of a sample; where wanted, those without a rare term are replaced."""
    texts = sample.texts
    for _ in range(_MAX_REDRAWS):
        lacking = np.flatnonzero(wanted & ~texts.any(texts.ranks >= frequent))
        if not len(lacking):
            return texts
        texts = texts.put(lacking, order.source.sample(order.rng, len(lacking)).texts)
    raise InvalidInput("queries", "need messages with a term outside the most frequent 1 %", order.queries)


def _up_to_k(order: Order) -> npt.NDArray[np.int32]:
    assert order.k is not None
    return _integers(order.rng, order.k).astype(np.int32)


def _integers(rng: np.random.Generator, most: int) -> Ints:
    """Draw a block of integers from 1 to `most`."""
    return 1 + (rng.random(BLOCK) * most).astype(np.int64)


def _uniform(rng: np.random.Generator, low: float, high: float | Floats) -> Floats:
    return low + rng.random(BLOCK) * (high - low)


def _none(source: SampleSource, xs: Floats, ys: Floats) -> Flags:
    return np.zeros(len(xs), dtype=np.bool_)


def _all(source: SampleSource, xs: Floats, ys: Floats) -> Flags:
    return np.ones(len(xs), dtype=np.bool_)


def _by_region(source: SampleSource, xs: Floats, ys: Floats) -> Flags:
    bounds = source.bounds
    by_q2 = generator(source.seed, f"{source.name}/regions").random((_REGIONS, _REGIONS)) < 0.5
    columns = _cell(xs, bounds.xmin, bounds.xmax)
    return by_q2[_cell(ys, bounds.ymin, bounds.ymax), columns]


def _cell(values: Floats, low: float, high: float) -> Ints:
    width = (high - low) / _REGIONS or 1.0
    return np.clip((values - low) / width, 0, _REGIONS - 1).astype(np.int64)


_RULES: dict[str, Callable[[SampleSource, Floats, Floats], Flags]] = {"q1": _none, "q2": _all, "q3": _by_region}

QUERIES = tuple(_RULES)

MAKERS = (
    Maker("boolean", prefix="b", k=None, of_users=False, make=_boolean),
    Maker("similarity", prefix="s", k=None, of_users=False, make=_similarity),
    Maker("topk", prefix="t", k=20, of_users=False, make=_topk),
    Maker("nearest", prefix="n", k=10, of_users=False, make=_nearest),
    Maker("social", prefix="g", k=10, of_users=True, make=_social),
)


def _maker(kind: str) -> Maker:
    makers = {maker.kind: maker for maker in MAKERS}
    require(kind in makers, "kind", f"must be one of {', '.join(makers)}", kind)
    return makers[kind]


def _rule_of(queries: str) -> Callable[[SampleSource, Floats, Floats], Flags]:
    """Return the function that tells, for points, whether the rule of q2 applies rather than that of q1."""
    require(queries in _RULES, "queries", f"must be one of {', '.join(QUERIES)}", queries)
    return _RULES[queries]
