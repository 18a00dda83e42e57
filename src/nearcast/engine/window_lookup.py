"""The result of a stateless kind, which nothing stores: the matches of one subscription among messages of the window.

    window ── messages that may match, as a batch ── an index that holds the one subscription ── seqs, scores

The messages are matched as arriving ones are, by the same kernels, so the scores are the same, and a frequent word
costs microseconds per message that has it instead of an object for each. The index holds no other subscription, and
is made when the first result is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from nearcast.model import Matches, MessageBatch, ScoringContext, SubscriptionBatch
from nearcast.window import ScoredMessage

if TYPE_CHECKING:
    from nearcast.index import Index, IndexEntry
    from nearcast.model.filters import Filters

Touching = Callable[..., Iterable[MessageBatch]]
"""Returns the messages of all windows after a seq that may match a footprint; a message may be in several."""

_SLOT = np.zeros(1, np.int32)


class WindowLookup:
    """Matches one subscription at a time with messages of the window."""

    def __init__(self, entry: IndexEntry, scoring: ScoringContext) -> None:
        self._entry, self._scoring = entry, scoring

    def find(self, subscription: SubscriptionBatch, touching: Touching, *, after: int) -> list[ScoredMessage]:
        """Return the matches of one subscription among the messages of the window after a seq, in no order."""
        (footprint,) = subscription.footprints
        batches = [batch for batch in touching(footprint, after=after) if len(batch)]
        found: dict[int, ScoredMessage] = {}
        if not batches:
            return []
        self._index.insert(_SLOT, subscription)
        self._filters.insert(_SLOT, subscription.programs)
        try:
            for batch in batches:
                rows, _, scores = self._match(batch)
                seqs, ids = batch.seqs[rows].tolist(), batch.ids.take(rows)
                for seq, id_, score in zip(seqs, ids, scores.tolist(), strict=True):
                    found[seq] = ScoredMessage(seq, id_, score)
        finally:
            self._index.delete(_SLOT)
            self._filters.delete(_SLOT)
        return list(found.values())

    def _match(self, batch: MessageBatch) -> Matches:
        if self._filters.have_phrases:
            batch.prepare_order()
        return self._filters.passing(self._index.match(batch, 0, len(batch)), batch)

    @cached_property
    def _index(self) -> Index:
        from nearcast._jit import Arena

        return self._entry.make(self._scoring, Arena())

    @cached_property
    def _filters(self) -> Filters:
        from nearcast._jit import Arena
        from nearcast.model.filters import Filters

        return Filters(Arena(), self._scoring.space)
