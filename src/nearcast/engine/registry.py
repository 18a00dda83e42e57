"""The registry of subscriptions: slot to subscription and id to slot, as flat arrays.

    heads     slot -> | c o f f e e - 7 . . . | record | length |      16 bytes: the id if it has at most 11 bytes
    words     records: keywords, users, long ids; blocks of a few words that are reused
    entries   hash of an id -> slot, in segments that split one at a time
    floats, ints   slot -> the numeric fields of a subscription
    sinces    slot -> seq of the last message before the subscription; -1 if the slot is free
    ends      slot -> time at which the subscription expires; exists once a subscription has one, as does
    expiries  a heap of these times with their slots

Objects are made on demand. All arrays belong to an arena, so they lie in memory or in files. Cost: about 90 bytes and
one microsecond per subscription with three keywords, and one cache miss per id. No operation slows down as the
registry grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast._jit import Arena
from nearcast.engine._kernels import registry as kernels
from nearcast.engine.expiry_heap import ExpiryHeap
from nearcast.engine.id_strings import names_of
from nearcast.engine.packing import pack_ids, pack_texts, text_columns, text_fields, unpack_ids, unpack_texts
from nearcast.model import NEVER, IdColumn, Subscription, SubscriptionBatch
from nearcast.model.subscription_rows import restore, stored_schema
from nearcast.text import DEFAULT_HASH_KEY, HashKey

Slots = npt.NDArray[np.int32]

_PREFIX = "registry"
_ENDS, _EXPIRIES = f"{_PREFIX}.ends", f"{_PREFIX}.expiries"
_TIME = pa.timestamp("us", tz="UTC")
_BY_SLOT = ("heads", "sinces", "floats", "ints")


class SubscriptionRegistry:
    """The subscriptions of one kind in one shard, by slot and by id.

    >>> from nearcast.model import NearestSubscription
    >>> from nearcast.testing import strategies
    >>> registry = SubscriptionRegistry(NearestSubscription)
    >>> ramen = NearestSubscription("n1", location=(1, 2), keywords="ramen", k=3)
    >>> registry.allocate(SubscriptionBatch.of([ramen], strategies.scoring()), np.array([0]))
    array([0], dtype=int32)
    >>> registry.find(IdColumn.of(["n1", "n2"])).tolist(), registry.subscription(0) == ramen
    ([0, -1], True)
    """

    def __init__(
        self, kind: type[Subscription], arena: Arena | None = None, *, hash_key: HashKey = DEFAULT_HASH_KEY
    ) -> None:
        self._kind, self._hash_key = kind, hash_key
        self._arena = Arena() if arena is None else arena
        packed = text_columns(kind)
        numbers = [field for field in stored_schema(kind) if field.name not in packed]
        self._floats = [field.name for field in numbers if pa.types.is_floating(field.type)]
        self._ints = [field.name for field in numbers if pa.types.is_integer(field.type)]
        self._width = len(text_fields(kind))
        self._moved = np.empty(kernels.SEGMENT, np.int64)
        if f"{_PREFIX}.state" not in self._arena:
            with self._arena.together():
                self._make()

    def _make(self) -> None:
        arrays = {
            "heads": (np.uint64, 0, 0, 2),
            "words": (np.uint64, 0, 0, None),
            "free": (np.int64, kernels.CLASSES, 0, None),
            "entries": (np.int64, kernels.SEGMENT, kernels.FREE, None),
            "segments": (np.int32, 1, 0, None),
            "depths": (np.uint8, 1, 0, None),
            "counts": (np.int32, 1, 0, None),
            "links": (np.int32, 1, kernels.FREE, None),
            "state": (np.int64, kernels.STATE, 0, None),
            "sinces": (np.int64, 0, -1, None),
            "floats": (np.float64, 0, 0, len(self._floats)),
            "ints": (np.int32, 0, 0, len(self._ints)),
            "vacant": (np.int32, 0, 0, None),
        }
        for name, (dtype, length, fill, columns) in arrays.items():
            self._arena.new(f"{_PREFIX}.{name}", dtype, length, fill, columns=columns)
        self._array("state")[kernels.N_SEGMENTS] = 1

    def __len__(self) -> int:
        state = self._array("state")
        return int(state[kernels.N_SLOTS] - state[kernels.N_FREE])

    @property
    def n_slots(self) -> int:
        """The number of slots, free ones included."""
        return int(self._array("state")[kernels.N_SLOTS])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(self._arena[name].nbytes for name in self._arena.names if name.startswith(f"{_PREFIX}."))

    def allocate(self, subscriptions: SubscriptionBatch, sinces: npt.NDArray[np.int64]) -> Slots:
        """Store subscriptions whose ids are new, and return their slots."""
        ids, texts = pack_ids(subscriptions.ids), pack_texts(subscriptions.stored, self._kind)
        slots = self._take_slots(len(subscriptions))
        n_words = (len(texts.data) + len(ids.data)) // 4 + 3 * (self._width + 1) * len(slots)
        self._arena.grow(f"{_PREFIX}.words", int(self._array("state")[kernels.USED]) + n_words)
        kernels.write_rows(self._arrays(), ids, texts, slots)
        self._array("sinces")[slots] = sinces
        if subscriptions.expires_us is not None:
            self._set_ends(slots, subscriptions.expires_us)
        for name, columns in (("floats", self._floats), ("ints", self._ints)):
            numbers = self._array(name)
            for i, column in enumerate(columns):
                numbers[slots, i] = subscriptions.stored[column].to_numpy()
        self._insert_ids(subscriptions.ids.keys(self._hash_key), slots)
        return slots

    def _set_ends(self, slots: Slots, expires_us: npt.NDArray[np.int64]) -> None:
        if self._ends is None:
            self._arena.new(_ENDS, np.int64, 0, NEVER)
        self._arena.grow(_ENDS, self.n_slots)[slots] = expires_us
        heap = ExpiryHeap(self._arena, _EXPIRIES)
        if heap.may_be_dropped:
            times, known = heap.entries
            heap.keep(self._arena[_ENDS][known] == times)
        chosen = np.flatnonzero(expires_us != NEVER)
        heap.push(expires_us[chosen], slots[chosen].astype(np.int64))

    @property
    def _ends(self) -> npt.NDArray[np.int64] | None:
        if _ENDS not in self._arena:
            return None
        return self._arena[_ENDS]

    @property
    def next_end_us(self) -> int:
        """The next time at which a subscription may expire, NEVER if there is none."""
        return NEVER if self._ends is None else ExpiryHeap(self._arena, _EXPIRIES).first_us

    def take_expired(self, now_us: int) -> Slots:
        """Return the subscriptions that have expired by now, each once; they are not removed."""
        if self._ends is None or self.next_end_us > now_us:
            return np.zeros(0, np.int32)
        slots = np.unique(ExpiryHeap(self._arena, _EXPIRIES).pop(now_us).values)
        return slots[self._ends[slots] <= now_us].astype(np.int32)

    def _ends_of(self, slots: Slots) -> pa.Array:
        """Return when subscriptions expire, null where they do not."""
        if self._ends is None:
            return pa.nulls(len(slots), _TIME)
        ends = np.full(len(slots), NEVER)
        known = slots < len(self._ends)
        ends[known] = self._ends[slots[known]]
        return pa.array(ends, mask=ends == NEVER).cast(_TIME)

    def _take_slots(self, n: int) -> Slots:
        """Return free slots: reused ones first, then new ones."""
        state = self._array("state")
        n_slots, n_free = int(state[kernels.N_SLOTS]), int(state[kernels.N_FREE])
        reused = self._array("vacant")[max(n_free - n, 0) : n_free].copy()
        n_fresh = n - len(reused)
        with self._arena.together():
            self._arena.grow_all([f"{_PREFIX}.{name}" for name in _BY_SLOT], n_slots + n_fresh)
        state[kernels.N_SLOTS] += n_fresh
        state[kernels.N_FREE] -= len(reused)
        return np.concatenate([reused, np.arange(n_slots, n_slots + n_fresh, dtype=np.int32)])

    def _insert_ids(self, keys: npt.NDArray[np.uint64], slots: Slots) -> None:
        done = 0
        while True:
            done = kernels.insert_ids(self._arrays(), keys, slots, done, self._moved)
            if done == len(slots):
                return
            state, segments = self._array("state"), self._array("segments")
            n_segments = int(state[kernels.N_SEGMENTS])
            with self._arena.together():
                self._arena.grow_all([f"{_PREFIX}.{name}" for name in ("depths", "counts", "links")], n_segments + 1)
                self._arena.grow(f"{_PREFIX}.entries", (n_segments + 1) * kernels.SEGMENT)
                is_deepest = int(self._array("depths")[:n_segments].max()) == int(state[kernels.DEPTH])
                if is_deepest and len(segments) <= kernels.SPARSE * n_segments:
                    self._arena.renew(f"{_PREFIX}.segments", 2 * len(segments))[:] = np.repeat(segments, 2)
                    state[kernels.DEPTH] += 1

    def free(self, slots: Slots) -> None:
        """Remove subscriptions and free their slots."""
        if not len(slots):
            return
        kernels.remove_ids(self._arrays(), self.ids(slots).keys(self._hash_key), slots)
        kernels.free_rows(self._arrays(), slots, self._width)
        self._array("sinces")[slots] = -1
        if self._ends is not None:
            self._ends[slots[slots < len(self._ends)]] = NEVER
        state = self._array("state")
        n_free = int(state[kernels.N_FREE])
        self._arena.grow(f"{_PREFIX}.vacant", n_free + len(slots))[n_free : n_free + len(slots)] = slots
        state[kernels.N_FREE] += len(slots)

    def find(self, ids: IdColumn) -> Slots:
        """Return the slot of each id, or -1."""
        slots = np.full(len(ids), kernels.FREE, dtype=np.int32)
        if len(self) and len(ids):
            kernels.find_ids(self._arrays(), pack_ids(ids), ids.keys(self._hash_key), slots)
        return slots

    def taken(self) -> Slots:
        """Return the slots in use, in order."""
        return np.flatnonzero(self._array("sinces")[: self.n_slots] >= 0).astype(np.int32)

    def rows(self, slots: Slots) -> pa.Table:
        """Return the stored rows of slots."""
        ids, texts = self._read(slots, self._width)
        columns = unpack_texts(texts, self._kind)
        for name, fields in (("floats", self._floats), ("ints", self._ints)):
            columns |= {field: pa.array(self._array(name)[slots, i]) for i, field in enumerate(fields)}
        columns |= unpack_ids(ids).columns | {"expires_at": self._ends_of(slots)}
        schema = stored_schema(self._kind)
        return pa.Table.from_arrays([columns[field.name] for field in schema], schema=schema)

    def numbers(self, slots: Slots, fields: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return some fields of floating-point numbers of slots, a column for each; NaN where there is none."""
        return np.column_stack([self._array("floats")[slots, self._floats.index(field)] for field in fields])

    def ids(self, slots: Slots) -> IdColumn:
        """Return the ids of slots; records are read only for long ones."""
        return unpack_ids(self._read(slots, 0)[0])

    def _read(self, slots: Slots, width: int) -> tuple[kernels.TextColumn, kernels.TextColumn]:
        """Return the packed ids and the first texts of slots."""
        sizes, n = np.zeros(2, np.int64), len(slots)
        kernels.size_rows(self._arrays(), slots, width, sizes)
        ids, texts = (
            kernels.TextColumn(np.empty(size, np.uint8), np.zeros(rows + 1, np.int64), np.zeros(rows, np.uint8))
            for size, rows in zip(sizes.tolist(), (n, n * width), strict=True)
        )
        if n:
            kernels.read_rows(self._arrays(), slots, ids, texts)
        return ids, texts

    def names(self, slots: Slots) -> pa.ChunkedArray:
        """Return the ids of slots as strings."""
        return names_of(self._arrays(), slots)

    def subscription(self, slot: int) -> Subscription:
        """Return the subscription of a slot."""
        return restore(self.rows(np.array([slot], dtype=np.int32)), self._kind)[0]

    def since(self, slot: int) -> int:
        """Return the seq of the last message before the subscription of a slot."""
        return int(self._array("sinces")[slot])

    def sinces(self, slots: Slots) -> npt.NDArray[np.int64]:
        """Return `since` for many slots."""
        chosen: npt.NDArray[np.int64] = self._array("sinces")[slots]
        return chosen

    def _arrays(self) -> kernels.RegistryArrays:
        words = self._array("words")
        named = {field: self._array(field) for field in kernels.RegistryArrays._fields if field != "data"}
        return kernels.RegistryArrays(**named, data=words.view(np.uint8))

    def _array(self, name: str) -> npt.NDArray[Any]:
        return self._arena[f"{_PREFIX}.{name}"]
