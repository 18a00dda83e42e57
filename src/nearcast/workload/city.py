"""A small generated city for demos and examples, with readable messages.

    districts   a handful of centres, each with a flavour
    places      cafés, clubs, shops: a name, a point near a centre, a trade
    people      users that like some places, most of them of one flavour, and subscribe from where they live
    messages    announcements of places: a phrase of the trade, at the place, a few seconds after the last one

Everything follows from the seed. The `WORKLOADS` are for measurements; this city is for people to look at.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from nearcast.model import (
    BooleanSubscription,
    Message,
    NearestSubscription,
    SimilaritySubscription,
    SocialSubscription,
    Subscription,
    TopKSubscription,
)
from nearcast.social import SocialGraph
from nearcast.space import Box, Point, Space
from nearcast.text import Vocabulary

BOUNDS = Box(8.90, 54.00, 9.20, 54.18)
EPOCH_S = 1_767_225_600.0  # the first second of 2026

TRADES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "cafe": (("Blue Cup", "Copper Bean", "Slow Pour", "Corner Roast"), ("coffee", "cake", "brunch", "espresso")),
    "club": (("Night Owl", "Low Ceiling", "The Basement", "Velvet Room"), ("jazz", "concert", "live", "dance")),
    "kitchen": (("Salt and Steam", "Noodle Yard", "The Long Table", "Ember"), ("ramen", "sushi", "dinner", "lunch")),
    "shop": (("Second Sole", "Thread Works", "The Attic", "Paper Moon"), ("shoes", "vintage", "books", "records")),
    "market": (("Harbour Stalls", "Old Market", "Green Row", "Fish Hall"), ("flowers", "bread", "cheese", "oysters")),
    "park": (("Lantern Park", "Mill Meadow", "West Lawn", "Tide Garden"), ("yoga", "picnic", "cinema", "running")),
}
OCCASIONS = ("sale", "discount", "tonight", "today", "free", "opening", "festival", "late", "new", "special")
PHRASES = (
    "{a} and {b} {when} at {place}",
    "{when}: {a} {b} at {place}",
    "{place} has {a}, {when} only",
    "Come to {place} for {a} {when}",
)


class Place(NamedTuple):
    """A place that publishes."""

    id: str
    name: str
    trade: str
    location: Point


@dataclass(frozen=True)
class City:
    """A generated city.

    >>> city = City(seed=1)
    >>> len(city.places), len(list(city.messages(3)))
    (120, 3)
    >>> sorted({s.kind for s in city.subscriptions(50)})
    ['boolean', 'nearest', 'similarity', 'social', 'topk']
    """

    seed: int = 0
    n_places: int = 120
    n_people: int = 200
    places: tuple[Place, ...] = field(init=False, repr=False)
    space: Space = field(init=False, repr=False)
    social: SocialGraph = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rng = self._rng("places")
        centres = [_anywhere(rng) for _ in range(7)]
        places = []
        for number in range(self.n_places):
            trade = rng.choice(sorted(TRADES))
            name = f"{rng.choice(TRADES[trade][0])} {number}"
            places.append(Place(f"p{number}", name, trade, _around(rng, rng.choice(centres), spread=0.012)))
        object.__setattr__(self, "places", tuple(places))
        object.__setattr__(self, "space", Space(BOUNDS, metric="haversine", max_distance=8_000))
        object.__setattr__(self, "social", SocialGraph(self._friendships()))

    def messages(self, n: int) -> Iterator[Message]:
        """Yield the announcements of places, in the order of time."""
        rng = self._rng("messages")
        at = EPOCH_S
        for number in range(n):
            at += rng.expovariate(1.0)
            place = rng.choice(self.places)
            a, b = rng.sample(TRADES[place.trade][1], 2)
            text = rng.choice(PHRASES).format(a=a, b=b, when=rng.choice(OCCASIONS), place=place.name)
            yield Message(f"m{number}", place.location, text, at, place.id)

    def subscriptions(self, n: int) -> list[Subscription]:
        """Return subscriptions of all five kinds, about evenly."""
        rng = self._rng("subscriptions")
        makers = (_boolean, _similarity, _topk, _nearest, _social)
        return [makers[number % len(makers)](f"s{number}", rng, self) for number in range(n)]

    def vocabulary(self) -> Vocabulary:
        """Return weights counted on a sample of announcements."""
        return Vocabulary.from_texts(message.text for message in self.messages(500))

    def _friendships(self) -> Iterator[tuple[str, str]]:
        rng = self._rng("people")
        for number in range(self.n_people):
            favourite = rng.choice(sorted(TRADES))
            own = [place for place in self.places if place.trade == favourite] or list(self.places)
            for place in (*rng.sample(own, min(3, len(own))), rng.choice(self.places)):
                yield f"u{number}", place.id

    def _rng(self, purpose: str) -> random.Random:
        return random.Random(f"{self.seed}/{purpose}")


def _words(rng: random.Random, n: int) -> list[str]:
    trade = rng.choice(sorted(TRADES))
    return rng.sample((*TRADES[trade][1], rng.choice(OCCASIONS)), n)


def _boolean(id_: str, rng: random.Random, city: City) -> Subscription:
    x, y = _anywhere(rng)
    half = rng.uniform(0.02, 0.06)
    region = Box(
        max(BOUNDS.xmin, x - half), max(BOUNDS.ymin, y - half), min(BOUNDS.xmax, x + half), min(BOUNDS.ymax, y + half)
    )
    what, (this, that) = rng.choice(TRADES[rng.choice(sorted(TRADES))][1]), rng.sample(OCCASIONS, 2)
    return BooleanSubscription(id_, region=region, keywords=f"{what} AND ({this} OR {that})")


def _similarity(id_: str, rng: random.Random, city: City) -> Subscription:
    return SimilaritySubscription(
        id_, location=_anywhere(rng), keywords=" ".join(_words(rng, 2)), delta=rng.random(), tau=rng.uniform(0.5, 0.9)
    )


def _topk(id_: str, rng: random.Random, city: City) -> Subscription:
    words = " ".join(_words(rng, 2))
    return TopKSubscription(id_, location=_anywhere(rng), keywords=words, k=rng.randint(1, 10), alpha=rng.random())


def _nearest(id_: str, rng: random.Random, city: City) -> Subscription:
    return NearestSubscription(id_, location=_anywhere(rng), keywords=" ".join(_words(rng, 2)), k=rng.randint(1, 5))


def _social(id_: str, rng: random.Random, city: City) -> Subscription:
    user = f"u{rng.randrange(city.n_people)}"
    words = " ".join(_words(rng, 1))
    return SocialSubscription(id_, location=_anywhere(rng), keywords=words, k=rng.randint(1, 10), user=user)


def _anywhere(rng: random.Random) -> Point:
    return rng.uniform(BOUNDS.xmin, BOUNDS.xmax), rng.uniform(BOUNDS.ymin, BOUNDS.ymax)


def _around(rng: random.Random, centre: Point, *, spread: float) -> Point:
    x = min(max(rng.gauss(centre[0], spread), BOUNDS.xmin), BOUNDS.xmax)
    y = min(max(rng.gauss(centre[1], spread), BOUNDS.ymin), BOUNDS.ymax)
    return x, y
