"""The base class of all sources of candidates; each of them has term lists."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from nearcast._jit import Arena
from nearcast.model import ScoringContext
from nearcast.model._kernels.profiles import ProfileArrays
from nearcast.model.subscription_columns import KeywordColumns
from nearcast.window._kernels.candidates.source import SourceArrays
from nearcast.window._kernels.horizon import Horizon
from nearcast.window._kernels.params import BufferParams
from nearcast.window._kernels.search import SearchScratch
from nearcast.window.lists import TermLists
from nearcast.window.sliding import SlidingWindow


class CandidateSource(ABC):
    """The lists of one window, in an arena; an arena that holds them already is continued."""

    append_messages: ClassVar[Callable[..., int]]
    """The kernel that appends messages to term lists; see `_kernels.lists.append_messages`."""
    begin: ClassVar[Callable[..., tuple[int, int]]]
    """The kernel that starts buffers; see `_kernels.buffers.begin`."""
    publish: ClassVar[Callable[..., int]]
    """The kernel that publishes a batch; see `_kernels.buffers.publish`."""

    def __init__(self, arena: Arena, window: SlidingWindow, params: BufferParams, scoring: ScoringContext) -> None:
        self._window, self._params = window, params
        self._lists = TermLists(arena, window, params, type(self).append_messages)

    @property
    def base(self) -> int:
        """The number that stored numbers are relative to."""
        return self._lists.base

    @property
    def lists(self) -> TermLists:
        """The messages of the window by term."""
        return self._lists

    @abstractmethod
    def arrays(self, profiles: ProfileArrays, scratch: SearchScratch) -> SourceArrays:
        """Return the arrays of the source as kernels take them; they change with messages and edges."""

    @abstractmethod
    def insert(self, slots: npt.NDArray[np.int32], columns: KeywordColumns) -> None:
        """Insert the fields of subscriptions that the search reads and that are not in their profiles."""

    def catch_up(self, first: int) -> None:
        """Append the messages that were added to the window since the last call; `first` is the first live one."""
        self._lists.catch_up(first)

    def drop(self, leaving: npt.NDArray[np.int64], horizon: Horizon) -> None:
        """Remove expired messages from the lists."""
        self._lists.drop(leaving, horizon)

    def move_base(self, by: int) -> None:
        """Add to the base, and subtract the same from all numbers."""
        self._lists.move_base(by)
