"""Lifetimes: subscriptions that are in force for some of the next messages only.

    messages        1  2  3  4  5  6  7  8  9
    slot 5          -----]                            in force up to message 2
    slot 9                [--------]                  from 3 to 5
    other slots     --------------------------

A match outside of the lifetime of its subscription is not reported. Cost: one byte per slot, and a few nanoseconds
per match while there are lifetimes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nearcast.model import Matches

Seqs = npt.NDArray[np.int64]
Slots = npt.NDArray[np.int32]


class Lifetimes:
    """The messages for which some subscriptions of a matcher are in force.

    >>> lifetimes = Lifetimes()
    >>> lifetimes.set(np.array([9, 5], np.int32), sinces=np.array([2, 0]), untils=np.array([5, 2]), n_slots=10)
    >>> rows, slots = np.array([0, 0, 1, 2, 2]), np.array([5, 9, 7, 5, 9], np.int32)
    >>> found = lifetimes.report(Matches(rows, slots, np.ones(5)), np.array([1, 2, 3]))
    >>> found.rows.tolist(), found.slots.tolist()
    ([0, 1, 2], [5, 7, 9])
    >>> lifetimes.are_over(np.array([5, 7, 9]), 3).tolist()
    [True, False, False]
    """

    def __init__(self) -> None:
        self._is_limited = np.zeros(0, np.bool_)
        """bool, by slot: whether a slot is among those with a lifetime."""
        self._slots: Slots = np.zeros(0, np.int32)
        self._sinces: Seqs = np.zeros(0, np.int64)
        self._untils: Seqs = np.zeros(0, np.int64)

    def set(self, slots: Slots, *, sinces: Seqs, untils: Seqs, n_slots: int) -> None:
        """Replace all lifetimes: each slot, of `n_slots`, is in force after message `since`, and up to `until`."""
        self._is_limited[self._slots] = False
        if len(self._is_limited) < n_slots:
            self._is_limited = np.zeros(n_slots + n_slots // 4, np.bool_)
        order = np.argsort(slots)
        self._slots, self._sinces, self._untils = slots[order], sinces[order], untils[order]
        self._is_limited[self._slots] = True

    def clear(self) -> None:
        """Forget all lifetimes: all subscriptions are in force."""
        none = np.zeros(0, np.int64)
        self.set(none.astype(np.int32), sinces=none, untils=none, n_slots=0)

    def are_over(self, slots: Slots, seq: int) -> npt.NDArray[np.bool_]:
        """Return which of some slots are no longer in force at message `seq`."""
        over = np.zeros(len(slots), np.bool_)
        if len(self._slots):
            chosen = np.flatnonzero(self._is_limited[slots])
            over[chosen] = self._untils[np.searchsorted(self._slots, slots[chosen])] < seq
        return over

    def report(self, found: Matches, seqs: Seqs) -> Matches:
        """Return the matches of subscriptions that are in force; `seqs` holds the seq of each row of the batch."""
        if not len(self._slots):
            return found
        rows, slots, scores = found
        chosen = np.flatnonzero(self._is_limited[slots])
        at = np.searchsorted(self._slots, slots[chosen])
        chosen_seqs = seqs[rows[chosen]]
        unreported = chosen[(chosen_seqs <= self._sinces[at]) | (chosen_seqs > self._untils[at])]
        if not len(unreported):
            return found
        n = len(rows) - len(unreported)
        shared = scores.strides == (0,)  # one score for all
        return Matches(
            np.delete(rows, unreported),
            np.delete(slots, unreported),
            scores[:n] if shared else np.delete(scores, unreported),
        )
