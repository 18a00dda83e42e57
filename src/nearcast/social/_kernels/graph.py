"""Social scores in kernels, by the neighbours of users.

    neighbours of u   [ u 1.0 | v 0.8 | w 0.4 ... ]     users whose places are similar to those of u, above SLACK
    social(u, p)      the greatest similarity of a neighbour with an edge to p; at most SLACK if there is none

The users with a high score for a place are the neighbours of its users: a few hundred, where the score is above 0 for
ten thousand. Lower scores are computed for one pair at a time, where a caller needs them. The places of one user are
fewer and are found all at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearcast._jit import kernel

SLACK = 0.2
"""Neighbours give all scores above this. With 100,000 users a place has 290 scores above it, and 755 above 0.1."""


class GraphArrays(NamedTuple):
    """The graph and the neighbours of its users, as compressed rows in ascending order."""

    user_indptr: NDArray[np.int64]
    user_places: NDArray[np.int32]
    place_indptr: NDArray[np.int64]
    place_users: NDArray[np.int32]
    neighbour_indptr: NDArray[np.int64]
    """int64 (n_users + 1,): the neighbours of each user."""
    neighbour_users: NDArray[np.int32]
    neighbour_scores: NDArray[np.float64]
    """float64 (n,): the similarity of each neighbour."""


@kernel
def find_neighbours(
    graph: GraphArrays,
    users: NDArray[np.int64],
    start: int,
    counts: NDArray[np.int32],
    met: NDArray[np.int32],
    ends: NDArray[np.int64],
    out_users: NDArray[np.int32],
    out_scores: NDArray[np.float64],
) -> int:
    """Write the neighbours of users from `start` on; return the user at which the output was full.

    `counts`, one per user of the graph, are 0 before and after.
    """
    user_indptr, user_places = graph.user_indptr, graph.user_places
    place_indptr, place_users = graph.place_indptr, graph.place_users
    filled = ends[start - 1] if start > 0 else 0
    for i in range(start, users.size):
        first, last, n_met = user_indptr[users[i]], user_indptr[users[i] + 1], 0
        for at in range(first, last):
            place = user_places[at]
            for j in range(place_indptr[place], place_indptr[place + 1]):
                other = place_users[j]
                if counts[other] == 0:
                    met[n_met] = other
                    n_met += 1
                counts[other] += 1
        fits = filled + n_met <= out_users.size
        for j in range(n_met):
            other = met[j]
            score = 2.0 * counts[other] / (last - first + user_indptr[other + 1] - user_indptr[other])
            counts[other] = 0
            if fits and score > SLACK:
                out_users[filled], out_scores[filled] = other, score
                filled += 1
        if not fits:
            return i
        ends[i] = filled
    return users.size


@kernel
def splice_neighbours(
    old: GraphArrays,
    redone: NDArray[np.int64],
    ends: NDArray[np.int64],
    users: NDArray[np.int32],
    scores: NDArray[np.float64],
    new: GraphArrays,
) -> None:
    """Write the neighbours of all users, some of them recomputed; the output is large enough."""
    n_known, filled = old.neighbour_indptr.size - 1, 0
    new.neighbour_indptr[0] = 0
    for user in range(new.neighbour_indptr.size - 1):
        if redone[user] >= 0:
            start, stop = ends[redone[user] - 1] if redone[user] > 0 else 0, ends[redone[user]]
            for i in range(start, stop):
                new.neighbour_users[filled], new.neighbour_scores[filled] = users[i], scores[i]
                filled += 1
        elif user < n_known:
            for i in range(old.neighbour_indptr[user], old.neighbour_indptr[user + 1]):
                new.neighbour_users[filled] = old.neighbour_users[i]
                new.neighbour_scores[filled] = old.neighbour_scores[i]
                filled += 1
        new.neighbour_indptr[user + 1] = filled


@kernel
def users_near(graph: GraphArrays, place: int, scores: NDArray[np.float64], met: NDArray[np.int32]) -> int:
    """Write the social scores of a place above SLACK, by user, and the users; return their number.

    The scores must be 0 before the call; the caller resets them afterwards.
    """
    indptr, users, alike, n = graph.neighbour_indptr, graph.neighbour_users, graph.neighbour_scores, 0
    if place < 0:
        return 0
    for i in range(graph.place_indptr[place], graph.place_indptr[place + 1]):
        fan = graph.place_users[i]
        for j in range(indptr[fan], indptr[fan + 1]):
            other = users[j]
            if scores[other] == 0.0:
                met[n] = other
                n += 1
            scores[other] = max(scores[other], alike[j])
    return n


@kernel
def reach(graph: GraphArrays, place: int, stamps: NDArray[np.int64], stamp: int) -> None:
    """Stamp every place of every user of a place: a user without a stamped place has score 0."""
    user_indptr, user_places = graph.user_indptr, graph.user_places
    for i in range(graph.place_indptr[place], graph.place_indptr[place + 1]):
        fan = graph.place_users[i]
        for at in range(user_indptr[fan], user_indptr[fan + 1]):
            stamps[user_places[at]] = stamp


@kernel
def upper_bound_social(graph: GraphArrays, user: int, stamps: NDArray[np.int64], stamp: int) -> float:
    """Return an upper bound of the social score of a user and the place whose reach is stamped."""
    user_indptr, user_places, n = graph.user_indptr, graph.user_places, 0
    first, last = user_indptr[user], user_indptr[user + 1]
    for at in range(first, last):
        n += stamps[user_places[at]] == stamp
    return 2.0 * n / (last - first + n) if n > 0 else 0.0  # reached by a user with exactly these places


@kernel
def social_score(
    graph: GraphArrays,
    user: int,
    scores: NDArray[np.float64],
    counts: NDArray[np.int32],
    met: NDArray[np.int32],
) -> float:
    """Return the social score of a user and the place whose scores above SLACK are given, see `users_near`.

    The result equals the reference bit for bit. Users with an edge to the place have score 1. `counts`, one per user,
    are 0 before and after. Cost: one step per user of each place of the user.
    """
    user_indptr, user_places = graph.user_indptr, graph.user_places
    place_indptr, place_users = graph.place_indptr, graph.place_users
    first, last, n, best = user_indptr[user], user_indptr[user + 1], 0, 0.0
    for at in range(first, last):
        place = user_places[at]
        for i in range(place_indptr[place], place_indptr[place + 1]):
            other = place_users[i]
            if scores[other] == 1.0:
                if counts[other] == 0:
                    met[n] = other
                    n += 1
                counts[other] += 1
    for i in range(n):
        other = met[i]
        best = max(best, 2.0 * counts[other] / (last - first + user_indptr[other + 1] - user_indptr[other]))
        counts[other] = 0
    return best


@kernel
def all_places_near(
    graph: GraphArrays,
    user: int,
    scores: NDArray[np.float64],
    met: NDArray[np.int32],
    counts: NDArray[np.int32],
    others: NDArray[np.int32],
) -> int:
    """Write all social scores of a user above 0, by place, and the places; see `users_near`."""
    user_indptr, user_places = graph.user_indptr, graph.user_places
    place_indptr, place_users = graph.place_indptr, graph.place_users
    first, last, n_others, n = user_indptr[user], user_indptr[user + 1], 0, 0
    for at in range(first, last):
        for i in range(place_indptr[user_places[at]], place_indptr[user_places[at] + 1]):
            other = place_users[i]
            if counts[other] == 0:
                others[n_others] = other
                n_others += 1
            counts[other] += 1
    for i in range(n_others):
        other = others[i]
        start, stop = user_indptr[other], user_indptr[other + 1]
        score = 2.0 * counts[other] / (last - first + stop - start)
        counts[other] = 0
        for at in range(start, stop):
            place = user_places[at]
            if scores[place] == 0.0:
                met[n] = place
                n += 1
            scores[place] = max(scores[place], score)
    return n
