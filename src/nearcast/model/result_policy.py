"""Result policies: which messages a result holds, how they rank, and when a new one enters.

    policy           a result holds                        better    ties go to   needs a window   stateful
    MATCHES          every match; it only grows            greater   the newer    no               no
    BEST_IN_WINDOW   the k best messages of the window     greater   the newer    yes              yes
    BEST_EVER        the k best since the subscription     smaller   the older    no               yes

A kind names its policy; other packages depend on the policy and never on the kind.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class ResultPolicy:
    """How the result of a kind is kept.

    >>> BEST_IN_WINDOW.rank(0.5, seq=7) < BEST_IN_WINDOW.rank(0.5, seq=6) < BEST_IN_WINDOW.rank(0.4, seq=8)
    True
    >>> BEST_EVER.rank(2.0, seq=6) < BEST_EVER.rank(2.0, seq=7) < BEST_EVER.rank(3.0, seq=1)
    True
    """

    name: str
    is_stateful: bool
    """True if results are stored; false if every match is reported once and forgotten."""
    needs_window: bool
    """True if a result holds messages of the window only, so that it can be computed from the window again."""
    greater_is_better: bool = True
    """The direction of the score; ties go to the newer message if greater is better, else to the older one."""

    @property
    def since_subscription(self) -> bool:
        """True if only messages published after the subscription can be in its result."""
        return not self.needs_window

    @property
    def must_be_saved(self) -> bool:
        """True if results are stored and do not follow from the window."""
        return self.is_stateful and not self.needs_window

    @property
    def sign(self) -> float:
        """1 if greater scores are better, else -1."""
        return 1.0 if self.greater_is_better else -1.0

    def rank(self, score: float, seq: int) -> tuple[float, float]:
        """Return a sort key: the better the message, the smaller the key."""
        return -self.sign * score, -self.sign * seq

    def would_enter(self, score: float, seq: int, worst: tuple[float, int] | None) -> bool:
        """Return whether a message beats the worst result, given as score and seq; None means that there is room."""
        return worst is None or self.rank(score, seq) < self.rank(*worst)

    def best(self, scored: Iterable[tuple[float, int]], k: int) -> list[tuple[float, int]]:
        """Return the k best of scores and seqs, best first."""
        return sorted(scored, key=lambda found: self.rank(*found))[:k]


MATCHES = ResultPolicy("matches", is_stateful=False, needs_window=False)
BEST_IN_WINDOW = ResultPolicy("best in window", is_stateful=True, needs_window=True)
BEST_EVER = ResultPolicy("best ever", is_stateful=True, needs_window=False, greater_is_better=False)

RESULT_POLICIES = (MATCHES, BEST_IN_WINDOW, BEST_EVER)
"""Every policy: for each there is a result store."""
