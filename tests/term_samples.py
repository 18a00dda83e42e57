"""Subscriptions and messages for tests of partitioners, given by the ids of their terms."""

import numpy as np

from nearcast.model import Footprints, MessageBatch
from nearcast.model.footprint import anywhere
from nearcast.text import TermRows, Vocabulary


def footprints_of(*subscriptions, boxes=None):
    """Return footprints, each given by its branches of terms, unbounded or in boxes."""
    branches = [branch for one in subscriptions for branch in one]
    n = len(subscriptions)
    return Footprints(
        np.arange(n, dtype=np.uint64),
        np.zeros(n) if boxes is None else (boxes[:, 0] + boxes[:, 2]) / 2,
        np.zeros(n) if boxes is None else (boxes[:, 1] + boxes[:, 3]) / 2,
        anywhere(n) if boxes is None else boxes,
        np.zeros(n, np.int32),
        np.cumsum([0, *map(len, subscriptions)]),
        np.cumsum([0, *map(len, branches)]),
        np.array([term for branch in branches for term in sorted(branch)], np.int64),
    )


def messages_of(*rows, at=None):
    """Return messages, each given by its terms, at the origin or at points."""
    at = np.zeros((len(rows), 2)) if at is None else np.array(at, float)
    terms = np.array([term for row in rows for term in sorted(row)], np.int64)
    return MessageBatch.from_columns(
        ids=list(range(len(rows))), xs=at[:, 0].copy(), ys=at[:, 1].copy(),
        ats_us=np.zeros(len(rows), np.int64), places=[None] * len(rows),
        texts=TermRows(np.cumsum([0, *map(len, rows)]), terms, np.ones(len(terms), np.int32)),
        vocabulary=Vocabulary.with_weights({}),
    )  # fmt: skip
