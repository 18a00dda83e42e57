"""A personal feed: messages that are near, on topic, and from places that the user or similar users like."""

import nearcast as nc

graph = nc.SocialGraph(
    [("ann", "cafe"), ("ann", "bakery"), ("bob", "cafe"), ("bob", "bakery"), ("bob", "gallery"), ("eve", "gym")]
)
engine = nc.Engine(space=nc.Space(nc.Box(0, 0, 10, 10)), window=nc.CountWindow(100), social=graph)
engine.subscribe([nc.SocialSubscription("ann's feed", location=(5, 5), keywords="brunch", k=2, user="ann")])

engine.publish(
    [
        nc.Message("m1", (5, 5), "leg day", place="gym"),  # close by, but nobody she resembles goes there
        nc.Message("m2", (6, 5), "new pictures", place="gallery"),  # bob, who likes what she likes, goes there
        nc.Message("m3", (7, 5), "brunch until two", place="cafe"),  # hers, and on topic
    ]
)
for result in engine.results("ann's feed"):
    print(f"{result.message} {result.score:.3f}")
print(engine.explain("ann's feed", "m2"))
assert [result.message for result in engine.results("ann's feed")] == ["m3", "m2"]
