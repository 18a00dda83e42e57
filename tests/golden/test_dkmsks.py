"""DkM-SKS, Example 2. Figure 2 has no numbers: locations and keywords are chosen to agree with the text."""

import nearcast as nc

OBJECTS = {  # name: location, keywords
    "o1": ((2, 3), "a"),
    "o2": ((2, 2.5), "d"),
    "o3": ((9, 9), "e"),
    "o4": ((3, 2), "b e"),
    "o5": ((2.5, 2), "f"),
    "o6": ((8, 2), "c"),
    "o7": ((6, 6), "a d"),
    "o8": ((1, 9), "g"),
    "o9": ((9, 1), "h"),
}


def test_example_2_the_result_is_the_two_nearest_objects_that_share_a_keyword():
    engine = nc.Engine(space=nc.Space(nc.Box(0, 0, 10, 10)))
    engine.subscribe([nc.NearestSubscription("s1", location=(2, 2), keywords="a b c", k=2)])
    engine.publish([nc.Message(name, place, words) for name, (place, words) in OBJECTS.items()])
    shares = [name for name in OBJECTS if engine.explain("s1", nc.Message(name, *OBJECTS[name])).score is not None]
    assert shares == ["o1", "o4", "o6", "o7"]
    assert {r.message for r in engine.results("s1")} == {"o1", "o4"}


def test_objects_before_the_subscription_are_not_in_its_result():
    engine = nc.Engine(space=nc.Space(nc.Box(0, 0, 10, 10)))
    engine.publish([nc.Message("early", (2, 2), "a")])
    engine.subscribe([nc.NearestSubscription("s1", location=(2, 2), keywords="a b c", k=2)])
    assert engine.results("s1") == []
