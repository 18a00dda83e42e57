"""Sliding windows expire messages at the right steps."""

import numpy as np
import pytest

from nearcast.model import NO_TIME, MessageBatch
from nearcast.model.message import Message
from nearcast.text import Vocabulary
from nearcast.window import CountWindow, SlidingWindow, Ticks, TimeWindow


def expired(steps):
    """Return the seqs of the messages that expire."""
    return [d.seq for step in steps.walk(MessageBatch.empty()) for d in step.leaving]


def test_messages_expire_at_steps_whose_message_the_shard_does_not_receive():
    window = SlidingWindow(CountWindow(2))
    messages = [Message(i, (0, 0), "a") for i in range(5)]
    batch = MessageBatch.from_messages(messages, vocabulary=Vocabulary.with_weights({}))
    received = batch.take(batch.seqs[[0, 3]] - 1)
    no_times = np.full(5, NO_TIME)
    steps = window.admit(received, Ticks(batch.seqs, no_times, no_times))
    assert [(s.row, [d.seq for d in s.leaving]) for s in steps.walk(received)] == [
        (0, []),
        (-1, []),
        (-1, [1]),
        (1, []),
        (-1, []),
    ]
    assert [d.seq for d in window.documents()] == [4]


def test_a_time_window_expires_by_time_not_by_arrival():
    before = SlidingWindow(TimeWindow(10))
    messages = [Message(i, (0, 0), "a", at=at) for i, at in enumerate((30.0, 20.5))]
    batch = MessageBatch.from_messages(messages, vocabulary=Vocabulary.with_weights({}))
    before.admit(batch, Ticks(batch.seqs, batch.ats_us, np.maximum.accumulate(batch.ats_us)))
    for window in (SlidingWindow(TimeWindow(10), before.table()), before):
        assert [d.seq for d in window.documents()] == [1, 2]
        assert expired(window.advance(3, 30_500_000)) == [2]
        assert expired(window.advance(3, 40_000_000)) == [1]


def test_without_a_policy_the_window_stays_empty():
    window = SlidingWindow(None)
    messages = [Message(1, (0, 0), "a")]
    batch = MessageBatch.from_messages(messages, vocabulary=Vocabulary.with_weights({}))
    window.admit(batch, Ticks(batch.seqs, batch.ats_us, batch.ats_us))
    assert len(window) == 0
    assert window.table() is None
    assert expired(window.advance(9, 9)) == []


@pytest.mark.parametrize("policy", [CountWindow(3), TimeWindow(10)])
def test_steps_have_the_same_types_with_and_without_messages(policy):
    """Kernels are compiled for each combination of types, and a read-only array is another type."""
    messages = [Message(i, (0, 0), "a", at=i) for i in range(2)]
    batch = MessageBatch.from_messages(messages, vocabulary=Vocabulary.with_weights({}))
    window = SlidingWindow(policy)
    admitted = window.admit(batch, Ticks(batch.seqs, batch.ats_us, np.maximum.accumulate(batch.ats_us)))
    advanced = window.advance(2, 2_000_000)
    for name in ("row_steps", "leaving", "leaving_steps", "horizons"):
        arrays = [getattr(steps, name) for steps in (admitted, advanced)]
        types = [(array.dtype, array.flags.writeable, array.flags.c_contiguous) for array in arrays]
        assert types == [(np.int64, True, True)] * 2, name
