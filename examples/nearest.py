"""Dispatch: the two nearest incidents of a kind, and nothing that is farther."""

import nearcast as nc

engine = nc.Engine(space=nc.Space.earth())
crew = (151.2, -33.87)
engine.subscribe([nc.NearestSubscription("crew 7", location=crew, keywords="flood fire", k=2)])

updates = engine.publish(
    [
        nc.Message(1, (151.0, -33.8), "Flood on the motorway"),
        nc.Message(2, (150.5, -33.7), "Bush fire"),
        nc.Message(3, (151.2, -33.86), "Roadwork"),  # near, but not theirs
        nc.Message(4, (151.1, -33.87), "Fire in a warehouse"),  # nearer than the bush fire
    ]
)
for update in updates:
    print(f"{update.change:5} {update.message} at {update.score / 1000:.1f} km")
assert [result.message for result in engine.results("crew 7")] == [4, 1]
