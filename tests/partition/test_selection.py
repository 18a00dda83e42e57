"""Cells to move are those of the paper's algorithms, and the dynamic program finds the least cost."""

import itertools

import numpy as np
import pytest

from effort import effort
from nearcast import InvalidInput
from nearcast.partition.balance.selection import (
    SELECTIONS,
    select_dp,
    select_gr,
    select_ra,
    select_si,
    selection_named,
)


def tables(n_tables, *, most_cells=9, seed=0):
    """Yield small tables of cells with loads that add up without rounding, and tau."""
    rng = np.random.default_rng(seed)
    for _ in range(n_tables):
        n = int(rng.integers(1, most_cells + 1))
        loads = rng.integers(0, 12, n).astype(float)
        loads[rng.integers(n)] += 1.0
        yield loads, rng.integers(0, 15, n), float(rng.integers(1, int(loads.sum()) + 1))


def least_cost(loads, sizes, tau):
    """Return the least cost, by trying every set of cells."""
    return min(
        sum(sizes[row] for row in rows)
        for n in range(len(loads) + 1)
        for rows in itertools.combinations(range(len(loads)), n)
        if sum(loads[row] for row in rows) >= tau
    )


def greedy_cost(loads, sizes, tau):
    """Return the cost of the greedy algorithm, by listing all of its candidates."""
    order = sorted((row for row in range(len(loads)) if loads[row] > 0), key=lambda row: sizes[row] / loads[row])
    small, costs = [], []
    for row in order:
        if sum(loads[one] for one in small) + loads[row] < tau:
            small.append(row)
        else:
            costs.append(sum(sizes[one] for one in small) + sizes[row])
    return min(costs)


def test_the_dynamic_program_finds_the_least_cost():
    for loads, sizes, tau in tables(effort(400, 4_000)):
        rows = select_dp(loads, sizes=sizes, tau=tau)
        assert loads[rows].sum() >= tau
        assert sizes[rows].sum() == least_cost(loads, sizes, tau)


def test_the_greedy_scan_returns_the_cheapest_of_its_candidates():
    worse = 0
    for loads, sizes, tau in tables(effort(400, 4_000), seed=1):
        rows = select_gr(loads, sizes=sizes, tau=tau)
        assert loads[rows].sum() >= tau
        assert sizes[rows].sum() == greedy_cost(loads, sizes, tau)
        worse += sizes[rows].sum() > least_cost(loads, sizes, tau)
    assert worse, "some table shows that the greedy scan is no exact algorithm"


def test_a_cell_after_the_first_candidate_may_complete_a_cheaper_one():
    # By size per load: 0, 1 (too much: a candidate of cost 12), 2 (small), 3 (completes 0 and 2, cost 9).
    loads, sizes = np.array([4.0, 10.0, 3.0, 3.0]), np.array([1, 11, 4, 4])
    assert select_gr(loads, sizes=sizes, tau=9.0).tolist() == [0, 2, 3]


def test_the_baselines_stop_at_the_first_prefix_that_reaches_tau():
    for loads, sizes, tau in tables(200, seed=2):
        rows = select_si(loads, sizes=sizes, tau=tau)
        last = rows[np.argmin(sizes[rows])]
        assert loads[rows].sum() >= tau
        left = np.setdiff1d(np.arange(len(loads)), rows)
        assert not len(left) or sizes[left].max() <= sizes[last]
        assert min(loads[rows].sum() - loads[row] for row in rows[sizes[rows] == sizes[last]]) < tau
        chosen = select_ra(loads, sizes=sizes, tau=tau, seed=7)
        assert loads[chosen].sum() >= tau
        assert chosen.tolist() == select_ra(loads, sizes=sizes, tau=tau, seed=7).tolist()
    many = np.ones(1_000)
    sizes = np.arange(1_000)
    assert select_si(many, sizes=sizes, tau=10.0).tolist() == list(range(990, 1_000))
    seeds = {tuple(select_ra(many, sizes=sizes, tau=10.0, seed=seed).tolist()) for seed in range(3)}
    assert len(seeds) == 3
    assert {len(one) for one in seeds} == {10}


@pytest.mark.parametrize("name", SELECTIONS)
def test_rounding_of_sums_never_keeps_a_selection_below_the_load_of_all_cells(name):
    rng = np.random.default_rng(3)
    for n in range(1, 60):
        loads, sizes = rng.random(n), rng.integers(1, 9, n)
        rows = selection_named(name)(loads, sizes=sizes, tau=float(loads.sum()))
        assert rows.tolist() == list(range(n))


def test_coarse_units_bound_the_memory_and_the_loss():
    rng = np.random.default_rng(4)
    loads, sizes = rng.integers(1, 50, 200).astype(float), rng.integers(1, 2_000, 200)
    tau = float(loads.sum() // 4)
    exact = select_dp(loads, sizes=sizes, tau=tau)
    coarse = select_dp(loads, sizes=sizes, tau=tau, most_bits=200 * 500)
    bound = sizes[select_gr(loads, sizes=sizes, tau=tau)].sum()
    unit = -(-200 * (bound + 1) // (200 * 500))
    assert unit > 1
    assert loads[coarse].sum() >= tau
    assert sizes[exact].sum() <= sizes[coarse].sum() < sizes[exact].sum() + unit * len(exact)


def test_cells_without_load_stay():
    loads, sizes = np.array([0.0, 2.0, 0.0, 2.0]), np.array([0, 5, 1, 6])
    assert select_dp(loads, sizes=sizes, tau=4.0).tolist() == [1, 3]
    assert select_gr(loads, sizes=sizes, tau=4.0).tolist() == [1, 3]


@pytest.mark.parametrize("name", SELECTIONS)
@pytest.mark.parametrize(
    ("loads", "sizes", "tau", "message"),
    [
        ([1.0, 2.0], [1], 1.0, "sizes must hold one size for each of 2 cells; got 1"),
        ([1.0, np.nan], [1, 1], 1.0, r"loads must be finite and 0 or more; got \[nan\]"),
        ([1.0, -2.0], [1, 1], 1.0, r"loads must be finite and 0 or more; got \[-2.0\]"),
        ([1.0, 2.0], [1, -1], 1.0, r"sizes must be finite and 0 or more; got \[-1\]"),
        ([1.0, 2.0], [1, 1], 3.5, "tau must be above 0 and at most the load of all cells; got 3.5"),
        ([1.0, 2.0], [1, 1], 0.0, "tau must be above 0 and at most the load of all cells; got 0.0"),
        ([1.0, 2.0], [1, 1], np.nan, "tau must be above 0 and at most the load of all cells; got nan"),
        ([], [], 1.0, "tau must be above 0 and at most the load of all cells; got 1.0"),
    ],
)
def test_what_no_selection_can_meet_is_refused(name, loads, sizes, tau, message):
    with pytest.raises(InvalidInput, match=message):
        SELECTIONS[name](np.array(loads, float), sizes=np.array(sizes, np.int64), tau=tau)


def test_an_unknown_selection_is_refused():
    with pytest.raises(InvalidInput, match="selection must be one of dp, gr, si, ra; got 'best'"):
        selection_named("best")
