"""The social graph: edges between users and places, and the social score of a user and a place.

    users  0..U     user_indptr  -> user_places   (sorted)      the places of a user
    places 0..P     place_indptr -> place_users   (sorted)      the users of a place

`social(u, p)` is 1 where the edge exists. Otherwise it is the greatest Dice similarity between the places of u and
those of a user with an edge to p (geo-social paper, definition 4). It is 0 for almost every pair, so the scores of
one place are computed together, for the users that share a place with one of its users. Kernels use the neighbours of
users instead, see `_kernels.graph`; these are computed on first use.

Edges can be added and removed (the paper's future work). Rows are then rewritten, in milliseconds for a million
edges, and the neighbours of users that share a place with a changed edge are computed again. The same edges give the
same numbers in any order; a user or place that becomes known later has the next number.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from nearcast.errors import is_whole, require

if TYPE_CHECKING:
    from nearcast.social._kernels.graph import GraphArrays

Id = str | int
Edge = tuple[Id, Id]
Rows = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]
"""Compressed rows: where each begins, and their items."""

_PLACES_REMEMBERED = 4096


class SocialLink(NamedTuple):
    """Why a user and a place have a social score."""

    user: Id
    """The user with an edge to the place: the same user, or else the most similar one."""
    shared_places: tuple[Id, ...]


class SocialGraph:
    """The bipartite graph of users and places.

    >>> graph = SocialGraph([("ann", "cafe"), ("ann", "bar"), ("bob", "bar"), ("bob", "gym")])
    >>> graph.score("ann", "cafe"), graph.score("ann", "gym"), graph.score("ann", "moon")
    (1.0, 0.5, 0.0)
    >>> graph.remove_edges([("bob", "gym")])
    ['ann', 'bob']
    >>> graph.score("ann", "gym")
    0.0
    """

    def __init__(self, edges: Iterable[Edge] = (), *, users: Iterable[Id] = (), places: Iterable[Id] = ()) -> None:
        """Create a graph; `users` and `places` are numbered in the given order, with edges or without."""
        pairs = set(checked(edges))
        self.users: dict[Id, int] = _numbered(users, (user for user, _ in pairs))
        self.places: dict[Id, int] = _numbered(places, (place for _, place in pairs))
        ends = np.array([(self.users[u], self.places[p]) for u, p in pairs], dtype=np.int64).reshape(-1, 2)
        self.user_indptr, self.user_places = _compress(ends[:, 0], ends[:, 1], len(self.users))
        self.place_indptr, self.place_users = _compress(ends[:, 1], ends[:, 0], len(self.places))
        self._scores_of_place: OrderedDict[int, dict[int, float]] = OrderedDict()
        self._arrays: GraphArrays | None = None

    def __len__(self) -> int:
        return len(self.user_places)

    def __contains__(self, edge: Edge) -> bool:
        u, p = self.users.get(edge[0]), self.places.get(edge[1])
        return u is not None and p is not None and bool((self._places_of(u) == p).any())

    def copy(self) -> SocialGraph:
        """Return an independent copy; it costs nothing until one of the two changes."""
        twin = copy(self)
        twin._scores_of_place = OrderedDict()
        return twin

    def edges(self) -> list[Edge]:
        """Return every edge once, as (user, place)."""
        users, places = list(self.users), list(self.places)
        owners = np.repeat(np.arange(len(users)), np.diff(self.user_indptr))
        return [(users[u], places[p]) for u, p in zip(owners, self.user_places, strict=True)]

    def score(self, user: Id, place: Id | None) -> float:
        """Return the social score of a user and a place; 0 if either is unknown or there is no place."""
        if place is None:
            return 0.0
        u, p = self.users.get(user), self.places.get(place)
        if u is None or p is None:
            return 0.0
        return self._scores(p).get(u, 0.0)

    def link(self, user: Id, place: Id | None) -> SocialLink | None:
        """Return the user from whose places `score` follows, and the places that both share; None if the score is 0.

        >>> SocialGraph([("ann", "bar"), ("bob", "bar"), ("bob", "gym")]).link("ann", "gym")
        SocialLink(user='bob', shared_places=('bar',))
        """
        if place is None or not self.score(user, place):
            return None
        names, places = list(self.users), list(self.places)
        own = set(self._places_of(self.users[user]).tolist())
        if (user, place) in self:
            return SocialLink(user, tuple(places[p] for p in sorted(own)))
        visitors = [(v, set(self._places_of(v).tolist())) for v in self._users_of(self.places[place]).tolist()]
        best, theirs = max(visitors, key=lambda one: (len(own & one[1]) / (len(own) + len(one[1])), -one[0]))
        return SocialLink(names[best], tuple(places[p] for p in sorted(own & theirs)))

    # -- changes ------------------------------------------------------------------------------------------------

    def add_edges(self, edges: Iterable[Edge]) -> list[Id]:
        """Add edges and return the users whose scores may have changed. Existing edges stay."""
        new = [edge for edge in dict.fromkeys(checked(edges)) if edge not in self]
        if not new:
            return []
        self.users = _numbered(self.users, (user for user, _ in new))
        self.places = _numbered(self.places, (place for _, place in new))
        return self._change(new, _inserted)

    def remove_edges(self, edges: Iterable[Edge]) -> list[Id]:
        """Remove edges, all of which must exist, and return the users whose scores may have changed."""
        old = list(dict.fromkeys(checked(edges)))
        for edge in old:
            require(edge in self, "edges", "must be edges of the social graph", edge)
        return self._change(old, _deleted) if old else []

    def _change(self, edges: Sequence[Edge], how: _How) -> list[Id]:
        ends = np.array(sorted((self.users[u], self.places[p]) for u, p in edges), dtype=np.int64)
        users, places = ends[:, 0], ends[:, 1]
        self.user_indptr = _lengthened(self.user_indptr, len(self.users))
        self.place_indptr = _lengthened(self.place_indptr, len(self.places))
        touched = self._neighbours(users)
        self.user_indptr, self.user_places = how((self.user_indptr, self.user_places), users, places)
        order = np.lexsort((users, places))
        by_place = places[order], users[order]
        self.place_indptr, self.place_users = how((self.place_indptr, self.place_users), *by_place)
        touched = np.union1d(touched, self._neighbours(users))
        self._scores_of_place.clear()
        if self._arrays is not None:
            self._arrays = self._with_neighbours(self._arrays, touched)
        names = list(self.users)
        return [names[user] for user in touched.tolist()]

    def _neighbours(self, users: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return users and all users that share a place with one of them."""
        places = np.unique(np.concatenate([self._places_of(user) for user in users.tolist()]))
        shared = [self._users_of(place) for place in places.tolist()]
        return np.unique(np.concatenate([users, *shared])).astype(np.int64)

    # -- for kernels ----------------------------------------------------------------------------------------------

    @property
    def arrays(self) -> GraphArrays:
        """The graph as arrays; a change replaces them."""
        if self._arrays is None:
            self._arrays = self._with_neighbours(None, np.arange(len(self.users)))
        return self._arrays

    def number_places(self, places: Iterable[Id | None]) -> npt.NDArray[np.int32]:
        """Return the numbers of places, -1 for unknown ones."""
        get = self.places.get
        return np.array([-1 if place is None else get(place, -1) for place in places], np.int32)

    def _with_neighbours(self, old: GraphArrays | None, users: npt.NDArray[np.int64]) -> GraphArrays:
        """Return the current arrays, with the neighbours of some users computed again."""
        from nearcast.social._kernels import graph as kernels

        n_users, no_users, no_scores = len(self.users), np.zeros(0, np.int32), np.zeros(0)
        rows = self.user_indptr, self.user_places, self.place_indptr, self.place_users
        made = kernels.GraphArrays(*rows, np.zeros(n_users + 1, np.int64), no_users, no_scores)
        old = made._replace(neighbour_indptr=np.zeros(1, np.int64)) if old is None else old
        counts, met, ends = np.zeros(n_users, np.int32), np.zeros(n_users, np.int32), np.zeros(len(users), np.int64)
        found, scores, done = np.zeros(n_users, np.int32), np.zeros(n_users), 0
        while True:
            done = kernels.find_neighbours(made, users, done, counts, met, ends, found, scores)
            if done == len(users):
                break
            found, scores = (np.concatenate([array, np.zeros(array.size, array.dtype)]) for array in (found, scores))
        redone = np.full(n_users, -1, np.int64)
        redone[users] = np.arange(len(users))
        n_found = int(ends[-1]) if len(ends) else 0
        room = len(old.neighbour_users) + n_found  # an upper bound
        made = made._replace(neighbour_users=np.zeros(room, np.int32), neighbour_scores=np.zeros(room))
        kernels.splice_neighbours(old, redone, ends, found, scores, made)
        n = int(made.neighbour_indptr[-1])
        return made._replace(
            neighbour_users=made.neighbour_users[:n].copy(), neighbour_scores=made.neighbour_scores[:n].copy()
        )

    # -- the reference ------------------------------------------------------------------------------------------

    def _scores(self, place: int) -> Mapping[int, float]:
        """Return the non-zero scores of a place, by user."""
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


class _How(Protocol):
    def __call__(self, rows: Rows, owners: npt.NDArray[np.int64], items: npt.NDArray[np.int64]) -> Rows: ...


def checked(edges: Iterable[Edge]) -> list[Edge]:
    """Return edges as pairs; raise `InvalidInput` for the first that is not a pair of ids."""
    listed = []
    for edge in edges:
        ok = isinstance(edge, (tuple, list)) and len(edge) == 2 and all(_is_id(end) for end in edge)
        require(ok, "edges", "must be pairs of a user and a place, each a string or an integer", edge)
        listed.append((edge[0], edge[1]))
    return listed


def _numbered(known: Iterable[Id], more: Iterable[Id]) -> dict[Id, int]:
    """Number ids: known ones keep their numbers, new ones follow in a fixed order."""
    numbers = {id_: number for number, id_ in enumerate(known)}
    for id_ in sorted(set(more) - numbers.keys(), key=lambda id_: (isinstance(id_, str), id_)):
        numbers[id_] = len(numbers)
    return numbers


def _compress(owners: npt.NDArray[np.int64], items: npt.NDArray[np.int64], n_owners: int) -> Rows:
    order = np.lexsort((items, owners))
    indptr = np.zeros(n_owners + 1, dtype=np.int64)
    np.cumsum(np.bincount(owners, minlength=n_owners), out=indptr[1:])
    return indptr, items[order].astype(np.int32)


def _lengthened(indptr: npt.NDArray[np.int64], n_owners: int) -> npt.NDArray[np.int64]:
    """Add empty rows."""
    return np.concatenate([indptr, np.full(n_owners + 1 - len(indptr), indptr[-1])])


def _inserted(rows: Rows, owners: npt.NDArray[np.int64], items: npt.NDArray[np.int64]) -> Rows:
    """Insert new items, given in order, into the rows of their owners."""
    return _moved(rows, owners, 1), np.insert(rows[1], _find(rows, owners, items), items.astype(np.int32))


def _deleted(rows: Rows, owners: npt.NDArray[np.int64], items: npt.NDArray[np.int64]) -> Rows:
    """Remove existing items from the rows of their owners."""
    return _moved(rows, owners, -1), np.delete(rows[1], _find(rows, owners, items))


def _find(rows: Rows, owners: npt.NDArray[np.int64], items: npt.NDArray[np.int64]) -> list[int]:
    """Return the positions of items, or where they belong."""
    indptr, held = rows
    starts, stops = indptr[owners].tolist(), indptr[owners + 1].tolist()
    return [
        start + int(np.searchsorted(held[start:stop], item))
        for start, stop, item in zip(starts, stops, items.tolist(), strict=True)
    ]


def _moved(rows: Rows, owners: npt.NDArray[np.int64], by: int) -> npt.NDArray[np.int64]:
    """Return where rows begin after some of them changed in length."""
    indptr = rows[0].copy()
    indptr[1:] += by * np.cumsum(np.bincount(owners, minlength=len(indptr) - 1))
    return indptr


def _is_id(value: object) -> bool:
    if isinstance(value, str):
        return is_whole(value)
    return isinstance(value, int) and not isinstance(value, bool)
