"""Buffers: per subscription the k best messages of the window, and the next ones (Skype, section 6).

    heads    slot -> theta, its block, size, k, and its place in the queue of a message
    block    scores  [ 0.91 0.88 ... 0.71 | 0.70 0.66 ]        best first; the first k are the result
             numbers [   41   52       17 |   60   44 ]
    queues   message -> the subscriptions whose result loses this message first

A buffer holds every message of the window that scores theta or more, except for those that k better ones outlive.
While it holds k or more, or theta is -inf, its first k are the best of the window (theorem 5); when it runs short,
the window is searched. Behind the first k a buffer may hold expired messages, which are removed when it is full, or
when one of them moves up. So an expiry costs only the subscriptions whose result it changes: each is in the queue of
the message that its result will lose first, or would have lost had a better one not replaced it.

A step first admits the arrival, then reads the queues of the expiring messages. Both remove expired messages from a
buffer before they change it, so the reported changes are the difference that the whole step makes.

The search is injected: see `candidates`.
"""

from nearcast.window._kernels.buffers.layout import (
    ARRIVING,
    CURSOR,
    DONE,
    FIRST_ALIVE,
    FIRST_ROW,
    N_ENTERED,
    N_MOVED,
    N_OUT,
    N_SEARCHED,
    N_SWEPT,
    NONE,
    NOW,
    OUT,
    POOL,
    RESULT_SIZE,
    SCRATCH,
    SIZE,
    START,
    THETA,
    BatchSteps,
    BufferArrays,
    BufferContext,
    ChangeBuffer,
    PendingArrivals,
    capacity_of,
    class_for,
)
from nearcast.window._kernels.buffers.lifecycle import begin, end, move_buffers, move_numbers
from nearcast.window._kernels.buffers.publish import publish

__all__ = [
    "ARRIVING",
    "CURSOR",
    "DONE",
    "FIRST_ALIVE",
    "FIRST_ROW",
    "NONE",
    "NOW",
    "N_ENTERED",
    "N_MOVED",
    "N_OUT",
    "N_SEARCHED",
    "N_SWEPT",
    "OUT",
    "POOL",
    "RESULT_SIZE",
    "SCRATCH",
    "SIZE",
    "START",
    "THETA",
    "BatchSteps",
    "BufferArrays",
    "BufferContext",
    "ChangeBuffer",
    "PendingArrivals",
    "begin",
    "capacity_of",
    "class_for",
    "end",
    "move_buffers",
    "move_numbers",
    "publish",
]
