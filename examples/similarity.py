"""Offers: each subscriber says how much words matter against distance, and how good an offer must be."""

import nearcast as nc

sample = ["nike shoes", "nike shirt", "adidas shoes", "running shoes", "summer shirt", "shoes repair"]
engine = nc.Engine(
    space=nc.Space.earth(max_distance=20_000),  # metres; farther than that is not near at all
    vocabulary=nc.Vocabulary.from_texts(sample),
)
home = (126.98, 37.57)
engine.subscribe(
    [
        nc.SimilaritySubscription("picky", location=home, keywords="nike shoes", delta=0.8, tau=0.85),
        nc.SimilaritySubscription("lazy", location=home, keywords="nike shoes", delta=0.2, tau=0.7),
    ]
)

updates = engine.publish(
    [
        nc.Message("far but exact", (127.10, 37.50), "Nike shoes, all sizes"),
        nc.Message("near but vague", (126.99, 37.57), "Shoes!"),
    ]
)
for update in updates:
    print(f"{update.subscription:6} {update.message:15} {update.score:.3f}")
assert {(u.subscription, u.message) for u in updates} == {("picky", "far but exact"), ("lazy", "near but vague")}
