"""Compiled filter programs decide as the reference does, for every form of test."""

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from effort import effort
from nearcast._jit import Arena
from nearcast.model import Matches, Message, MessageBatch
from nearcast.model._kernels.program_layout import SIDE_BY_SIDE
from nearcast.model.attributes import Attributes
from nearcast.model.expression import Expression, parse
from nearcast.model.filter_columns import FilterPrograms
from nearcast.model.filter_program import IN_ITS_REGION, Predicate, compile_test, holds
from nearcast.model.filter_program import test_of_expression as of_expression
from nearcast.model.filter_program import test_of_where as of_where
from nearcast.model.filters import Filters
from nearcast.model.where import parse_where
from nearcast.space import Box, Circle, Polygon
from nearcast.space.region_columns import RegionColumns
from nearcast.testing import strategies
from nearcast.text import SIMPLE

SCORING = strategies.scoring()
ATTRIBUTES = Attributes.of(strategies.ATTRIBUTES)
REGIONS = [Box(0, 0, 2, 9), Circle((2, 2), 2.7)]


def leaves():
    term_id = SCORING.vocabulary.term_id
    return st.one_of(
        strategies.conditions().map(lambda c: of_where(parse_where(c), ATTRIBUTES, SCORING.hash_key)),
        strategies.requirements().map(lambda e: of_expression(parse(e, analyzer=SIMPLE), term_id)),
        st.just(IN_ITS_REGION),
    )


def trees():
    return st.recursive(
        leaves(),
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=1, max_size=3)).map(
                lambda pair: Predicate(pair[0], tuple(pair[1]))
            ),
            inner.map(lambda part: Predicate("NOT", (part,))),
        ),
        max_leaves=8,
    )


def messages():
    fields = st.tuples(strategies.message_fields(strategies.PLANE), strategies.attribute_values())
    return st.lists(fields, min_size=1, max_size=6).map(
        lambda drawn: MessageBatch.from_messages(
            [Message(i, **own, attributes=values) for i, (own, values) in enumerate(drawn)],
            vocabulary=SCORING.vocabulary,
            attributes=ATTRIBUTES,
        )
    )


def all_pairs(n_rows, slots):
    rows = np.repeat(np.arange(n_rows), len(slots))
    return Matches(rows, np.tile(np.array(slots, np.int32), n_rows), np.ones(len(rows)))


@settings(max_examples=effort(120, 10_000))
@given(st.lists(st.tuples(trees(), st.sampled_from(REGIONS)), min_size=1, max_size=4), messages())
def test_kernels_decide_as_the_reference(tests, batch):
    filters = Filters(Arena(), SCORING.space)
    slots = np.arange(1, 1 + len(tests), dtype=np.int32)  # slot 0 has no program
    made = FilterPrograms.of(
        {row: {"where": tree, "region": tree} for row, (tree, _) in enumerate(tests)},
        RegionColumns.of([region for _, region in tests]),
    )
    filters.insert(slots, made)
    batch.prepare_order()
    found = filters.passing(all_pairs(len(batch), [0, *slots.tolist()]), batch)
    passing = set(zip(found.rows.tolist(), found.slots.tolist(), strict=True))
    for row, document in enumerate(batch.documents):
        assert (row, 0) in passing
        for slot, (tree, region) in zip(slots.tolist(), tests, strict=True):
            expected = holds(tree, document, lambda d, r=region: SCORING.space.covers(r, d.location))
            assert ((row, slot) in passing) == expected


@given(st.sampled_from(REGIONS), messages())
def test_a_program_without_words_tests_the_region(region, batch):
    programs = FilterPrograms.of({0: {"region": IN_ITS_REGION}}, RegionColumns.of([region]))
    assert len(programs.words) == 0
    filters = Filters(Arena(), SCORING.space)
    for slot in (0, 3):
        filters.insert(np.array([slot], np.int32), programs)
    filters.delete(np.array([3], np.int32))
    found = filters.passing(all_pairs(len(batch), [0]), batch)
    covers = [SCORING.space.covers(region, document.location) for document in batch.documents]
    assert found.rows.tolist() == np.flatnonzero(covers).tolist()
    assert len(filters) == 1 and len(filters.passing(all_pairs(len(batch), [3]), batch).rows) == len(batch)


@settings(max_examples=effort(150, 10_000))
@given(strategies.rich_expressions(), messages())
def test_the_terms_of_a_branch_and_what_is_beyond_them_decide_an_expression(text, batch):
    term_id, expression = SCORING.vocabulary.term_id, parse(text, analyzer=SIMPLE)
    assume(not expression.is_plain)
    beyond, whole = (of_expression(one, term_id) for one in (expression.beyond_terms(), expression))
    branches = [set(map(term_id, branch)) for branch in expression.branches(limit=1000)]
    assert len(compile_test(beyond)) <= len(compile_test(whole))
    batch.prepare_order()
    for document in batch.documents:
        has_branch = any(branch <= document.units.keys() for branch in branches)
        assert (has_branch and holds(beyond, document)) == holds(whole, document)


def star(rng, n):
    """Return a jagged polygon around (2, 2)."""
    angles = np.sort(rng.uniform(0, 2 * np.pi, n))
    radii = rng.uniform(0.5, 2.0, n)
    return Polygon(
        list(zip((2 + radii * np.cos(angles)).tolist(), (2 + radii * np.sin(angles)).tolist(), strict=True))
    )


def test_pairs_of_several_blocks_pass_as_each_does_alone():
    rng = np.random.default_rng(4)
    regions = [[star(rng, 60), Circle((2, 2), 1.2), None][i % 3] for i in range(40)]
    excludes = of_expression(parse("NOT a", analyzer=SIMPLE), SCORING.vocabulary.term_id)
    tests = {}
    for row, region in enumerate(regions):
        inside = {"region": IN_ITS_REGION} if region else {}
        tests[row] = inside | ({"require": excludes} if row % 4 == 0 else {})
    tests = {row: own for row, own in tests.items() if own}
    filters = Filters(Arena(), SCORING.space)
    filters.insert(np.arange(len(regions), dtype=np.int32), FilterPrograms.of(tests, RegionColumns.of(regions)))
    points = rng.uniform(0, 4, (100, 2)).tolist()
    texts = rng.choice(["a b", "b c", "a"], len(points)).tolist()
    batch = MessageBatch.from_messages(
        [Message(i, (x, y), text) for i, ((x, y), text) in enumerate(zip(points, texts, strict=True))],
        vocabulary=SCORING.vocabulary,
    )
    found = filters.passing(all_pairs(len(batch), range(len(regions))), batch)
    expected = [
        (row, slot)
        for row, document in enumerate(batch.documents)
        for slot, region in enumerate(regions)
        if (region is None or SCORING.space.covers(region, document.location))
        and (slot % 4 or holds(excludes, document))
    ]
    assert list(zip(found.rows.tolist(), found.slots.tolist(), strict=True)) == expected
    assert 0 < len(expected) < len(batch) * len(regions)


@given(trees())
def test_jumps_go_forward(tree):
    words, at, starts = compile_test(tree), 0, []
    while at < len(words):
        starts.append(at)
        at += 3 + (words[at] >> 32)
    assert at == len(words)
    for start in starts:
        for jump in words[start + 1 : start + 3]:
            assert jump < 0 or (jump > start and jump in starts)


def test_programs_are_deleted_and_their_room_is_reused():
    filters, batch = (
        Filters(Arena(), SCORING.space),
        MessageBatch.from_messages([Message("m", (0, 0), "a")], vocabulary=SCORING.vocabulary, attributes=ATTRIBUTES),
    )
    never = {"where": of_where(parse_where("price > 1"), ATTRIBUTES, SCORING.hash_key)}
    for turn in range(200):
        slots = np.array([turn % 3, 3 + turn % 2], np.int32)
        filters.insert(slots, FilterPrograms.of({0: never, 1: never}, RegionColumns.without(2)))
        assert len(filters) == 2 and len(filters.passing(all_pairs(1, slots.tolist()), batch).slots) == 0
        filters.delete(slots)
        assert len(filters) == 0 and len(filters.passing(all_pairs(1, slots.tolist()), batch).slots) == 2
    assert len(filters.arrays.words) < 200


def test_an_arena_without_filters_stays_as_it_is():
    arena = Arena()
    filters = Filters(arena, SCORING.space)
    filters.insert(np.zeros(1, np.int32), FilterPrograms.of({}, RegionColumns.without(1)))
    filters.delete(np.zeros(1, np.int32))
    assert not list(arena.names) and not filters.have_phrases


@settings(max_examples=effort(200, 5_000))
@given(st.lists(st.sampled_from("ab"), min_size=1, max_size=6), st.lists(st.sampled_from("abc"), max_size=40))
def test_a_phrase_with_repetitions_is_found_where_it_stands(phrase, terms):
    test = of_expression(Expression("PHRASE", phrase=tuple(phrase)), SCORING.vocabulary.term_id)
    batch = MessageBatch.from_messages([Message("m", (0, 0), " ".join(terms))], vocabulary=SCORING.vocabulary)
    filters = Filters(Arena(), SCORING.space)
    filters.insert(np.zeros(1, np.int32), FilterPrograms.of({0: {"require": test}}, RegionColumns.without(1)))
    expected = "".join(phrase) in "".join(terms)
    assert len(filters.passing(all_pairs(1, [0]), batch).slots) == expected
    assert holds(test, batch.documents[0]) == (expected if len(phrase) > 1 else phrase[0] in terms)


def test_a_search_for_a_phrase_of_equal_terms_takes_linear_time():
    compared = 0

    class Term(int):
        __hash__ = int.__hash__

        def __eq__(self, other):
            nonlocal compared
            compared += 1
            return int(self) == int(other)

        def __ne__(self, other):
            return not self == other

    n = 1000
    test = Predicate("TEST", code=SIDE_BY_SIDE, operands=(*[1] * n, 2))
    document = MessageBatch.from_messages([Message("m", (0, 0), "")], vocabulary=SCORING.vocabulary).documents[0]
    assert not holds(test, document._replace(order=tuple(map(Term, [1] * 5 * n))))
    assert compared < 20 * n
