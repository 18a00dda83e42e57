"""Does the roster know who sits where, whatever came and went?"""

import random

import numpy as np
import pytest

import nearcast as nc
from nearcast.engine.directory import Address, Directory
from nearcast.engine.roster import Roster
from nearcast.model import Cohort
from nearcast.testing import strategies as world


def nearest(id_, k=1):
    return nc.NearestSubscription(id_, location=(k % 8, 0), keywords=["a", f"w{id_}"], k=k)


@pytest.mark.parametrize("seed", range(6))
def test_whoever_was_seated_is_found(seed):
    rng = random.Random(seed)
    roster, seated = Roster(nc.NearestSubscription), {}
    for round_ in range(60):
        cohort = Cohort.of(
            [nearest(rng.choice([f"s{round_}.{i}", 1000 * round_ + i]), 1 + i) for i in range(rng.randint(1, 60))],
            world.meaning(),
        )
        slots = roster.seat(cohort, np.full(len(cohort), round_))
        assert len(set(slots.tolist())) == len(slots) and not set(slots.tolist()) & set(seated)
        seated |= {slot: (s, round_) for slot, s in zip(slots.tolist(), cohort.subscriptions, strict=True)}
        leaving = rng.sample(sorted(seated), rng.randint(0, len(seated)))
        roster.leave(np.array(leaving, dtype=np.int32))
        for slot in leaving:
            del seated[slot]
        assert len(roster) == len(seated)
        assert roster.taken().tolist() == sorted(seated)
        asked = np.array(rng.choices(sorted(seated), k=20) if seated else [], dtype=np.int32)
        if seated:
            assert roster.ids(asked) == [seated[slot][0].id for slot in asked.tolist()]
            assert roster.names(asked).to_pylist() == [str(seated[slot][0].id) for slot in asked.tolist()]
            assert roster.sinces(asked).tolist() == [seated[slot][1] for slot in asked.tolist()]
            assert roster.subscription(int(asked[0])) == seated[int(asked[0])][0]
    assert roster._n_slots <= 60 * 60
    assert roster._n_places <= 2 * len(roster) + 1024 + 60


def test_what_left_is_not_kept_for_ever():
    roster = Roster(nc.NearestSubscription)
    for round_ in range(200):
        slots = roster.seat(Cohort.of([nearest(f"{round_}.{i}") for i in range(20)], world.meaning()), np.zeros(20))
        roster.leave(slots)
    assert roster._n_slots == 20
    assert sum(len(chunk) for chunk in roster._chunks) <= 1100


def test_an_address_survives_packing():
    directory = Directory()
    directory.put(["a", 7], 3, "social", np.array([0, 2_000_000_000], dtype=np.int32))
    assert directory["a"] == Address(3, "social", 0)
    assert directory[7] == Address(3, "social", 2_000_000_000)
    assert directory.known(["b", 7]) == [7]
    assert directory.pop([7]) == {(3, "social"): [(7, 2_000_000_000)]}
    with pytest.raises(nc.UnknownSubscription):
        directory[7]
    with pytest.raises(nc.UnknownSubscription):
        directory[["a"]]
