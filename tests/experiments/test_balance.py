"""The experiment with load adjustment measures what its page says."""

from experiments import balance


def test_every_selection_moves_enough_and_none_is_cheaper_than_the_dynamic_program():
    rows = balance.measure_selections(0.002)
    assert len(rows) == len(balance.TAUS) * 4
    for share in balance.TAUS:
        cost = {row["selection"]: row["bytes"] for row in rows if row["share"] == share}
        assert cost["dp"] <= min(cost.values())
    assert all(row["cells"] == 10_000 and row["moved_share"] >= row["share"] for row in rows)


def test_shards_that_are_adjusted_report_the_same_updates(monkeypatch):
    monkeypatch.setattr(balance, "BATCHES", 6)
    monkeypatch.setattr(balance, "STRIDE", 400_000)
    rows = balance.measure_drift(0.01)
    still, *adjusted = ([row for row in rows if row["load"] == load] for load in balance.LOADS)
    assert sum(row["updates"] for row in still) > 100
    assert not any(row["moved"] for row in still)
    for variant in adjusted:
        assert [row["updates"] for row in still] == [row["updates"] for row in variant]
        assert sum(row["moved"] for row in variant) > 100
        for row in variant:
            if row["moved"]:
                before, after = row["loads"]
                assert max(after) < max(before)
                assert row["moved_bytes"] > 100 * row["moved"]
