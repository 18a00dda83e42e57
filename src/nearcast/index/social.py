"""Which subscriptions of kind `social` does a message concern? Those whose bar it may reach (geo-social, section 3).

No term has to be shared, so a message may concern anyone; but it has to be near, alike or among friends, and each of
these brings 1 at most. So there are three ways to meet a subscription, and whoever is met on none is out of reach:

    friends   place -> users whom the graph brings more than SLACK -> their slots
    words     term  -> [ slot | terms from this one on ] ...          near, and what can be shared from here on
    nearby    slots whose bar is 1 + SLACK at most                    near alone

    sites     slot -> point, bar, number of terms, user               64 bytes: one line of memory a bound

Terms have a common order, rising frequency: who is met by a term shares none before it, so an entry of a list decides
alone. What survives is met once, by a mark, and scored as the reference scores it; below SLACK the graph is asked for
the pair, and only where that can matter.

Departures from the paper: its quadtree bounds nodes of subscriptions by their keywords, their j-th scores and a list
of social scores a node, and nearly every message gets past those near the root. Here a message reads the lists of its
own terms and friends, whatever the number of subscriptions that have neither.

Cost: a message reads the lists of its terms, some hundred friends of its place, and the open subscriptions: one in
fifteen or so. Deleting reads the lists of the subscription's terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nearcast._jit import Arena, Postings, Table, column
from nearcast.index import scratch_pool
from nearcast.index._kernels import social as kernels
from nearcast.index._kernels.social.layout import REST_BITS
from nearcast.index.base import Matches, Work
from nearcast.model import Id, MessageBatch, ScoringContext, SubscriptionBatch
from nearcast.model._kernels.profiles import LENGTH, RUN
from nearcast.model.profiles import Profiles
from nearcast.model.subscription_columns import KeywordColumns
from nearcast.space.metric import EARTH_RADIUS_M

_PREFIX = "social"
_ROOM = 1 << 12  # matches
_MOST_UNIT = 1e300  # so that bounds are finite
_ROUNDING = 2.0**-46  # of a coordinate of the frame
_TERMS_A_CHUNK, _SLOTS_A_CHUNK = 16, 2


class SocialWorkspace(scratch_pool.OutputWorkspace):
    """Room to match."""

    def __init__(self, room: int) -> None:
        scratch = kernels.SocialScratch(
            order=np.zeros(64, np.int64),
            socials=np.zeros(64),
            met=np.zeros(64, np.int32),
            marks=np.zeros(64, np.int64),
            found=np.zeros(64, np.int32),
            query=np.zeros(5),
            counts=np.zeros(64, np.int32),
            others=np.zeros(64, np.int32),
            stamps=np.zeros(64, np.int64),
            stamp=np.zeros(1, np.int64),
        )
        super().__init__(scratch, kernels.SocialOutput, room)


class SocialIndex:
    """Finds the subscriptions whose bar a message reaches.

    >>> from nearcast.model import Message, SocialSubscription
    >>> from nearcast.testing.strategies import scoring
    >>> scoring = scoring()
    >>> index = SocialIndex(scoring)
    >>> wanted = SocialSubscription("g", location=(2, 4), keywords="a b", k=1, user="u0")
    >>> index.insert(np.array([7], np.int32), SubscriptionBatch.of([wanted], scoring))
    >>> batch = MessageBatch.from_messages([Message("m", (2, 4), "a b", place="p0")], vocabulary=scoring.vocabulary)
    >>> index.match(batch, 0, 1)
    Matches(rows=array([0]), slots=array([7], dtype=int32), scores=array([3.]))
    >>> index.set_thresholds(np.array([7], np.int32), np.array([3.1]))
    >>> len(index.match(batch, 0, 1).slots)
    0
    """

    def __init__(self, scoring: ScoringContext, *, arena: Arena | None = None, room: int = _ROOM) -> None:
        self._scoring, self._projection = scoring, _projection(scoring)
        self._scratch_pool = scratch_pool.ScratchPool(lambda: SocialWorkspace(room))
        self._arena = Arena() if arena is None else arena
        self._profiles = Profiles(self._arena)
        if f"{_PREFIX}.counts" not in self._arena:
            with self._arena.together():
                self._arena.new(f"{_PREFIX}.sites", np.float64, 0, np.nan, columns=kernels.SITE)
                self._arena.new(f"{_PREFIX}.opens", np.int32, 0)
                self._arena.new(f"{_PREFIX}.fronts", np.float32, 0, columns=4 * kernels.LANES)
                self._arena.new(f"{_PREFIX}.counts", np.int64, 1)
        self._table = Table(self._arena, f"{_PREFIX}.table")
        self._terms = Postings(self._arena, f"{_PREFIX}.terms", chunk_size=_TERMS_A_CHUNK)
        self._users = Postings(self._arena, f"{_PREFIX}.users", chunk_size=_SLOTS_A_CHUNK)

    @property
    def work(self) -> Work:
        """How much was done so far."""
        return self._scratch_pool.work

    @property
    def nbytes(self) -> int:
        """Bytes of everything, profiles and room to work included."""
        names = (name for name in self._arena.names if name.startswith(f"{_PREFIX}."))
        return sum(self._arena[name].nbytes for name in names) + self._profiles.nbytes + self._scratch_pool.nbytes

    def insert(self, slots: NDArray[np.int32], subscription_batch: SubscriptionBatch) -> None:
        """Take in subscriptions under slots that are free, their bars open."""
        subscription_columns, slots = subscription_batch.subscription_columns, column(slots, np.int32)
        assert isinstance(subscription_columns, KeywordColumns)
        if slots.size == 0:
            return
        known = self._scoring.social.users
        users = np.array([known[user] for user in subscription_columns.users if user is not None], np.int64)
        self._profiles.insert(slots, subscription_columns)
        self._arena.grow_all([f"{_PREFIX}.{name}" for name in ("sites", "opens")], int(slots.max()) + 1)
        self._arena.grow(f"{_PREFIX}.fronts", (int(slots.max()) >> kernels.LANE_BITS) + 1)
        kernels.place_sites(self._state(), slots, users)
        self._number(subscription_columns.term_ids)
        self._terms.append_many(*self._postings(slots))
        self._users.append_many(users, slots.astype(np.int64))

    def delete(self, slots: NDArray[np.int32]) -> None:
        """Forget the subscriptions of some slots; their profiles must still be there."""
        slots = column(slots, np.int32)
        if slots.size == 0:
            return
        kernels.remove_items(self._terms.arrays, *self._postings(slots))
        users = self._array("sites")[slots, kernels.USER].astype(np.int64)
        kernels.remove_items(self._users.arrays, users, slots.astype(np.int64))
        kernels.set_thresholds(self._state(), slots, np.full(slots.size, np.nan))
        self._profiles.delete(slots)

    def set_thresholds(self, slots: NDArray[np.int32], thresholds: NDArray[np.float64]) -> None:
        """Say which score messages have to reach from now on."""
        if len(slots):
            kernels.set_thresholds(self._state(), column(slots, np.int32), column(thresholds, np.float64))

    def match(self, batch: MessageBatch, start: int, stop: int) -> Matches:
        """Return the pairs that reach the bar that was set."""
        places = np.full(len(batch), -1, np.int32)
        places[start:stop] = self._scoring.social.number_places(_listed(batch.places[start:stop]))
        columns = kernels.SocialColumns(batch.xs, batch.ys, batch.term_indptr, batch.term_ids, batch.idfs, places)
        state = self._state()
        with self._scratch_pool.take() as workspace:
            if start < stop:
                workspace.need(int(np.diff(batch.term_indptr[start : stop + 1]).max()), "order")
                workspace.need(len(self._scoring.social.users), "socials", "met", "counts", "others")
                workspace.need(len(self._scoring.social.places), "stamps")
                workspace.need(len(state.sites), "marks", "found")
            out, row = workspace.output(max(stop - start, 0)), start
            while row < stop:
                row = int(kernels.match_rows(state, columns, row, stop, start, workspace.scratch, out))
                if row < stop:
                    out = scratch_pool.doubled(out, int(out.ends[row - start - 1]) if row > start else 0)
            return workspace.finish(out, start)

    def _number(self, ids: NDArray[np.int64]) -> None:
        """Give terms that are new the next dense numbers."""
        ids = np.unique(ids)
        new = ids[self._table.get_many(ids) < 0]
        first = len(self._table)
        self._table.put_many(new, np.arange(first, first + new.size))
        self._terms.reserve_rows(len(self._table))

    def _postings(self, slots: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return on which lists subscriptions stand, and as what."""
        profiles = self._profiles.arrays
        lengths = profiles.heads[slots, LENGTH].astype(np.int64)
        ends = np.cumsum(lengths)
        at = np.repeat(profiles.heads[slots, RUN] - (ends - lengths), lengths) + np.arange(ends[-1])
        ids = profiles.run_terms[at]
        rows = np.repeat(np.arange(slots.size), lengths)
        order = np.lexsort((ids, -self._scoring.vocabulary.idfs_of(ids), rows))
        rests = np.repeat(ends, lengths) - np.arange(ends[-1])
        items = (slots[rows].astype(np.int64) << REST_BITS) | rests
        return self._table.get_many(ids[order]), items

    def _array(self, name: str) -> NDArray[Any]:
        return self._arena[f"{_PREFIX}.{name}"]

    def _state(self) -> kernels.SocialState:
        """Return all arrays as kernels take them."""
        return kernels.SocialState(
            self._projection,
            self._profiles.arrays,
            self._scoring.social.arrays,
            self._array("sites"),
            self._array("opens"),
            self._array("fronts"),
            self._table.arrays,
            self._terms.arrays,
            self._users.arrays,
            self._array("counts"),
        )


def _projection(scoring: ScoringContext) -> kernels.SocialProjection:
    space, bounds = scoring.space, scoring.space.bounds
    on_sphere = space.metric == "haversine"
    half = max(bounds.xmax * 0.5 - bounds.xmin * 0.5, bounds.ymax * 0.5 - bounds.ymin * 0.5)
    unit = min(EARTH_RADIUS_M / space.max_distance if on_sphere else half / space.max_distance, _MOST_UNIT)
    return kernels.SocialProjection(
        on_sphere=on_sphere,
        max_distance=space.max_distance,
        x0=bounds.xmin * 0.5 + bounds.xmax * 0.5,
        y0=bounds.ymin * 0.5 + bounds.ymax * 0.5,
        scale=1.0 if on_sphere or half <= 0.0 else 1.0 / half,
        unit=unit,
        margin=1e-12 + unit * _ROUNDING,
    )


def _listed(places: Sequence[Id | None] | pa.Array) -> Sequence[Id | None]:
    return places.to_pylist() if isinstance(places, pa.Array) else places
