"""DSkype, Examples 7 and 8. Figure 8 has no numbers: words are chosen to agree with the text."""

import numpy as np

from nearcast.model import Footprints, MessageBatch
from nearcast.partition.base import Sample
from nearcast.partition.keyword import KeywordPartitioner
from nearcast.partition.masks import as_ints
from nearcast.text import TermRows, Vocabulary

WORDS = range(1, 11)  # w1 to w10
BOLTS = [{1, 2}, {3, 4}, {5, 6, 7}, {8, 9, 10}]


def footprints_of(*subscriptions):
    """Return unbounded footprints, each given by the words of which a message must hold one."""
    lengths, n = [len(words) for words in subscriptions], len(subscriptions)
    return Footprints.of_any_term(
        np.arange(n, dtype=np.uint64), np.zeros(n), np.zeros(n), np.ones(n, np.int32),
        np.cumsum([0, *lengths]), np.array([w for words in subscriptions for w in sorted(words)], np.int64),
        needs=np.ones(n, np.bool_),
    )  # fmt: skip


def messages_of(*messages):
    terms = np.array([w for words in messages for w in sorted(words)], np.int64)
    n = len(messages)
    return MessageBatch.from_columns(
        ids=list(range(n)), xs=np.zeros(n), ys=np.zeros(n), ats_us=np.zeros(n, np.int64), places=[None] * n,
        texts=TermRows(np.cumsum([0, *map(len, messages)]), terms, np.ones(len(terms), np.int32)),
        vocabulary=Vocabulary.with_weights({}),
    )  # fmt: skip


def example():
    """Return a sample of ten words, by falling frequency, in which the four bolts have equal costs."""
    published = [{w} for w, times in zip(WORDS, (9, 9, 9, 9, 6, 6, 6, 6, 6, 6), strict=True) for _ in range(times)]
    wanted = [{w} for w, times in zip(WORDS, (3, 3, 3, 3, 2, 2, 2, 2, 2, 2), strict=True) for _ in range(times)]
    return Sample(footprints_of(*wanted), messages_of(*published))


def test_example_7_ten_keywords_are_cut_into_four_runs_of_equal_cost():
    routing = KeywordPartitioner().fit(example(), n_shards=4)
    runs = [{w for w in WORDS if routing.words.shards_of(np.array([w]))[0] == bolt} for bolt in range(4)]
    assert runs == BOLTS
    assert routing.loads.tolist() == [6 * 18 / 72] * 4  # equation 16: subscriptions, times the share of messages


def test_example_7_a_subscription_is_placed_and_a_message_routed_by_its_terms():
    routing = KeywordPartitioner().fit(example(), n_shards=4)
    s, m = {1, 2, 4, 7}, {6, 8, 9}
    assert as_ints(routing.place(footprints_of(s))) == [0b0111], "bolts 1, 2 and 3"
    assert as_ints(routing.route(messages_of(m))) == [0b1100], "bolts 3 and 4"


def test_example_8_with_its_loose_prefix_the_subscription_is_in_the_first_shard_only():
    routing = KeywordPartitioner().fit(example(), n_shards=4)
    assert as_ints(routing.place(footprints_of({1, 2}))) == [0b0001]
    assert as_ints(routing.route(messages_of({6, 8, 9})))[0] & 0b0001 == 0
