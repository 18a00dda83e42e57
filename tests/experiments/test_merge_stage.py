"""The experiment with the merge stage measures what it says."""

from experiments.merge_stage import PAIRED, measure_pairs


def test_replicating_partitioners_send_a_message_to_fewer_shards(monkeypatch):
    monkeypatch.delenv("NEARCAST_DATA", raising=False)
    rows = {row["partitioner"]: row for row in measure_pairs(0.03)}
    assert set(rows) == set(PAIRED)
    assert rows["hash"]["replicas"] == 1 and rows["hash"]["pairs_per_message"] == 8
    for name in ("keyword", "prefix"):
        assert rows[name]["replicas"] > 1 and rows[name]["pairs_per_message"] < 8
