"""Index of kind `social`: subscriptions whose threshold a message may reach (geo-social, section 3).

No term has to be shared, so every message may match every subscription. But it must be near, similar in text or close
in the graph, and each of these contributes 1 at most. So there are three ways to find a subscription, and one that
none of them finds is out of reach:

    by graph       place -> users with a social score above SLACK -> their slots
    by terms       term  -> [ slot | terms from this one on ] ...       nearness, and what can be shared from here on
    by nearness    slots whose threshold is 1 + SLACK at most           nearness alone

    sites          slot -> point, threshold, number of terms, user      64 bytes: one cache line per bound

A subscription with a facet stands on lists of the facet: of the user and the value, of its terms combined with the
value, and among the open ones with the value. Only messages with the value read these.

Terms have a common order, rising frequency: a subscription found by a term shares none before it, so an entry of a
list decides alone. A mark ensures that each candidate is found once; it is scored as the reference scores it. Below
SLACK the graph is searched for the pair, and only where that can decide.

Departures from the paper: its quadtree bounds nodes of subscriptions by their keywords, their j-th scores and a list
of social scores per node, and nearly every message passes the bounds near the root. Here a message reads the lists of
its own terms and of the users near its place, whatever the number of subscriptions with neither.

Cost: a message reads the lists of its terms, a few hundred users near its place, and the open subscriptions, about
one in fifteen. Deleting reads the lists of the subscription's terms.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast._jit import Arena, Postings, Table, column
from nearcast.index._kernels import social as kernels
from nearcast.index._kernels.shared.projection import project
from nearcast.index.arena_index import ArenaIndex, ArrayLayout
from nearcast.index.base import Matches
from nearcast.index.facet_numbers import FacetNumbers
from nearcast.index.scratch_pool import OutputWorkspace
from nearcast.model import Id, MessageBatch, ScoringContext, SubscriptionBatch
from nearcast.model._kernels.profiles import LENGTH, RUN
from nearcast.model.profiles import Profiles
from nearcast.model.subscription_columns import KeywordColumns

_ROOM = 1 << 12  # matches
_TERMS_PER_CHUNK, _SLOTS_PER_CHUNK = 16, 2

_ARRAYS = {
    "sites": ArrayLayout(np.float64, kernels.SITE, np.nan),
    "open_lanes": ArrayLayout(np.float32, 4 * kernels.LANES),
}


class SocialWorkspace(OutputWorkspace):
    """Scratch arrays of one match."""

    def __init__(self, room: int) -> None:
        scratch = kernels.SocialScratch(
            order=np.zeros(64, np.int64),
            socials=np.zeros(64),
            near_users=np.zeros(64, np.int32),
            marks=np.zeros(64, np.int64),
            found=np.zeros(64, np.int32),
            query=np.zeros(5),
            counts=np.zeros(64, np.int32),
            others=np.zeros(64, np.int32),
            stamps=np.zeros(64, np.int64),
            stamp=np.zeros(1, np.int64),
        )
        super().__init__(scratch, room)

    def prepare(self, most_terms: int, *, n_users: int, n_places: int, n_slots: int) -> None:
        """Lengthen the arrays for messages of so many terms, for the graph and for the subscriptions."""
        self.need(most_terms, "order")
        self.need(n_users, "socials", "near_users", "counts", "others")
        self.need(n_places, "stamps")
        self.need(n_slots, "marks", "found")


class SocialIndex(ArenaIndex[SocialWorkspace]):
    """Finds the subscriptions whose threshold a message reaches.

    >>> from nearcast.model import Message, SocialSubscription
    >>> from nearcast.testing.strategies import scoring
    >>> scoring = scoring()
    >>> index = SocialIndex(scoring)
    >>> subscription = SocialSubscription("g", location=(2, 4), keywords="a b", k=1, user="u0")
    >>> index.insert(np.array([7], np.int32), SubscriptionBatch.of([subscription], scoring))
    >>> batch = MessageBatch.from_messages([Message("m", (2, 4), "a b", place="p0")], vocabulary=scoring.vocabulary)
    >>> index.match(batch, 0, 1)
    Matches(rows=array([0]), slots=array([7], dtype=int32), scores=array([3.]))
    >>> index.set_thresholds(np.array([7], np.int32), np.array([3.1]))
    >>> len(index.match(batch, 0, 1).slots)
    0
    """

    prefix = "social"

    def __init__(self, scoring: ScoringContext, *, arena: Arena | None = None, room: int = _ROOM) -> None:
        super().__init__(arena, lambda: SocialWorkspace(room))
        self._scoring, self._projection = scoring, project(scoring.space)
        self._profiles = Profiles(self._arena)
        if self._is_new("sites"):
            with self._arena.together():
                self._new_arrays(_ARRAYS)
        self._facets = FacetNumbers(self._arena, f"{self.prefix}.facets")
        self._open = Postings(self._arena, f"{self.prefix}.open", chunk_size=kernels.LANES, dtype=np.int32, rows=1)
        self._table = Table(self._arena, f"{self.prefix}.table")
        self._facet_table = Table(self._arena, f"{self.prefix}.facet_table")
        self._terms = Postings(self._arena, f"{self.prefix}.terms", chunk_size=_TERMS_PER_CHUNK)
        self._users = Postings(self._arena, f"{self.prefix}.users", chunk_size=_SLOTS_PER_CHUNK)
        self._facet_users = Postings(self._arena, f"{self.prefix}.facet_users", chunk_size=_SLOTS_PER_CHUNK)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays of the index, of the profiles and of the workspaces."""
        return super().nbytes + self._profiles.nbytes

    def insert(self, slots: NDArray[np.int32], subscriptions: SubscriptionBatch) -> None:
        """Insert subscriptions under free slots, with open thresholds."""
        columns, slots = subscriptions.columns, column(slots, np.int32)
        assert isinstance(columns, KeywordColumns)
        if slots.size == 0:
            return
        known = self._scoring.social.users
        users = np.array([known[user] for user in columns.users if user is not None], np.int64)
        facets = self._facets.add(subscriptions.facets, len(slots))
        self._profiles.insert(slots, columns)
        self._grow(int(slots.max()) + 1, "sites")
        self._make_room_to_open()
        kernels.write_sites(self._state(), slots, users, facets)
        _number(self._table, columns.terms_under(subscriptions.facets))
        self._terms.reserve_rows(len(self._table))
        self._terms.append_many(*self._postings(slots))
        has_facet = facets > 0
        _number(self._facet_table, _user_keys(facets[has_facet], users[has_facet]))
        for lists, which in ((self._users, ~has_facet), (self._facet_users, has_facet)):
            lists.append_many(self._user_rows(facets[which], users[which]), slots[which].astype(np.int64))

    def delete(self, slots: NDArray[np.int32]) -> None:
        """Delete the subscriptions of some slots; their profiles must still exist."""
        slots = column(slots, np.int32)
        if slots.size == 0:
            return
        kernels.remove_items(self._terms.arrays, *self._postings(slots))
        sites = self._array("sites")[slots]
        users, facets = sites[:, kernels.USER].astype(np.int64), sites[:, kernels.FACET].astype(np.int64)
        for lists, which in ((self._users, facets == 0), (self._facet_users, facets > 0)):
            rows = self._user_rows(facets[which], users[which])
            kernels.remove_items(lists.arrays, rows, slots[which].astype(np.int64))
        kernels.set_thresholds(self._state(), slots, np.full(slots.size, np.nan))
        self._profiles.delete(slots)

    def set_thresholds(self, slots: NDArray[np.int32], thresholds: NDArray[np.float64]) -> None:
        """Set the scores that messages must reach."""
        if len(slots):
            kernels.set_thresholds(self._state(), column(slots, np.int32), column(thresholds, np.float64))

    def match(self, batch: MessageBatch, start: int, stop: int) -> Matches:
        """Return the pairs that reach the threshold."""
        graph, places = self._scoring.social, np.full(len(batch), -1, np.int32)
        places[start:stop] = graph.number_places(_listed(batch.places[start:stop]))
        facets = self._facets.of_rows(batch, start, stop)
        rows = kernels.SocialColumns(
            batch.xs, batch.ys, batch.term_indptr, batch.term_ids, batch.idfs, places, facets
        )
        state = self._state()
        with self._scratch_pool.take() as workspace:
            if start < stop:
                workspace.prepare(
                    int(np.diff(batch.term_indptr[start : stop + 1]).max()),
                    n_users=len(graph.users),
                    n_places=len(graph.places),
                    n_slots=len(state.sites),
                )
            return workspace.collect(
                lambda row, out: int(kernels.match_rows(state, rows, row, stop, start, workspace.scratch, out)),
                start,
                stop,
            )

    def _make_room_to_open(self) -> None:
        """Make room for all subscriptions among the open ones, whose lists have one unfilled chunk each."""
        self._open.reserve_rows(len(self._facets))
        n_chunks = self._array("sites").shape[0] // kernels.LANES + len(self._facets) + 1
        self._open.reserve_chunks(max(0, n_chunks - self._open.n_chunks))
        self._grow(len(self._open.arrays.nexts), "open_lanes")

    def _user_rows(self, facets: NDArray[np.int64], users: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the lists of users, which either all have a facet or none."""
        return self._facet_table.get_many(_user_keys(facets, users)) if facets.any() else users

    def _postings(self, slots: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the lists of the terms of subscriptions, and their items there."""
        profiles = self._profiles.arrays
        lengths = profiles.heads[slots, LENGTH].astype(np.int64)
        ends = np.cumsum(lengths)
        at = np.repeat(profiles.heads[slots, RUN] - (ends - lengths), lengths) + np.arange(ends[-1])
        ids = profiles.run_terms[at]
        facets = self._array("sites")[slots, kernels.FACET].astype(np.int64)
        combined = ids ^ np.repeat(self._facets.values[facets], lengths)
        rows = np.repeat(np.arange(slots.size), lengths)
        order = np.lexsort((ids, -self._scoring.vocabulary.idfs_of(ids), rows))
        rests = np.repeat(ends, lengths) - np.arange(ends[-1])
        items = (slots[rows].astype(np.int64) << kernels.REST_BITS) | rests
        return self._table.get_many(combined[order]), items

    def _state(self) -> kernels.SocialState:
        return kernels.SocialState(
            self._projection,
            self._profiles.arrays,
            self._scoring.social.arrays,
            self._array("sites"),
            self._open.arrays,
            self._array("open_lanes"),
            self._table.arrays,
            self._terms.arrays,
            self._users.arrays,
            self._facet_table.arrays,
            self._facet_users.arrays,
            self._facets.values,
        )


def _number(table: Table, keys: NDArray[np.int64]) -> None:
    """Give new keys the next dense numbers."""
    distinct = np.unique(keys)
    new = distinct[table.get_many(distinct) < 0]
    first = len(table)
    table.put_many(new, np.arange(first, first + new.size))


def _user_keys(facets: NDArray[np.int64], users: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the keys of the lists of users and facets."""
    keys = np.empty(users.size, np.int64)
    kernels.facet_user_keys(facets, users, keys)
    return keys


def _listed(places: Sequence[Id | None] | pa.Array) -> Sequence[Id | None]:
    return places.to_pylist() if isinstance(places, pa.Array) else places
