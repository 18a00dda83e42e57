"""Who likes which place, and how close does that bring a user to a place?

    users  0..U     user_indptr  -> user_places   (sorted)      the places of a user
    places 0..P     place_indptr -> place_users   (sorted)      the users of a place

`social(u, p)` is 1 where the edge exists; else it is the greatest Dice similarity between the places of u and those
of any user who has an edge to p (geo-social paper, definition 4). It is 0 for almost every pair, so the scores
of one place are computed together, for just the users that share some place with one of its fans.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from nearcast.errors import require

Id = str | int

_PLACES_REMEMBERED = 4096


class SocialGraph:
    """The bipartite graph of users and places.

    >>> graph = SocialGraph([("ann", "cafe"), ("ann", "bar"), ("bob", "bar"), ("bob", "gym")])
    >>> graph.score("ann", "cafe"), graph.score("ann", "gym"), graph.score("ann", "moon")
    (1.0, 0.5, 0.0)
    """

    def __init__(self, edges: Iterable[tuple[Id, Id]] = ()) -> None:
        self.users: dict[Id, int] = {}
        self.places: dict[Id, int] = {}
        pairs: set[tuple[int, int]] = set()
        for edge in edges:
            ok = isinstance(edge, (tuple, list)) and len(edge) == 2 and all(_is_id(end) for end in edge)
            require(ok, "edges", "must be pairs of a user and a place, each a string or an integer", edge)
            user, place = edge
            pairs.add(
                (
                    self.users.setdefault(user, len(self.users)),
                    self.places.setdefault(place, len(self.places)),
                )
            )
        ends = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
        self.user_indptr, self.user_places = _compress(ends[:, 0], ends[:, 1], len(self.users))
        self.place_indptr, self.place_users = _compress(ends[:, 1], ends[:, 0], len(self.places))
        self._scores_of_place: OrderedDict[int, dict[int, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self.user_places)

    def edges(self) -> list[tuple[Id, Id]]:
        """Return every edge once, as (user, place)."""
        users, places = list(self.users), list(self.places)
        owners = np.repeat(np.arange(len(users)), np.diff(self.user_indptr))
        return [(users[u], places[p]) for u, p in zip(owners, self.user_places, strict=True)]

    def score(self, user: Id, place: Id | None) -> float:
        """Return the social score of a user and a place; 0 where either is unknown or there is no place."""
        if place is None:
            return 0.0
        u, p = self.users.get(user), self.places.get(place)
        if u is None or p is None:
            return 0.0
        return self._scores(p).get(u, 0.0)

    def _scores(self, place: int) -> Mapping[int, float]:
        """Return the score of each user for whom it is not 0."""
        scores = self._scores_of_place.get(place)
        if scores is None:
            scores = self._compute(place)
            self._scores_of_place[place] = scores
            if len(self._scores_of_place) > _PLACES_REMEMBERED:
                self._scores_of_place.popitem(last=False)
        return scores

    def _compute(self, place: int) -> dict[int, float]:
        scores: dict[int, float] = {}
        fans = self._users_of(place)
        for fan in fans:
            theirs = self._places_of(fan)
            shared = np.concatenate([self._users_of(p) for p in theirs])
            users, overlaps = np.unique(shared, return_counts=True)
            sizes = np.diff(self.user_indptr)[users]
            for user, overlap, size in zip(users.tolist(), overlaps.tolist(), sizes.tolist(), strict=True):
                similarity = 2.0 * overlap / (size + len(theirs))
                if similarity > scores.get(user, 0.0):
                    scores[user] = similarity
        scores.update(dict.fromkeys(fans.tolist(), 1.0))
        return scores

    def _places_of(self, user: int) -> npt.NDArray[np.int32]:
        return self.user_places[self.user_indptr[user] : self.user_indptr[user + 1]]

    def _users_of(self, place: int) -> npt.NDArray[np.int32]:
        return self.place_users[self.place_indptr[place] : self.place_indptr[place + 1]]


def _compress(
    owners: npt.NDArray[np.int64], items: npt.NDArray[np.int64], n_owners: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    order = np.lexsort((items, owners))
    indptr = np.zeros(n_owners + 1, dtype=np.int64)
    np.cumsum(np.bincount(owners, minlength=n_owners), out=indptr[1:])
    return indptr, items[order].astype(np.int32)


def _is_id(value: object) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool)
