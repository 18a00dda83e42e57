"""Do tables name subscriptions rightly, whichever way the names take?"""

import random

import numpy as np
import pytest

import nearcast as nc
from nearcast.engine.names import Names
from nearcast.engine.roster import Roster
from nearcast.engine.told import Part, _subscriptions
from nearcast.model import Cohort
from nearcast.testing import strategies as world
from nearcast.window import Changes

SHORT = ["", "a", "s17", "exactly15bytes!", "ünïcode", 7, -(1 << 62)]
LONG = ["sixteen bytes ok", "x" * 300]


def gather(parts, order):
    """Name slots as a table of updates does."""
    made = [
        Part(roster, Changes(None, slots, None, None, [], None, 0), names.of(slots)) for roster, names, slots in parts
    ]
    return _subscriptions(made, order)


def seated(roster, names, ids):
    subscriptions = [nc.NearestSubscription(id_, location=(0, 0), keywords="a", k=1) for id_ in ids]
    slots = roster.seat(Cohort.of(subscriptions, world.meaning()), np.zeros(len(ids)))
    names.seated(slots)
    return slots


@pytest.mark.parametrize("pool", [SHORT[:5], SHORT, SHORT + LONG], ids=["strings", "integers too", "long ones too"])
@pytest.mark.parametrize("n_parts", [1, 3])
def test_names_are_ids_as_strings(pool, n_parts):
    rng = random.Random(len(pool) + n_parts)
    rosters = [Roster(nc.NearestSubscription) for _ in range(n_parts)]
    all_names = [Names(roster) for roster in rosters]
    held = [{} for _ in rosters]
    for _ in range(4):
        parts, expected = [], []
        for roster, names, own in zip(rosters, all_names, held, strict=True):
            ids = rng.choices(pool, k=30)
            own |= zip(seated(roster, names, ids).tolist(), ids, strict=True)
            asked = np.array(rng.choices(sorted(own), k=rng.choice([3, 200])), dtype=np.int32)
            parts.append((roster, names, asked))
            expected += [str(own[slot]) for slot in asked.tolist()]
        assert gather(parts, None).to_pylist() == expected
        order = np.array(rng.sample(range(len(expected)), len(expected)), dtype=np.int64)
        assert gather(parts, order).to_pylist() == [expected[i] for i in order]
        for roster, own in zip(rosters, held, strict=True):
            gone = rng.sample(sorted(own), 10)
            roster.leave(np.array(gone, dtype=np.int32))
            for slot in gone:
                del own[slot]


def test_who_came_and_went_before_anyone_asked_is_no_trouble():
    roster = Roster(nc.NearestSubscription)
    names = Names(roster)
    for round_ in range(80):
        roster.leave(seated(roster, names, [f"{round_}.{i}" for i in range(30)]))
    slots = seated(roster, names, [f"stays{i}" for i in range(100)])
    assert gather([(roster, names, slots)], None).to_pylist() == [f"stays{i}" for i in range(100)]
