"""Checks that tests of several indexes share; each takes a twin of the index."""

import numpy as np

from nearcast._jit import Arena
from nearcast.index._kernels.shared.grouped_postings import LANES
from nearcast.model import Message, MessageBatch
from nearcast.model.profiles import Profiles
from twins import M, N, found


def check_part_of_a_batch(twin, *, n=30, m=10, start=3, stop=7):
    """Matches of some rows of a batch have the row numbers of the batch."""
    twin.insert(range(n))
    batch = twin.batch(m)
    assert twin.check(batch, start, stop)
    assert found(twin.index, batch, start, start) == {}


def check_empty_index(twin):
    """An index without subscriptions finds nothing and accepts empty changes."""
    batch = twin.batch_of([Message("m", (0, 0), "a b")])
    assert found(twin.index, batch) == {}
    twin.index.delete(np.zeros(0, np.int32))
    twin.index.set_thresholds(np.zeros(0, np.int32), np.zeros(0))
    assert found(twin.index, batch) == {}
    assert found(twin.index, MessageBatch.empty()) == {}


def check_small_buffers(small, large, *, n=N, m=M):
    """A twin whose output starts small finds the same matches with the same work."""
    for twin in (small, large):
        twin.insert(range(n))
    batch = small.batch(m)
    assert small.check(batch) == large.check(batch) != {}
    assert small.index.work == large.index.work


def check_free_slots(twin, m=M):
    """Thresholds and deletions of free slots are ignored."""
    twin.insert(range(8))
    twin.delete([3])
    twin.index.set_thresholds(np.array([3], np.int32), np.array([0.5]))
    twin.index.delete(np.array([3], np.int32))
    assert twin.check(twin.batch(m))


def check_replacement(twin, subscription, threshold):
    """A subscription that replaces another in its slot has an open threshold."""
    twin.insert({0: subscription})
    twin.set_thresholds({0: threshold})
    batch = twin.batch_of([Message("m", (8, 8), "a b")])
    assert twin.check(batch) == {}
    twin.delete([0])
    twin.insert({0: subscription})
    assert len(twin.check(batch)) == 1


def check_many_terms(twin, subscription_of, sizes):
    """Subscriptions and messages may have a thousand terms; `subscription_of(keywords)` lies at (0, 10)."""
    terms = [f"w{i}" for i in range(1024)]
    for slot, size in enumerate(sizes):
        twin.insert({slot: subscription_of(twin.rng.sample(terms, size))})
    messages = [Message("m", (0, 10.1), twin.rng.sample(terms, size)) for size in (1, 30, 1024)]
    batch = twin.batch_of([*messages, Message("m", (0, 10.1), "")])
    assert len(twin.check(batch)) >= 6
    twin.move_thresholds(batch)
    twin.check(batch)


def check_arena(twin, make_index, folder):
    """An index attached to the folder of its arena continues with the same thresholds."""
    twin.insert(range(N))
    batch = twin.batch()
    twin.move_thresholds(batch)
    first = found(twin.index, batch)
    twin.index = make_index(twin.scoring, arena=Arena.attach(folder))
    assert twin.check(batch) == first
    twin.delete(list(range(0, N, 3)))
    twin.check(batch)


def check_shared_profiles(twin, arena):
    """The profiles of an index are in its arena, where a result store finds them."""
    twin.insert(range(4))
    assert (Profiles(arena).arrays.heads[:4, 0] >= 0).all()
    twin.delete([2])
    assert Profiles(arena).arrays.heads[2, 0] < 0


def groups_of(start, length):
    """Yield each group of a list and its number of postings."""
    for group in range(start // LANES, -(-(start + length) // LANES)):
        yield group, min(LANES, start + length - group * LANES)


def replace_some(twin, n):
    """Delete `n` random subscriptions and insert others in their slots."""
    deleted = twin.rng.sample(sorted(twin.thresholds), n)
    twin.delete(deleted)
    twin.insert(deleted)
