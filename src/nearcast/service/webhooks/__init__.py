"""TELL: updates sent to receivers that listen on an address of their own (Standard Webhooks).

    hub, journal ── follower ── batch, fixed in the book ── attempt (signed, guarded) ── acknowledged: cursor moves
                                         ▲                        │
                                         └── again, later ────────┘

At least once, in order, one delivery at a time: a delivery that is tried again has the same id and body, also after
a crash, so that a receiver can drop repeats.
"""
