"""The base class of all sources of candidates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from nearcast._jit import Arena
from nearcast.model import ScoringContext, SubscriptionBatch
from nearcast.model._kernels.profiles import ProfileArrays
from nearcast.model.filters import Filters
from nearcast.model.slot_words import SlotWords
from nearcast.model.subscription_columns import KeywordColumns
from nearcast.window._kernels.candidates.source import SourceArrays
from nearcast.window._kernels.keys import KeyArrays
from nearcast.window._kernels.params import BufferParams
from nearcast.window._kernels.search import SearchScratch
from nearcast.window.key_lists import KeyLists
from nearcast.window.lists import TermLists
from nearcast.window.sliding import SlidingWindow


class CandidateSource(ABC):
    """The lists of a window, which several sources may share, and what the searches of one result store need."""

    begin: ClassVar[Callable[..., tuple[int, int]]]
    """The kernel that starts buffers; see `_kernels.buffers.begin`."""
    publish: ClassVar[Callable[..., int]]
    """The kernel that publishes a batch; see `_kernels.buffers.publish`."""

    def __init__(
        self, arena: Arena, window: SlidingWindow, params: BufferParams, scoring: ScoringContext, *, max_number: int
    ) -> None:
        """Continue with the lists of the window, or create them; numbers above `max_number` move their base."""
        self._arena, self._window, self._params = arena, window, params
        self._filters = Filters(arena, scoring.space)
        self._options = SlotWords(arena, "filter_keys")

        def make(lists_arena: Arena) -> KeyLists:
            return KeyLists(lists_arena, window, params, "keys", scoring=scoring, max_number=max_number)

        self._key_lists = window.follower("keys", make)

    @property
    @abstractmethod
    def lists(self) -> TermLists:
        """The messages of the window by term."""

    @property
    def base(self) -> int:
        """The number that stored numbers are relative to."""
        return self.lists.base

    @abstractmethod
    def arrays(self, profiles: ProfileArrays, scratch: SearchScratch) -> SourceArrays:
        """Return the arrays of the source as kernels take them; they change with messages and edges."""

    @property
    def keys(self) -> KeyArrays:
        """The lists by filter key as kernels take them."""
        lists = self._key_lists
        return KeyArrays(self._options.arrays, lists.used, lists.known, lists.arrays, self.lists.arrays)

    def prepare(self, subscriptions: SubscriptionBatch) -> None:
        """List messages by the filter keys that subscriptions need; one thread at a time may call this."""
        self._key_lists.use(subscriptions.filter_keys.families)

    def insert_keys(self, slots: npt.NDArray[np.int32], subscriptions: SubscriptionBatch) -> None:
        """Insert the filter keys of subscriptions."""
        keys = subscriptions.filter_keys
        self._options.insert(slots[keys.rows], keys.indptr, keys.words)

    def delete_keys(self, slots: npt.NDArray[np.int32]) -> None:
        """Delete the filter keys of subscriptions."""
        self._options.delete(slots)

    @abstractmethod
    def insert(self, slots: npt.NDArray[np.int32], columns: KeywordColumns) -> None:
        """Insert the fields of subscriptions that the search reads and that are not in their profiles."""
