"""A local feed: the best few messages of the last hour, kept current as messages come and go."""

import nearcast as nc

engine = nc.Engine(space=nc.Space(nc.Box(0, 0, 10, 10)), window=nc.TimeWindow(seconds=3600))
engine.subscribe([nc.TopKSubscription("feed", location=(2, 2), keywords="jazz tonight", k=2, alpha=0.5)])

start = 1_767_225_600.0
stream = [
    nc.Message("m1", (8, 8), "jazz", at=start),
    nc.Message("m2", (3, 2), "live jazz tonight", at=start + 600),
    nc.Message("m3", (2, 2), "jazz tonight", at=start + 1200),  # drives m1 out
    nc.Message("m4", (9, 9), "football", at=start + 4300),  # an hour later: m2 expires, m1 is gone too
]
for message in stream:
    for update in engine.publish([message]):
        print(f"step {update.seq}: {update.message} {update.change}s with {update.score:.3f}")

print([result.message for result in engine.results("feed")])
assert [result.message for result in engine.results("feed")] == ["m3"]
