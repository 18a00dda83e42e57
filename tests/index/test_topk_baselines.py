"""The papers' baselines of kind `topk` find what the reference finds, whatever the thresholds."""

from functools import partial

import numpy as np
import pytest

import index_checks
from modes import check_passes
from nearcast._jit import Arena
from nearcast.errors import InvalidInput
from nearcast.model import TopKSubscription
from nearcast.model._kernels.profiles import ALPHA
from nearcast.space import Space
from nearcast_baselines.ciq import CIQ
from nearcast_baselines.igpt import IGPT, Prunings
from nearcast_baselines.igpt.layout import (
    DEEPEST,
    DEPTH,
    GREATEST,
    MAX_ALPHA,
    MAX_WEIGHT,
    N_LEAVES,
    NEEDS,
    OWN_ALPHA,
    THRESHOLD,
)
from twins import DOT, EDGES, FEW, FLAT, GLOBE, HALF, HUGE, METRE, PLANE, SMALL, ClusteredSource, Twin, run_lifecycle

pytestmark = pytest.mark.soak  # compiling them takes long, and only benchmarks use them

MAKERS = {"igpt": IGPT, "igpt of small leaves": partial(IGPT, capacity=4), "ciq": CIQ}
NO_PRUNING = Prunings(*(False for _ in Prunings._fields))
VARIANTS = {
    **{f"without {name}": {"prunings": Prunings(**{name: False})} for name in Prunings._fields},
    "by ends alone": {"prunings": NO_PRUNING._replace(ends=True)},
    "without any": {"prunings": NO_PRUNING},
    **{f"{n} groups": {"groups": n} for n in (1, 3, 127)},
}
"""IGPT with some prunings switched off, or with other groups; no variant changes the matches."""
SPACES = {
    "plane": PLANE,
    "globe": GLOBE,
    "edges": EDGES,
    "metre": METRE,
    "half": HALF,
    "flat": FLAT,
    "dot": DOT,
    "huge": HUGE,
}
_, N, M = FEW


def subscription_from(source):
    return TopKSubscription("s", location=source.point(), keywords=source.terms(6), k=1, alpha=source.share())


class TopKTwin(Twin):
    """A twin whose index shares an arena with the profiles."""

    def __init__(self, make, space, seed):
        self.arena = Arena()
        source = ClusteredSource(space, seed + 1, subscription_from)
        super().__init__(lambda scoring: make(scoring, self.arena), source, seed=seed)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_matches_equal_the_reference_in_every_space(make, space):
    run_lifecycle(TopKTwin(make, space, 3), sizes=FEW)


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("space", [PLANE, GLOBE], ids=["plane", "globe"])
def test_no_pruning_and_no_number_of_groups_changes_the_matches(space, options):
    run_lifecycle(TopKTwin(partial(IGPT, capacity=16, **options), space, 4), sizes=FEW)


@pytest.mark.parametrize("name", Prunings._fields)
def test_every_pruning_alone_saves_work(name):
    works = {}
    for prunings in (NO_PRUNING, NO_PRUNING._replace(**{name: True})):
        twin = TopKTwin(partial(IGPT, capacity=16, prunings=prunings), PLANE, 12)
        twin.insert(range(4 * N))
        twin.index.set_thresholds(np.arange(4 * N, dtype=np.int32), np.full(4 * N, 0.9))
        twin.index.match(twin.batch(M), 0, M)
        works[prunings] = twin.index.work
    without, with_it = works.values()
    assert with_it.matched == without.matched
    assert with_it.candidates <= without.candidates
    assert with_it.visited + with_it.candidates < without.visited + without.candidates


@pytest.mark.parametrize("groups", [0, 128])
def test_a_number_of_groups_out_of_range_is_refused(groups):
    with pytest.raises(InvalidInput, match=rf"groups must be in \[1, 127\]; got {groups}"):
        TopKTwin(partial(IGPT, groups=groups), PLANE, 1)


@pytest.mark.parametrize("groups", [1, 5, 40])
def test_groups_end_at_quantiles_of_alpha(groups):
    twin = TopKTwin(partial(IGPT, groups=groups), PLANE, 13)
    twin.insert(range(N))
    state = twin.index._state()
    alphas = state.context.profiles.points[:N, ALPHA]
    ends = np.quantile(alphas, np.arange(1, groups) / groups)
    for part in lists_of(state):
        of_slots = np.searchsorted(ends, alphas[state.postings.slots[part]])
        assert state.postings.groups[part].tolist() == of_slots.tolist()


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_small_buffers_give_the_same_matches_and_count_work_once(make):
    index_checks.check_small_buffers(*(TopKTwin(partial(make, room=room), GLOBE, 5) for room in (1, 4096)), n=N, m=M)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_part_of_a_batch_has_the_row_numbers_of_the_batch(make):
    index_checks.check_part_of_a_batch(TopKTwin(make, PLANE, 6), n=N, m=M, start=1, stop=3)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_profiles_are_shared_with_the_result_store(make):
    twin = TopKTwin(make, PLANE, 7)
    index_checks.check_shared_profiles(twin, twin.arena)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_thresholds_of_free_slots_are_ignored(make):
    index_checks.check_free_slots(TopKTwin(make, PLANE, 8), M)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_high_thresholds_rule_out_many_subscriptions_that_share_a_term(make):
    twin = TopKTwin(make, Space.earth(), 9)
    twin.insert(range(4 * N))
    batch, slots, n_candidates = twin.batch(M), np.arange(4 * N, dtype=np.int32), []
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
def test_groups_are_sorted_and_their_statistics_cover_all_later_postings(capacity):
    twin = TopKTwin(partial(IGPT, capacity=capacity), GLOBE, 10)

    def check():
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
                assert rows[i, MAX_WEIGHT] == behind[:, GREATEST].max()
                assert rows[i, MAX_ALPHA] == behind[:, OWN_ALPHA].max()
            n_postings += len(slots)
        held = np.array(sorted(twin.thresholds), np.int32)
        assert n_postings == state.context.profiles.heads[held, 1].sum()
        leaves, needs = state.slots_of.leaves[held], state.slots_of.bounds[held, NEEDS]
        for leaf in range(int(state.counts[N_LEAVES])):
            least = needs[leaves == leaf].min(initial=np.inf)
            assert state.leaves.needs[leaf] == least
            full = (leaves == leaf).sum() > capacity
            assert not full or state.leaves.heads[leaf, DEPTH] == DEEPEST

    run_lifecycle(twin, check, sizes=FEW)
    assert (twin.index._state().counts[N_LEAVES] > 1) == (capacity == 4)


@pytest.mark.soak
@pytest.mark.skipif(SMALL, reason="is one of the passes itself")
def test_these_tests_pass_uncompiled():
    """Plain Python checks bounds by itself, so baselines are not compiled again with bounds checks."""
    check_passes("uncompiled", __file__, NEARCAST_TEST_SMALL="1")
