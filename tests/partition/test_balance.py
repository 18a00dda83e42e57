"""Adjusted routings are more even, lose no match, and follow from their log alone."""

import base64
import itertools
import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from effort import effort
from nearcast import InvalidInput
from nearcast.errors import FormatError
from nearcast.model import Footprints
from nearcast.partition.balance.adjust import adjust, is_uneven
from nearcast.partition.balance.adjustment import Adjustment
from nearcast.partition.balance.cells import CellWork, Period, measure
from nearcast.partition.balance.even_cut import even_cut
from nearcast.partition.balance.policy import Balance
from nearcast.partition.balance.selection import SELECTIONS
from nearcast.partition.balance.steps import Cut, Move, Refit, Retire, Split, from_json, to_json
from nearcast.partition.balance.term_moves import applied, halves, move_terms
from nearcast.partition.base import Sample
from nearcast.partition.hash import HashPartitioner
from nearcast.partition.hybrid import HybridPartitioner
from nearcast.partition.load import CHECK, COMPARE, DELETE, HANDLE, INSERT
from nearcast.partition.masks import as_ints
from nearcast.partition.serialization import pack, unpack
from nearcast.partition.space_grid import CELLS, SpaceGridPartitioner
from nearcast.partition.space_kd import SpaceKdPartitioner
from nearcast.partition.space_rtree import SpaceRtreePartitioner
from term_samples import footprints_of, messages_of

PARTITIONERS = [HybridPartitioner(), SpaceGridPartitioner(), SpaceKdPartitioner(), SpaceRtreePartitioner()]
every_partitioner = pytest.mark.parametrize("partitioner", PARTITIONERS, ids=lambda one: one.name)


def world(n=600, n_messages=900, *, hot=(50.0, 50.0), share=0.0, seed=0, n_terms=40):
    """Return subscriptions and messages in a square of side 100; a share of both is near one point."""
    rng = np.random.default_rng(seed)

    def points(count):
        spread = rng.uniform(0, 100, (count, 2))
        near = np.array(hot) + rng.normal(0, 1.5, (count, 2))
        return np.where(rng.random((count, 1)) < share, near, spread)

    def terms(most):
        return {int(term) % n_terms for term in rng.zipf(1.4, rng.integers(1, most + 1))}

    at, half = points(n), rng.uniform(0.2, 4.0, (n, 1))
    branches = [[terms(3)] if rng.random() < 0.5 else [{one} for one in terms(3)] for _ in range(n)]
    footprints = footprints_of(*branches, boxes=np.concatenate([at - half, at + half], axis=1))
    return footprints, messages_of(*[terms(5) for _ in range(n_messages)], at=points(n_messages))


def fitted(partitioner, *, n_shards, seed):
    """Return a routing fitted to an even world."""
    routing = partitioner.fit(Sample(*world(seed=seed)), n_shards=n_shards)
    if partitioner.name == "space_grid":  # its cells are scattered, and so is each hot spot: give each shard columns
        columns = np.arange(CELLS, dtype=np.int32) * n_shards // CELLS
        return routing.reassigned(np.tile(columns, CELLS))
    return routing


def drifted(partitioner, *, n_shards=4, hot=(20.0, 70.0), seed=0):
    """Return a routing fitted to an even world, and a period of one with a hot spot."""
    routing = fitted(partitioner, n_shards=n_shards, seed=seed)
    footprints, messages = world(hot=hot, share=0.6, seed=seed + 1)
    deleted, _ = world(n=50, seed=seed + 2)
    return routing, Period.of(messages, footprints, are_new=np.arange(len(footprints)) % 3 == 0, deleted=deleted)


def loads_by_definition(routing, period):
    """Return definition 1 of each shard, from the shards of single messages and subscriptions."""
    placed, routed = as_ints(routing.place(period.footprints)), as_ints(routing.route(period.messages))
    removed = as_ints(routing.place(period.deleted))
    loads = []
    for shard in range(routing.n_shards):
        messages = sum(mask >> shard & 1 for mask in routed)
        stored = sum(mask >> shard & 1 for mask in placed)
        new = sum(mask >> shard & 1 for mask, is_new in zip(placed, period.are_new, strict=True) if is_new)
        gone = sum(mask >> shard & 1 for mask in removed)
        loads.append(CHECK * messages * stored + HANDLE * messages + INSERT * new + DELETE * gone)
    return loads


def check_matches_meet(routing, footprints, messages):
    """Assert that every message shares a shard with the subscriptions that it touches; return how many pairs do."""
    placed, routed = as_ints(routing.place(footprints)), as_ints(routing.route(messages))
    n_met = 0
    for (footprint, home), (document, seen) in itertools.product(
        zip(footprints, placed, strict=True), zip(messages.documents, routed, strict=True)
    ):
        if footprint.may_match(*document.location, document.units.keys()):
            assert home & seen
            n_met += 1
    return n_met


@every_partitioner
def test_loads_of_shards_are_definition_1_and_those_of_cells_add_up_to_them(partitioner):
    routing, period = drifted(partitioner)
    table = measure(routing.fixed(), period)
    assert np.allclose(table.shard_loads, loads_by_definition(routing.fixed(), period))
    sums = np.bincount(table.shards, weights=table.loads, minlength=4)
    assert np.allclose(sums, table.shard_loads)
    assert (table.loads >= 0).all()
    assert table.sizes.sum() >= period.sizes.sum(), "each subscription is in a cell at least"
    assert table.counts.messages.sum() >= len(period.messages)


def test_a_table_of_cells_by_hand():
    boxes = np.array([[0.0, 0, 1, 1], [0, 0, 9, 1], [8, 0, 9, 1]])
    footprints, messages = (
        footprints_of([{1}], [{1}], [{2}], boxes=boxes),
        messages_of({1}, {1}, {2}, at=[(1, 1), (2, 1), (8, 0)]),
    )
    tree = SpaceKdPartitioner().fit(Sample.none(), n_shards=2).tree.cut(0, axis=0, value=5.0)
    routing = replace(
        SpaceKdPartitioner().fit(Sample.none(), n_shards=2), tree=tree, assignment=np.array([1, 0], np.int32)
    )
    period = Period.of(
        messages, footprints, sizes=np.array([10, 20, 40]), are_new=np.array([True, False, False]),
        deleted=footprints_of([{3}], boxes=boxes[2:]),
    )  # fmt: skip
    table = measure(routing, period)
    assert table.shards.tolist() == [1, 0]
    assert [column.tolist() for column in table.counts[:4]] == [[2, 1], [2, 2], [1, 0], [0, 1]]
    assert [column.tolist() for column in table.in_shards[:4]] == [[1, 2], [2, 2], [0, 1], [1, 0]]
    assert table.sizes.tolist() == [30, 60]
    assert table.shard_loads.tolist() == [CHECK * 2 + HANDLE + DELETE, CHECK * 4 + HANDLE * 2 + INSERT]


@every_partitioner
def test_a_sample_counts_as_what_it_stands_for(partitioner):
    routing, period = drifted(partitioner)

    def thrice(footprints):
        return footprints.take(np.repeat(np.arange(len(footprints)), 3))

    footprints, sizes, are_new = thrice(period.footprints), np.repeat(period.sizes, 3), np.repeat(period.are_new, 3)
    whole = Period.of(
        period.messages, footprints, sizes=sizes, are_new=are_new, deleted=thrice(period.deleted)
    )  # fmt: skip
    known, sampled = (measure(routing.fixed(), one) for one in (whole, period._replace(weight=3)))
    assert [column.tolist() for column in known.counts[:4]] == [column.tolist() for column in sampled.counts[:4]]
    assert [column.tolist() for column in known.in_shards[:4]] == [
        column.tolist() for column in sampled.in_shards[:4]
    ]
    assert known.sizes.tolist() == sampled.sizes.tolist()
    every, some = (adjust(routing, one).adjustment for one in (whole, period._replace(weight=3)))
    assert every == some


@every_partitioner
def test_the_first_term_may_count_the_pairs_that_an_index_compares(partitioner):
    routing, whole = drifted(partitioner)
    routing = routing.fixed()
    period = Period.of(whole.messages.slice(0, 300), whole.footprints.take(np.arange(200)))
    rows = posted_rows(period)
    assert period.compared is None
    counting = Period.of(period.messages, period.footprints, counts_pairs=True)
    expected = [
        sum(
            document.units.keys() >= {term} and footprint.box.contains(*document.location)
            for footprint, terms in zip(period.footprints, rows, strict=True)
            for term in terms
        )
        for document in period.messages.documents
    ]
    assert counting.compared.tolist() == expected
    table = measure(routing, counting)
    assert np.isclose(table.in_shards.compared.sum(), sum(expected))
    assert np.allclose(
        np.bincount(table.shards, weights=table.counts.compared, minlength=4), table.in_shards.compared
    )
    if partitioner.name != "hybrid":  # each message is in one shard, and so are its pairs
        shards = np.log2(np.array(as_ints(routing.route(period.messages)))).astype(int)
        assert np.allclose(table.in_shards.compared, np.bincount(shards, weights=expected, minlength=4))
    loads = COMPARE * table.in_shards.compared + HANDLE * table.in_shards.messages
    assert np.allclose(table.shard_loads, loads)
    assert np.allclose(np.bincount(table.shards, weights=table.loads, minlength=4), loads)
    assert max(adjust(routing, counting).adjustment.loads_after) < 0.85 * loads.max()
    thrice = measure(routing, counting._replace(weight=3, message_weight=2))
    assert np.allclose(thrice.counts.compared, 6 * table.counts.compared)
    assert thrice.counts.messages.tolist() == (2 * table.counts.messages).tolist()


def posted_rows(period):
    """Return, for each subscription, the rarest term of each of its branches; ties go to the least term."""
    held = Counter(term for document in period.messages.documents for term in document.units)
    return [
        [min(branch, key=lambda term: (held[term], term)) for branch in footprint.branches]
        for footprint in period.footprints
    ]


@every_partitioner
@pytest.mark.parametrize("selection", SELECTIONS)
def test_an_adjustment_makes_shards_more_even_and_loses_no_match(partitioner, selection):
    routing, period = drifted(partitioner)
    before = loads_by_definition(routing.fixed(), period)
    made = adjust(routing, period, selection=selection)
    after = loads_by_definition(made.routing, period)
    assert max(after) < 0.85 * max(before)
    assert np.allclose(made.adjustment.loads_before, before)
    assert np.allclose(made.adjustment.loads_after, after)
    assert check_matches_meet(made.routing, period.footprints, period.messages) > 1_000
    late, unseen = world(share=0.3, seed=99, n_terms=90)  # not what the routing was fitted or adjusted to
    assert check_matches_meet(made.routing, late, unseen) > 500


@every_partitioner
def test_a_drift_is_followed_step_after_step(partitioner):
    routing = fitted(partitioner, n_shards=3, seed=5)
    n_adjusted = 0
    for turn in range(effort(4, 12)):
        footprints, messages = world(
            n=300, n_messages=400, hot=(10.0 + 25 * turn % 90, 80.0 - 20 * turn % 80), share=0.7, seed=turn
        )
        made = adjust(routing, Period.of(messages, footprints))
        if made is not None:
            routing = made.routing
            n_adjusted += 1
        check_matches_meet(routing, footprints, messages)
    assert n_adjusted > 1


@every_partitioner
def test_a_decision_is_replayed_from_its_log(partitioner):
    routing, period = drifted(partitioner)
    made = adjust(routing, period)
    logged = Adjustment.from_json(made.adjustment.to_json())
    assert logged == made.adjustment
    again = logged.replay(unpack(pack(routing.fixed())))
    assert pack(again) == pack(made.routing)
    assert pack(unpack(pack(made.routing))) == pack(made.routing)
    assert adjust(routing, period).adjustment == made.adjustment, "the same input gives the same decision"


@every_partitioner
def test_what_moves_is_counted(partitioner):
    routing, period = drifted(partitioner)
    made = adjust(routing, period)
    old, new = as_ints(routing.fixed().place(period.footprints)), as_ints(made.routing.place(period.footprints))
    coming = [(after & ~before).bit_count() for before, after in zip(old, new, strict=True)]
    assert made.adjustment.moved_subscriptions == sum(coming) > 0
    assert made.adjustment.moved_bytes == sum(n * size for n, size in zip(coming, period.sizes.tolist(), strict=True))


@every_partitioner
def test_even_shards_are_left_alone(partitioner):
    routing, period = drifted(partitioner)
    loads = measure(routing.fixed(), period).shard_loads
    assert adjust(routing, period, sigma=float(loads.max() / loads.min())) is None
    assert is_uneven(np.array([1.0, 2.0]), sigma=1.9)
    assert not is_uneven(np.array([1.0, 2.0]), sigma=2.0)
    assert not is_uneven(np.zeros(2), sigma=1.0)
    assert adjust(routing, Period.of(period.messages.slice(0, 0), Footprints.joined([]))) is None


def test_a_leaf_that_is_one_point_is_never_cut():
    footprints, messages = footprints_of(*[[{1}]] * 9), messages_of(*[{1}] * 9)
    routing = SpaceKdPartitioner().fit(Sample.none(), n_shards=2)
    period = Period.of(messages, footprints)
    work = CellWork.of(routing, period)
    assert even_cut(0, work.points(np.array([0]))) is None
    assert adjust(routing, period) is None, "nothing makes one cell more even"


def test_a_cut_divides_the_load_where_it_crosses_fewer_boxes():
    rng = np.random.default_rng(3)
    at = rng.uniform(0, 100, (400, 2))
    half = np.array([40.0, 0.5])
    wide = np.concatenate([at - half, at + half], axis=1)
    period = Period.of(messages_of(*[{1}] * 400, at=at), footprints_of(*[[{1}]] * 400, boxes=wide))
    work = CellWork.of(SpaceKdPartitioner().fit(Sample.none(), n_shards=2), period)
    cut = even_cut(0, work.points(np.array([0])))
    assert cut.axis == 1
    after = applied(work, cut).table()
    assert np.allclose(after.counts.messages, 200, atol=20)
    assert after.shards.tolist() == [0, 0]


@every_partitioner
def test_cutting_and_splitting_leave_all_shards_as_they_are(partitioner):
    routing, period = drifted(partitioner)
    routing = routing.fixed()
    if not hasattr(routing, "cut"):
        with pytest.raises(InvalidInput, match="routing must divide space by a tree to be cut; got"):
            Cut(0, 0, 50.0).apply(routing)
        return
    work = CellWork.of(routing, period)
    for leaf, axis, value in ((0, 0, 30.0), (1, 1, 60.0), (0, 1, 40.0)):
        work = applied(work, Cut(leaf, axis, value))
    cut = work.routing
    assert as_ints(cut.place(period.footprints)) == as_ints(routing.place(period.footprints))
    assert as_ints(cut.route(period.messages)) == as_ints(routing.route(period.messages))
    again = CellWork.of(cut, period).table()
    assert [column.tolist() for column in again.counts[:4]] == [column.tolist() for column in work.table().counts[:4]]
    assert again.sizes.tolist() == work.table().sizes.tolist()


# -- phase I ------------------------------------------------------------------------------------------------------


def uneven_terms(seed=0, n=300):
    """Return a hybrid routing with one leaf and shard 1 idle, and a period in which rare terms have many subscriptions."""
    rng = np.random.default_rng(seed)
    rare = [[{100 + int(rng.integers(20))}] for _ in range(n)]
    frequent = [[{int(rng.integers(3))}] for _ in range(20)]
    messages = [
        {int(rng.integers(3)), int(rng.integers(3)), *({100 + int(rng.integers(20))} if rng.random() < 0.1 else ())}
        for _ in range(n)
    ]
    sample = Sample(footprints_of(*rare, *frequent), messages_of(*messages))
    routing = HybridPartitioner().fit(sample, n_shards=1).fixed()
    routing = replace(routing, n_shards=2, loads=np.zeros(2))
    return routing, Period.of(sample.messages, sample.footprints)


def test_terms_move_where_that_lowers_the_total_load(monkeypatch):
    monkeypatch.setattr("nearcast.partition.load.CHECK", 1.0)
    monkeypatch.setattr("nearcast.partition.balance.cells.CHECK", 1.0)
    monkeypatch.setattr(f"{__name__}.CHECK", 1.0)
    for seed in range(effort(5, 50)):
        routing, period = uneven_terms(seed)
        work, steps, _ = move_terms(CellWork.of(routing, period), source=0, target=1)
        before, after = (loads_by_definition(one, period) for one in (routing, work.routing))
        assert isinstance(steps[0], Split)
        assert sum(after) < sum(before)
        assert max(after) <= max(before)
        assert check_matches_meet(work.routing, period.footprints, period.messages) > 100
        # Of the two halves that lower the load, the one with fewer bytes has moved.
        terms = np.unique(period.footprints.term_ids)
        pieces = halves(period.messages, terms, np.bincount(np.searchsorted(terms, period.footprints.term_ids)))
        lowering = {}
        for piece in (0, 1):
            split = Split(0, tuple(terms[pieces == piece].tolist()), 0, 1)
            loads = loads_by_definition(split.apply(routing), period)
            if sum(loads) < sum(before) and max(loads) <= max(before):
                moved = np.isin(period.footprints.term_ids, split.terms)
                lowering[split] = period.sizes[moved].sum()
        assert steps[0] == min(lowering, key=lowering.get)


def test_terms_stay_where_moving_them_would_raise_the_total_load():
    routing, period = uneven_terms()  # CHECK is small here: what counts is that both shards handle a message
    work, steps, _ = move_terms(CellWork.of(routing, period), source=0, target=1)
    assert steps == []
    assert work.routing is routing


def test_cells_of_one_leaf_are_merged_where_that_lowers_the_total_load():
    published = [{1, 2}] * 30 + [{7}] * 60 + [{8}] * 200
    messages = messages_of(*published, at=[(10, 0)] * 90 + [(90, 0)] * 200)
    footprints = footprints_of([{1}], [{2}], [{1}, {2}], boxes=np.tile([0.0, -1.0, 20.0, 1.0], (3, 1)))
    routing = HybridPartitioner().fit(Sample(footprints, messages), n_shards=1).fixed()
    routing = replace(routing, n_shards=3, loads=np.zeros(3)).cut(0, axis=0, value=50.0)
    routing = routing.split(0, np.array([1]), shard=1).reassigned(np.array([0, 1, 1], np.int32))
    period = Period.of(messages, footprints)  # shard 1 has the east, and term 1 of the west; shard 0 all of the west
    work, steps, _ = move_terms(CellWork.of(routing, period), source=1, target=2)
    assert steps == [], "shard 2 has no cell of the west"
    work, steps, _ = move_terms(CellWork.of(routing, period), source=1, target=0)
    assert steps == [Move((2,), 1, 0)]
    before, after = (loads_by_definition(one, period) for one in (routing, work.routing))
    assert sum(after) < sum(before) - 29, "30 messages are handled once"


def test_terms_that_messages_share_stay_together():
    messages = messages_of({1, 2}, {1, 2}, {5, 6}, {5, 6}, {9})
    assert halves(messages, np.array([1, 2, 5, 6]), np.ones(4, np.int64)).tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])


# -- steps --------------------------------------------------------------------------------------------------------


def test_steps_say_what_they_do():
    steps = [Cut(3, 0, 1.5), Split(2, (5, 6), 0, 1), Move((4, 7), 2, 0), Move((4,), 2, 0)]
    assert [from_json(json.loads(json.dumps(to_json(step)))) for step in steps] == steps
    assert [str(step) for step in steps] == [
        "cut leaf 3 at x = 1.5",
        "split 2 terms off cell 2, from shard 0 to 1",
        "move 2 cells from shard 2 to 0",
        "move 1 cell from shard 2 to 0",
    ]
    adjustment = Adjustment(tuple(steps), "gr", 1.2, (4.0, 1.0), (3.0, 2.0), 1_000, 250_000)
    assert str(adjustment) == (
        "busiest over idlest shard: 4.00, after 1.50; 1,000 subscriptions (250,000 bytes) move in 4 steps"
    )


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (Move((0, 4_096), 0, 1), r"cells must be between 0 and 4095; got \[4096\]"),
        (Move((-1,), 0, 1), r"cells must be between 0 and 4095; got \[-1\]"),
        (Move((0,), 0, 4), "target must be between 0 and 3; got 4"),
        (Move((0,), -1, 2), "source must be between 0 and 3; got -1"),
        (Split(0, (1,), 0, 1), "routing must have cells by terms to be split; got 'SpaceGridRouting'"),
    ],
)
def test_a_step_that_does_not_fit_a_routing_is_refused(step, message):
    routing = SpaceGridPartitioner().fit(Sample(*world()), n_shards=4)
    with pytest.raises(InvalidInput, match=message):
        step.apply(routing)


def test_a_decision_about_another_routing_is_refused():
    routing, period = drifted(SpaceGridPartitioner())
    made = adjust(routing, period)
    with pytest.raises(InvalidInput, match=r"cells must be in shard \d; got"):
        made.adjustment.replay(made.routing)
    hybrid = HybridPartitioner().fit(Sample(*world()), n_shards=1).fixed()
    split = replace(hybrid, n_shards=2).split(0, np.array([1]), shard=1)
    with pytest.raises(InvalidInput, match="cell must be the only cell of its leaf; got 0"):
        Split(0, (2,), 0, 1).apply(split)
    with pytest.raises(InvalidInput, match="leaf must be between 0 and 0; got 1"):
        Cut(1, 0, 0.0).apply(split)
    with pytest.raises(InvalidInput, match="axis must be 0 for x or 1 for y; got 2"):
        Cut(0, 2, 0.0).apply(split)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"steps": [], "selection": "gr", "sigma": "much", "loads_before": [], "loads_after": [], '
        '"moved_subscriptions": 0, "moved_bytes": 0}',
    ],
)
def test_what_is_no_adjustment_is_refused(text):
    with pytest.raises(FormatError, match="an adjustment must be JSON with its fields and steps"):
        Adjustment.from_json(text)


@pytest.mark.parametrize(
    "content",
    [
        None,
        {},
        {"step": "jump"},
        {"step": "cut", "leaf": 0, "axis": 0},
        {"step": "cut", "leaf": 0.5, "axis": 0, "value": 1.0},
        {"step": "cut", "leaf": True, "axis": 0, "value": 1.0},
        {"step": "cut", "leaf": 0, "axis": 0, "value": "west"},
        {"step": "move", "cells": 3, "source": 0, "target": 1},
        {"step": "move", "cells": ["3"], "source": 0, "target": 1},
        {"step": "move", "cells": [3], "source": 0, "target": 1, "by": "hand"},
        {"step": "refit", "routing": 3},
        {"step": "retire", "cells": [3]},
    ],
)
def test_what_is_no_step_is_refused(content):
    with pytest.raises(
        FormatError, match="a step must be one of cut, split, move, refit, retire with its fields; got"
    ):
        from_json(content)


def test_a_transition_is_refused_where_it_cannot_begin_or_end():
    footprints, messages = world(n=10, n_messages=10)
    routing = SpaceGridPartitioner().fit(Sample(footprints, messages), n_shards=2)
    with pytest.raises(InvalidInput, match="routing must be a transition to end; got 'SpaceGridRouting'"):
        Retire().apply(routing)
    fresh = base64.b64encode(pack(routing)).decode()
    transition = Refit(fresh, since=7).apply(routing)
    assert transition.since == 7 and pack(Retire().apply(transition)) == pack(transition.new)
    with pytest.raises(InvalidInput, match="routing must be among 2 shards, and no transition"):
        Refit(fresh).apply(transition)
    with pytest.raises(InvalidInput, match="routing must be a table of cells and their shards"):
        Move((0,), 0, 1).apply(transition)
    for broken in ("no base 64", fresh[:8]):
        with pytest.raises(FormatError):
            Refit(broken).apply(routing)


def test_what_cannot_be_adjusted_is_refused():
    footprints, messages = world(n=10, n_messages=10)
    period = Period.of(messages, footprints)
    routing = SpaceGridPartitioner().fit(Sample(footprints, messages), n_shards=2)
    hashed = HashPartitioner().fit(Sample(footprints, messages), n_shards=2)
    with pytest.raises(InvalidInput, match="routing must be a table of cells and their shards; got 'HashRouting'"):
        adjust(hashed, period)
    with pytest.raises(InvalidInput, match=r"sigma must be 1 or more; got 0\.9"):
        adjust(routing, period, sigma=0.9)
    with pytest.raises(InvalidInput, match="sigma must be 1 or more; got nan"):
        adjust(routing, period, sigma=float("nan"))
    with pytest.raises(InvalidInput, match="selection must be one of dp, gr, si, ra; got 'all'"):
        adjust(routing, period, selection="all")
    with pytest.raises(InvalidInput, match="sizes must hold one value for each of 10 subscriptions; got 9"):
        Period.of(messages, footprints, sizes=np.ones(9, np.int64))
    with pytest.raises(InvalidInput, match="weight must be 1 or more; got 0"):
        Period.of(messages, footprints, weight=0)
    with pytest.raises(InvalidInput, match="message_weight must be 1 or more; got -1"):
        Period.of(messages, footprints, message_weight=-1)
    with pytest.raises(InvalidInput, match="are_new must hold one value for each of 10 subscriptions; got 1"):
        Period.of(messages, footprints, are_new=np.ones(1, np.bool_))


@every_partitioner
def test_an_adjustment_moves_no_more_than_it_may(partitioner):
    routing, period = drifted(partitioner)
    whole, part = adjust(routing, period), adjust(routing, period, most_moved=0.05)
    assert whole is not None
    assert part is not None
    assert whole.adjustment.moved_bytes > 0.05 * period.sizes.sum() >= part.adjustment.moved_bytes > 0
    assert max(part.adjustment.loads_after) < max(part.adjustment.loads_before)
    assert pack(part.adjustment.replay(routing)) == pack(part.routing)
    for share in (0.0, 1.1):
        with pytest.raises(InvalidInput, match="most_moved must be"):
            adjust(routing, period, most_moved=share)


def test_leaves_that_boxes_cover_are_not_cut():
    footprints, messages = world(hot=(20.0, 70.0), share=0.6)
    wide = replace(footprints, boxes=np.tile([[-1.0, -1.0, 101.0, 101.0]], (len(footprints), 1)))
    routing = fitted(SpaceKdPartitioner(), n_shards=4, seed=0)
    made = adjust(routing, Period.of(messages, wide))
    assert made is None or made.routing.tree.n_leaves <= 2 * 16 + 1


def test_the_share_that_may_move_is_checked():
    assert Balance(most_moved=0.5).most_moved == 0.5
    for share in (0, 1.5, float("nan")):
        with pytest.raises(InvalidInput, match="most_moved must be a number above 0 and at most 1"):
            Balance(most_moved=share)
