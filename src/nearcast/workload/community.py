"""Users, places and check-ins, after the geo-social paper.

The paper (section 4.1, table 1) uses Yelp: 366,715 users, 60,785 places, 1,521,160 check-ins, so six users per place
and four check-ins per user. Here

    places   lie in the cities of the workload; sorted by city and cut into districts of about `district` places
    users    have a home district and c check-ins, p(c) ~ 1 / c^1.85, so half have one and a few have hundreds
    check-in with probability `loyalty` at a place of the home district, else anywhere; places of a district, and all
             places together, are visited by a Zipf law

         u1 --- p1 p2 p3 | p4 p5 p6 --- u4        users of one district share places, which makes one user's
         u2 ----'  |     |  |                     check-ins predict another's
         u3 -------'-----|--'

A message of a community is published by a place, drawn in proportion to its check-ins (the paper does not say how),
and lies where the place lies. Its text is that of the workload; the paper drew 1 to 11 terms of a review.

Cost: 7 s and 500 MB for the 366,715 users of Yelp (1.5 M edges), nearly all of it in `SocialGraph`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nearcast.errors import require
from nearcast.social import SocialGraph
from nearcast.workload.cities import Cities
from nearcast.workload.columns import named
from nearcast.workload.streams import generator
from nearcast.workload.zipf import Zipf, invert

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_USERS_A_PLACE = 6


@dataclass(frozen=True)
class Taste:
    """Parameters of the users' choice of places."""

    district: int = 40  # places
    loyalty: float = 0.8  # share of check-ins in the home district
    most_checkins: int = 500  # of a user; six on average, four of them at different places
    zeal: float = 1.85  # exponent of the law of check-ins: the greater, the fewer users have many
    fame: float = 0.6  # exponent of the law of places: the greater, the more users the best places have


@dataclass(frozen=True, eq=False)
class Community:
    """Users u0, u1, ... and places p0, p1, ..., with the graph of check-ins."""

    graph: SocialGraph
    users: int
    xs: Floats  # of the places
    ys: Floats
    popularity: Floats  # cumulative: one more than the users of each place

    @property
    def places(self) -> int:
        """Return the number of places."""
        return len(self.xs)

    def visit(self, rng: np.random.Generator, n: int) -> Ints:
        """Draw places in proportion to their users."""
        return invert(self.popularity, rng.random(n) * self.popularity[-1])


def gather(
    cities: Cities, users: int, *, places: int | None = None, seed: int = 0, taste: Taste | None = None
) -> Community:
    """Return a community in some cities; without `places`, one place per six users.

    >>> from nearcast.workload.generator import make
    >>> community = make("reviews").social(600)
    >>> community.places, len(community.graph.users), community.graph.score("u0", "p0") <= 1
    (100, 600, True)
    """
    places = max(1, users // _USERS_A_PLACE) if places is None else places
    for name, value in (("users", users), ("places", places)):
        ok = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        require(ok, name, "must be an integer of 1 or more", value, subject="community")
    taste = Taste() if taste is None else taste
    rng = generator(seed, "community")
    xs, ys, city_of = cities.draw(rng, places, seed=seed)
    by_city = np.argsort(city_of, kind="stable")
    owners, visited = _check_in(rng, users, places, taste)
    pairs = np.unique(owners * places + by_city[visited])
    owners, visited = pairs // places, pairs % places
    edges = zip(named("u", owners).to_pylist(), named("p", visited).to_pylist(), strict=True)
    popularity = np.cumsum(1.0 + np.bincount(visited, minlength=places))
    return Community(graph=SocialGraph(edges), users=users, xs=xs, ys=ys, popularity=popularity)


def _check_in(rng: np.random.Generator, users: int, places: int, taste: Taste) -> tuple[Ints, Ints]:
    """Return user and place of every check-in; places are numbered by district."""
    counts = 1 + Zipf(taste.most_checkins, taste.zeal).draw(rng.random(users))
    owners = np.repeat(np.arange(users), counts)
    n_districts = max(1, places // taste.district)
    borders = np.arange(n_districts + 1) * places // n_districts
    district_of = (rng.random(users) * n_districts).astype(np.int64)[owners]
    law = Zipf(int(np.diff(borders).max()), taste.fame)
    near = borders[district_of] + law.draw(rng.random(len(owners)), sizes=np.diff(borders)[district_of])
    # Anywhere: a Zipf law over all places, in an order unrelated to districts.
    ranked = rng.permutation(places)
    far = ranked[Zipf(places, taste.fame).draw(rng.random(len(owners)))]
    return owners, np.where(rng.random(len(owners)) < taste.loyalty, near, far)
