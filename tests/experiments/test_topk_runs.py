"""The runs of top-k time and draw what they claim."""

from __future__ import annotations

import pytest
from experiments.topk_runs import BURST, Setting, _bursts, _engine, _subscriptions

from nearcast import TimeWindow

N_BURSTS = 2


def test_the_first_message_of_a_burst_pushes_out_a_burst_and_the_others_nothing() -> None:
    window = N_BURSTS * BURST
    setting = Setting(
        subscriptions=50, window=window, k=2 * window
    )  # room for all: a message leaves only when it expires
    left = {"first": 0, "others": 0}
    with _engine(setting, TimeWindow(seconds=N_BURSTS)) as engine:
        for table in _subscriptions(setting):
            engine.subscribe(table)
        for burst in _bursts(0, 2 * N_BURSTS):
            for part, messages in (("first", burst.slice(0, 1)), ("others", burst.slice(1))):
                left[part] += engine.publish(messages)["change"].to_pylist().count("leave")
    assert left["first"] > 0
    assert left["others"] == 0


@pytest.mark.parametrize("keywords", [1, 5])
def test_subscriptions_have_the_requested_number_of_keywords(keywords: int) -> None:
    setting = Setting(subscriptions=700, window=BURST, keywords=keywords)
    texts = [text for table in _subscriptions(setting) for text in table["keywords"].to_pylist()]
    assert [len(text.split()) for text in texts] == [keywords] * 700


def test_zipf_keywords_are_as_many_as_before_and_others() -> None:
    usual, zipf = (
        next(_subscriptions(Setting(subscriptions=200, window=BURST, is_zipf=is_zipf)))["keywords"].to_pylist()
        for is_zipf in (False, True)
    )
    assert [len(text.split()) for text in usual] == [len(text.split()) for text in zipf]
    assert usual != zipf
