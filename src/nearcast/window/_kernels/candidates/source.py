"""The contract between buffers and a source of candidates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from nearcast.model._kernels.profiles import ProfileArrays
from nearcast.window._kernels.lists import ListArrays
from nearcast.window._kernels.params import BufferParams
from nearcast.window._kernels.search import SearchScratch


class SourceArrays(Protocol):
    """The fields of a source that the kernels of buffers read."""

    @property
    def params(self) -> BufferParams:
        """The constants of the result store."""

    @property
    def lists(self) -> ListArrays:
        """The messages of the window by term."""

    @property
    def profiles(self) -> ProfileArrays:
        """The subscriptions by slot."""

    @property
    def scratch(self) -> SearchScratch:
        """The scratch space, shared with the buffers."""


class SourceKernels(NamedTuple):
    """The kernels of a source."""

    search: Callable[..., Any]
    """(source, slot, now, horizon) -> (n_found, theta, n_pending): find the best messages up to number `now`.

    All messages of the window that reach theta are found; theta is -inf if there are no others. The scratch holds
    what was found, best first, and the postings of messages that arrive after `now`.
    """
    score_pending: Callable[..., Any]
    """(source, slot, n_pending, floor, ceiling) -> n_found: score messages of the batch that arrive later.

    Called right after the search of the same subscription. Writes those that reach the floor and stay below the
    ceiling to where the found messages were.
    """
    max_noted: Callable[..., Any]
    """(source, slot) -> n: an upper bound of the postings that a search notes."""
