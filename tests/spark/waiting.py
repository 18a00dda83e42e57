"""Waiting for a query: it ends when the query fails, and when the query has done enough."""

MOST_BATCHES = 60
"""At least half a minute by the clock of a job, which runs a batch whenever it moves."""


def wait_for(query, condition):
    """Wait until a condition holds; fail if a query with a clock fails, or has run so many batches that it never will."""
    first = _last_batch(query)
    while not condition():
        query.awaitTermination(0.1)  # raises the error of the query
        assert query.isActive, "the query ended before the condition held"
        assert _last_batch(query) - first < MOST_BATCHES, f"the condition does not hold after {MOST_BATCHES} batches"


def process_all(query):
    """Wait until a query without a clock has processed all that is there; raise its error if it fails.

    A batch that was about to find nothing new when the call began ends the first wait, but not the second.
    """
    for _ in range(2):
        query.processAllAvailable()


def _last_batch(query):
    progress = query.lastProgress
    return -1 if progress is None else progress["batchId"]
