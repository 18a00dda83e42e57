"""Runs of terms are cut as in the paper, and placement and routing find them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast import InvalidInput
from nearcast.model import Footprints, MessageBatch
from nearcast.partition.balance.adjust import adjust
from nearcast.partition.balance.cells import Period
from nearcast.partition.base import Sample
from nearcast.partition.keyword import KeywordPartitioner
from nearcast.partition.masks import as_ints
from nearcast.partition.prefix import PrefixPartitioner
from nearcast.partition.serialization import pack, unpack
from nearcast.text import TermRows, Vocabulary


def footprints_of(subscriptions):
    """Return unbounded footprints, each given by its branches of terms."""
    branches, n = [branch for one in subscriptions for branch in one], len(subscriptions)
    return Footprints(
        np.arange(n, dtype=np.uint64), np.zeros(n), np.zeros(n), np.tile([-np.inf, -np.inf, np.inf, np.inf], (n, 1)),
        np.zeros(n, np.int32), np.cumsum([0, *map(len, subscriptions)]), np.cumsum([0, *map(len, branches)]),
        np.array([term for branch in branches for term in sorted(branch)], np.int64),
    )  # fmt: skip


def messages_of(rows):
    terms, n = np.array([term for row in rows for term in sorted(row)], np.int64), len(rows)
    return MessageBatch.from_columns(
        ids=list(range(n)), xs=np.zeros(n), ys=np.zeros(n), ats_us=np.zeros(n, np.int64), places=[None] * n,
        texts=TermRows(np.cumsum([0, *map(len, rows)]), terms, np.ones(len(terms), np.int32)),
        vocabulary=Vocabulary.with_weights({}),
    )  # fmt: skip


def skewed(seed=0, n=4_000, n_words=500):
    """Return subscriptions of three terms and messages of six, with skewed frequencies."""
    rng = np.random.default_rng(seed)

    def draw(n, most):
        return [set((rng.zipf(1.3, most) % n_words).tolist()) for _ in range(n)]

    return [[{word} for word in words] for words in draw(n, 3)], draw(n, 6)


def runs_as_written(wanted, messages, n_shards):
    """Algorithm 4 as in the paper, for branches of one term: count again for every possible cut."""
    words = sorted(
        {w for words in messages for w in words} | {w for one in wanted for branch in one for w in branch},
        key=lambda word: (-sum(word in words for words in messages), word),
    )
    terms_of = [{w for branch in one for w in branch} for one in wanted]

    def cost(run):
        held, seen = (
            sum(not run.isdisjoint(one) for one in terms_of),
            sum(not run.isdisjoint(one) for one in messages),
        )
        return held * (seen + 1)

    def cut(run, n):
        if n == 1 or len(run) < 2:
            return [set(run)]
        low, high = n // 2, n - n // 2
        fewest = min(low, len(run) - 1)
        places = range(fewest, max(fewest, len(run) - high) + 1)
        at = min(places, key=lambda i: abs(cost(set(run[:i])) / low - cost(set(run[i:])) / high))
        return cut(run[:at], low) + cut(run[at:], high)

    return cut(words, n_shards)


words = st.sets(st.integers(0, 9), min_size=1, max_size=4)


@given(st.lists(words, min_size=1, max_size=12), st.lists(words, max_size=12), st.integers(1, 6))
def test_cuts_equal_those_of_algorithm_4(wanted, messages, n_shards):
    wanted = [[{word} for word in sorted(one)] for one in wanted]
    routing = KeywordPartitioner().fit(Sample(footprints_of(wanted), messages_of(messages)), n_shards=n_shards)
    for shard, run in enumerate(runs_as_written(wanted, messages, n_shards)):
        assert set(routing.words.shards_of(np.array(sorted(run), np.int64)).tolist()) == {shard}
        held = sum(any(branch <= run for branch in one) for one in wanted)
        seen = sum(not run.isdisjoint(one) for one in messages)
        assert routing.loads[shard] == pytest.approx(held * seen / max(1, len(messages)))


@pytest.mark.parametrize("n_shards", [3, 8, 32])
def test_costs_are_more_even_than_when_terms_are_assigned_by_id(n_shards):
    wanted, messages = skewed(n_shards)
    routing = KeywordPartitioner().fit(Sample(footprints_of(wanted), messages_of(messages)), n_shards=n_shards)

    def costs(shard_of):
        held, seen = np.zeros(n_shards), np.zeros(n_shards)
        for one in wanted:
            held[list({shard_of(word) for (word,) in one})] += 1
        for one in messages:
            seen[list({shard_of(word) for word in one})] += 1
        return held * seen / len(messages)

    shards = dict(zip(routing.words.terms.tolist(), routing.words.shards.tolist(), strict=True))
    assert costs(shards.__getitem__) == pytest.approx(routing.loads)
    assert routing.loads.min() > 0
    assert np.var(routing.loads) < np.var(costs(lambda word: word % n_shards))


def test_without_messages_the_cuts_follow_the_subscriptions():
    wanted = [[{word}] for word in range(40)]
    routing = KeywordPartitioner().fit(Sample(footprints_of(wanted), messages_of([])), n_shards=4)
    assert np.bincount(routing.words.shards).tolist() == [10, 10, 10, 10]


def test_every_shard_has_a_term_if_there_are_enough():
    wanted, messages = [[{0}]] * 90 + [[{word}] for word in range(1, 6)], [{0}] * 90
    routing = KeywordPartitioner().fit(Sample(footprints_of(wanted), messages_of(messages)), n_shards=6)
    assert np.bincount(routing.words.shards, minlength=6).tolist() == [1] * 6
    few = KeywordPartitioner().fit(Sample(footprints_of(wanted[:1]), messages_of(messages)), n_shards=6)
    assert as_ints(few.place(footprints_of([[{0}], [{0}, set()], [{5}]]))) == [1, 0b111111, 1 << 5]


def test_prefix_has_the_cuts_of_keyword_and_narrows_footprints():
    wanted, messages = skewed(n=500)
    sample = Sample(footprints_of(wanted), messages_of(messages))
    keyword, prefix = (one().fit(sample, n_shards=8) for one in (KeywordPartitioner, PrefixPartitioner))
    assert prefix.words.shards.tolist() == keyword.words.shards.tolist()
    assert (keyword.narrows, prefix.narrows) == (False, True)


def topics(n, *, busy, share, seed=0):
    """Return subscriptions and messages of 40 terms; a share of the messages holds one of the busy terms."""
    rng = np.random.default_rng(seed)
    branches = [[{int(term)}] for term in rng.integers(0, 40, n)]
    chosen = np.where(rng.random(2 * n) < share, rng.choice(busy, 2 * n), rng.integers(0, 40, 2 * n))
    return footprints_of(branches), messages_of([{int(term)} for term in chosen])


@pytest.mark.parametrize("partitioner", [KeywordPartitioner(), PrefixPartitioner()], ids=["keyword", "prefix"])
def test_an_overloaded_shard_splits_and_idle_ones_take_over_runs_of_terms(partitioner):
    footprints, early = topics(400, busy=[0], share=0.0)
    routing = partitioner.fit(Sample(footprints, early), n_shards=4)
    heaviest = int(np.bincount(routing.words.shards).argmax())
    busy = routing.words.terms[routing.words.shards == heaviest]
    _, late = topics(400, busy=busy, share=0.9, seed=1)
    period = Period.of(late, footprints, counts_pairs=True)
    made = adjust(routing, period)
    assert made is not None
    before, after = made.adjustment.loads_before, made.adjustment.loads_after
    assert max(before) > 2 * np.mean(before)
    assert max(after) < 1.3 * np.mean(after)
    assert {step.name for step in made.adjustment.steps} == {"cut", "move"}
    adjusted = made.routing
    assert not adjusted.narrows
    order = np.argsort(adjusted.ranks)
    runs = adjusted.cells[order]
    assert len(np.unique(runs)) == np.count_nonzero(np.diff(runs)) + 1, "each cell is one run of terms"
    assert set(adjusted.words.shards_of(busy).tolist()) > {heaviest}, "other shards have some of the busy terms"


def test_terms_of_a_new_topic_move_too():
    footprints, early = topics(100, busy=[0], share=0.0)
    routing = KeywordPartitioner().fit(Sample(footprints, early), n_shards=3)
    new = np.array([301, 304, 302])  # by their ids in shards 1, 1 and 2
    assert routing.words.shards_of(new).tolist() == [1, 1, 2]
    assert routing.message_cells(messages_of([{301}, {302, 5}])).cells[0] == 1
    moved = routing.reassigned(np.where(routing.cell_leaves == 1, 0, routing.cell_shards))
    assert moved.words.shards_of(new).tolist() == [0, 0, 2]
    assert as_ints(moved.route(messages_of([{304}]))) == [1]
    assert as_ints(moved.place(footprints_of([[{301}], [{302}]]))) == [1, 4]
    again = unpack(pack(moved))
    assert again.words.shards_of(new).tolist() == [0, 0, 2]
    assert not moved.may_cut(1) and moved.may_cut(3)
    for leaf, axis in ((1, 0), (3, 1)):
        with pytest.raises(InvalidInput):
            moved.cut(leaf, axis=axis, value=2.0)
