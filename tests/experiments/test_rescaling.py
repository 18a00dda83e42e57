"""The experiment with moves measures what its page says."""

from experiments.rescaling import measure_moves


def test_the_chosen_share_moves_between_two_batches():
    (row,) = measure_moves(0.0005)
    assert row["subscriptions"] == 2_500
    assert 700 < row["moved"] < 1_300, "a thousand, at this scale"
    assert row["moved_bytes"] > 10 * row["moved"]
    assert len(row["batch_s"]) == 12 and row["ratio"] >= 1
