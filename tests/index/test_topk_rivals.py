"""Do the papers' indexes of kind `topk` answer as the reference does, whatever the bars?"""

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from modes import check_passes
from nearcast._jit import Arena
from nearcast.errors import InvalidInput
from nearcast.model import ScoringContext, TopKSubscription
from nearcast.model._kernels.profiles import ALPHA
from nearcast.model.profiles import Profiles
from nearcast.social import SocialGraph
from nearcast.space import Box, Space
from nearcast.testing import strategies as projection
from nearcast.text import TEXT_SIMILARITIES, Vocabulary
from twins import SMALL, TERMS, M, N, Twin, live_through

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from benchmarks.baselines.ciq import CIQ  # noqa: E402
from benchmarks.baselines.igpt import IGPT, Prunings  # noqa: E402
from benchmarks.baselines.igpt.layout import (  # noqa: E402
    DEEPEST,
    DEPTH,
    GREATEST,
    MOST_ALPHA,
    MOST_WEIGHT,
    N_LEAVES,
    NEEDS,
    OWN_ALPHA,
    THRESHOLD,
)

MAKERS = {"igpt": IGPT, "igpt of small leaves": partial(IGPT, capacity=4), "ciq": CIQ}
NO_PRUNING = Prunings(*(False for _ in Prunings._fields))
OTHERWISE = {
    **{f"without {name}": {"prunings": Prunings(**{name: False})} for name in Prunings._fields},
    "by ends alone": {"prunings": NO_PRUNING._replace(ends=True)},
    "without any": {"prunings": NO_PRUNING},
    **{f"{n} groups": {"groups": n} for n in (1, 3, 127)},
}
"""IGPT with some of it switched off, or with other groups; none of it changes the answers."""
SPACES = {
    "plane": projection.PLANE,
    "globe": projection.GLOBE,
    "edges": Space.earth(max_distance=300_000.0),
    "metre": Space.earth(max_distance=1.0),
    "half": Space.earth(),
    "flat": Space(Box(-3, 10, 5, 11), max_distance=0.5),
    "dot": Space(Box(0, 0, 0, 0), max_distance=7),
    "huge": Space(Box(-1e308, -1e308, 1e308, 1e308), max_distance=1e300),
}
VOCABULARY = Vocabulary.with_weights({term: i * 0.37 % 3.1 if i % 7 else 0.0 for i, term in enumerate(TERMS)})


class TopK(Twin):
    """An index of kind `topk`, and beside it what it must know."""

    def __init__(self, make, space, seed, vocabulary=VOCABULARY):
        self.arena = Arena()
        scoring = ScoringContext(space, vocabulary, SocialGraph([]), TEXT_SIMILARITIES["containment"])
        super().__init__(lambda scoring: make(scoring, self.arena), scoring, seed)

    def subscription(self):
        alpha = self.rng.choice([0.0, 1.0, 0.9999, self.rng.random(), self.rng.random()])
        return TopKSubscription("s", location=self.point(), keywords=self.words(6), k=1, alpha=alpha)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_any_space_is_answered_as_the_reference_does(make, space):
    live_through(TopK(make, space, 3))


@pytest.mark.parametrize("options", OTHERWISE.values(), ids=OTHERWISE)
@pytest.mark.parametrize("space", [projection.PLANE, projection.GLOBE], ids=["plane", "globe"])
def test_no_switch_and_no_number_of_groups_changes_the_answers(space, options):
    live_through(TopK(partial(IGPT, capacity=16, **options), space, 4))


@pytest.mark.parametrize("name", Prunings._fields)
def test_every_pruning_saves_work_where_it_is_the_only_one(name):
    spared = {}
    for prunings in (NO_PRUNING, NO_PRUNING._replace(**{name: True})):
        twin = TopK(partial(IGPT, capacity=16, prunings=prunings), projection.PLANE, 12)
        twin.insert(range(4 * N))
        twin.index.set_thresholds(np.arange(4 * N, dtype=np.int32), np.full(4 * N, 0.9))
        twin.index.match(twin.batch(), 0, M)
        spared[prunings] = twin.index.work
    without, with_it = spared.values()
    assert with_it.matched == without.matched
    assert with_it.candidates <= without.candidates
    assert with_it.visited + with_it.candidates < without.visited + without.candidates


@pytest.mark.parametrize("groups", [0, 128])
def test_a_number_of_groups_that_does_not_fit_is_refused(groups):
    with pytest.raises(InvalidInput, match=rf"groups must be in \[1, 127\]; got {groups}"):
        TopK(partial(IGPT, groups=groups), projection.PLANE, 1)


@pytest.mark.parametrize("groups", [1, 5, 40])
def test_groups_end_at_quantiles_of_alpha(groups):
    twin = TopK(partial(IGPT, groups=groups), projection.PLANE, 13)
    twin.insert(range(N))
    state = twin.index._state()
    alphas = state.ground.profiles.points[:N, ALPHA]
    ends = np.quantile(alphas, np.arange(1, groups) / groups)
    for part in lists_of(state):
        of_slots = np.searchsorted(ends, alphas[state.postings.slots[part]])
        assert state.postings.groups[part].tolist() == of_slots.tolist()


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_tiny_buffers_give_the_same_answers_and_count_work_once(make):
    small, large = (TopK(partial(make, room=room), projection.GLOBE, 5) for room in (1, 4096))
    for twin in (small, large):
        twin.insert(range(N))
    assert small.check(small.batch()) == large.check(large.batch()) > 1
    assert small.index.work == large.index.work


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_part_of_a_batch_is_numbered_as_the_batch_is(make):
    twin = TopK(make, projection.PLANE, 6)
    twin.insert(range(N))
    batch = twin.batch()
    whole, part = twin.index.match(batch, 0, M), twin.index.match(batch, 1, 3)
    inside = (whole.rows >= 1) & (whole.rows < 3)
    assert [c.tolist() for c in part] == [c[inside].tolist() for c in whole]
    assert len(twin.index.match(batch, 2, 2).slots) == 0


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_profiles_are_those_of_the_keeper(make):
    twin = TopK(make, projection.PLANE, 7)
    twin.insert(range(4))
    assert (Profiles(twin.arena).arrays.heads[:4, 0] >= 0).all()
    twin.delete([2])
    assert Profiles(twin.arena).arrays.heads[2, 0] < 0


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_slots_that_are_not_here_have_no_bar_to_set(make):
    twin = TopK(make, projection.PLANE, 8)
    twin.insert(range(8))
    twin.delete([3])
    twin.index.set_thresholds(np.array([3], np.int32), np.array([0.5]))
    twin.index.delete(np.array([3], np.int32))
    assert twin.check(twin.batch()) > 0


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_high_bars_rule_out_much_of_what_shares_a_term(make):
    twin = TopK(make, Space.earth(), 9)
    twin.insert(range(4 * N))
    batch, slots, n_candidates = twin.batch(), np.arange(4 * N, dtype=np.int32), []
    for threshold in (-np.inf, 0.97, 1.1):
        before = twin.index.work.candidates
        twin.index.set_thresholds(slots, np.full(4 * N, threshold))
        twin.index.match(batch, 0, M)
        n_candidates.append(twin.index.work.candidates - before)
    assert n_candidates[1] < 0.7 * n_candidates[0]
    assert n_candidates[2] == 0


def lists_of(state):
    for row in np.flatnonzero(state.lists.keys[: state.counts[0]] >= 0):
        start = int(state.lists.starts[row])
        yield slice(start, start + int(state.lists.lengths[row]))


@pytest.mark.parametrize("capacity", [4, 1000])
def test_groups_are_in_order_and_their_statistics_those_of_all_behind(capacity):
    twin = TopK(partial(IGPT, capacity=capacity), projection.GLOBE, 10)

    def look():
        state = twin.index._state()
        n_postings = 0
        for part in lists_of(state):
            rows, slots = state.postings.rows[part], state.postings.slots[part]
            groups, lefts = state.postings.groups[part], state.postings.lefts[part]
            order = list(zip(groups.tolist(), rows[:, THRESHOLD].tolist(), slots.tolist(), strict=True))
            assert order == sorted(order)
            for i, group in enumerate(groups):
                behind = rows[i:][groups[i:] == group]
                assert lefts[i] == len(behind)
                assert rows[i, MOST_WEIGHT] == behind[:, GREATEST].max()
                assert rows[i, MOST_ALPHA] == behind[:, OWN_ALPHA].max()
            n_postings += len(slots)
        held = np.array(sorted(twin.thresholds), np.int32)
        assert n_postings == state.ground.profiles.heads[held, 1].sum()
        leaves, needs = state.seats.leaves[held], state.seats.bounds[held, NEEDS]
        for leaf in range(int(state.counts[N_LEAVES])):
            least = needs[leaves == leaf].min(initial=np.inf)
            assert state.leaves.needs[leaf] == least
            full = (leaves == leaf).sum() > capacity
            assert not full or state.leaves.heads[leaf, DEPTH] == DEEPEST

    live_through(twin, look)
    assert (twin.index._state().counts[N_LEAVES] > 1) == (capacity == 4)


@pytest.mark.skipif(SMALL, reason="is one of the passes itself")
def test_all_of_this_holds_uncompiled():
    """Plain Python refuses a place beyond an array by itself, so rivals are not compiled again with bounds checks."""
    check_passes("uncompiled", __file__, NEARCAST_TEST_SMALL="1")
