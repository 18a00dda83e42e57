"""Workloads: messages and subscriptions for an engine, generated from a seed or read from files.

    generator ── messages ──┐                   recording ── messages of Parquet files
       │ cities, words, zipf├─ Arrow tables         │
       └── random messages ─┴─ subscriptions ───────┘      one generator per kind, after each paper's experiments
           community             a social graph, and places that publish
           drift                 hot spots that wander, topics that come and go
           events                revisions, forms, sites, bursts and silences

Everything streams: memory does not grow with the number of rows, and row i of a seed is always the same bytes.

>>> from nearcast.workload import make
>>> tweets = make("tweets", seed=7)
>>> sum(table.num_rows for table in tweets.messages(20_000))
20000
>>> next(tweets.subscriptions("boolean", 1, queries="q2"))["op"].to_pylist()
['subscribe']
"""

from nearcast.workload.columns import MESSAGES, SUBSCRIPTIONS, TEXT_MESSAGES
from nearcast.workload.community import Community
from nearcast.workload.drift import Drift
from nearcast.workload.events import Events
from nearcast.workload.generator import WORKLOADS, Workload, make
from nearcast.workload.progress import progress
from nearcast.workload.recording import Recording, load
from nearcast.workload.subscriptions import MAKERS, QUERIES

__all__ = [
    "MAKERS",
    "MESSAGES",
    "QUERIES",
    "SUBSCRIPTIONS",
    "TEXT_MESSAGES",
    "WORKLOADS",
    "Community",
    "Drift",
    "Events",
    "Recording",
    "Workload",
    "load",
    "make",
    "progress",
]
