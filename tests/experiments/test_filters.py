"""The experiment with filters measures what its page says."""

import pytest

from experiments import filters


@pytest.mark.parametrize("part", ["attributes", "expressions"])
def test_variants_report_what_they_should(part):
    plain, filtered = filters.QUESTION.parts[part](0.01)
    assert plain["messages"] == filtered["messages"] >= 10_000
    if part == "attributes":  # afterwards or at once, the same updates
        assert plain["updates"] == filtered["updates"] and filtered["visited"] < plain["visited"]
    else:
        assert 0 < filtered["updates"] < plain["updates"]


def test_an_index_that_knows_categories_reports_the_same_and_visits_less():
    rows = filters.measure_places(0.01)
    for afterwards, where in zip(rows[::2], rows[1::2], strict=True):
        assert afterwards["kind"] == where["kind"]
        assert afterwards["updates"] == where["updates"] > 0
        assert where["visited"] < afterwards["visited"] / 10


def test_regions_of_the_same_areas_match_as_often():
    boxes, mixed = filters.measure_regions(0.01)
    assert boxes["updates"] > 1_000
    assert mixed["updates"] == pytest.approx(boxes["updates"], rel=0.1)
