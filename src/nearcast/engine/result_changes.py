"""Changes as the difference of two sets of results, and by subscription."""

from __future__ import annotations

import numpy as np

from nearcast.model import IdColumn
from nearcast.window import Changes, Results, ScoredMessage


def changes_between(before: Results, after: Results) -> Changes:
    """Return the changes that turn one set of results into another."""
    n_before, n_after = len(before.slots), len(after.slots)
    return Changes(
        np.zeros(n_before + n_after, np.int64),
        np.concatenate([before.slots, after.slots]),
        np.repeat([False, True], [n_before, n_after]),
        np.concatenate([before.scores, after.scores]),
        IdColumn.joined([before.ids, after.ids]),
        np.concatenate([before.seqs, after.seqs]),
        None,
        0,
    )


def changes_by_slot(changes: Changes, *, enters: bool) -> dict[int, list[ScoredMessage]]:
    """Return the messages that entered, or that left, by slot."""
    found: dict[int, list[ScoredMessage]] = {}
    for row in np.flatnonzero(changes.enters == enters).tolist():
        at = row if changes.rows is None else int(changes.rows[row])
        scored = ScoredMessage(int(changes.seqs[at]), changes.ids[at], float(changes.scores[row]))
        found.setdefault(int(changes.slots[row]), []).append(scored)
    return found
