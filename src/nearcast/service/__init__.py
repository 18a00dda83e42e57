"""SERVE: the engine behind HTTP and WebSocket, durable.

    requests ── queue ── steward (one thread: engine, journal) ── hub ── WebSocket, SSE
                              │
                    journal (SQLite), snapshots

What was answered is on disk. What is on disk is told once, in one order, to whoever asks from where.
"""
