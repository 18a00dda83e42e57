"""Service: the engine behind HTTP and WebSocket, with a durable journal.

    requests ── queue ── command loop (one thread: backend, journal) ── hub ── WebSocket, events, webhooks
                              │
                    journal (SQLite), snapshots

Every answered request is on disk. Every client receives each committed update once, in one order, from any retained
cursor on.

    api/       routes, JSON schemas, errors, tokens, metrics: the HTTP side
    store/     the journal and everything else on disk
    backends/  what computes results: an engine in this process, or a job on Spark
    push/      delivery of updates: hub, followers, the live feed, webhooks
    web/       the live map, plain files without a build step
"""
