"""Alerts: tell me of every coffee sale or discount in my part of town."""

import nearcast as nc

engine = nc.Engine(space=nc.Space(nc.Box(0, 0, 10, 10)))
engine.subscribe(
    [nc.BooleanSubscription("alert", region=nc.Box(2, 2, 5, 5), keywords="coffee AND (sale OR discount)")]
)

updates = engine.publish(
    [
        nc.Message("m1", (3.0, 4.0), "Coffee sale today!"),
        nc.Message("m2", (3.0, 4.0), "Coffee is served"),  # no sale, no discount
        nc.Message("m3", (8.0, 4.0), "Discount on coffee"),  # too far east
        nc.Message("m4", (5.0, 5.0), "Big discount: all coffee"),  # on the corner, which counts
    ]
)
for update in updates:
    print(update.subscription, update.change, update.message)

print(engine.explain("alert", nc.Message("m3", (8.0, 4.0), "Discount on coffee")))
assert [update.message for update in updates] == ["m1", "m4"]
