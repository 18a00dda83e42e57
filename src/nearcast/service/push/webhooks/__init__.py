"""Webhooks: updates are sent to URLs of receivers, as Standard Webhooks specifies.

    hub, journal ── follower ── batch, stored as a delivery ── attempt (signed, guarded) ── acknowledged: cursor moves
                                         ▲                           │
                                         └── retried later ──────────┘

Delivery is at least once, in order, one at a time. A retried delivery has the same id and body, also after a crash,
so that a receiver can drop repeats.
"""
