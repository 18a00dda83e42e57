"""Who is among the k best of the window, and who would be next? A buffer a subscription (Skype, section 6).

    heads    slot -> theta, its block, size, k, and its place in the queue of a message
    block    scores  [ 0.91 0.88 ... 0.71 | 0.70 0.66 ]        best first; the first k are the result
             numbers [   41   52       17 |   60   44 ]
    queues   message -> the subscriptions whose result loses this one first

A buffer holds every message of the window that scores theta or more, but for those that k better ones outlive. While
it holds k or more, or theta is -inf, its first k are the best of the window (theorem 5); when it runs short, the
window is searched. Behind the first k a buffer may hold messages that have left: these are swept when it is full, or
when one moves up. So an expiry costs those subscriptions something whose result it changes, and nobody else: each
stands in the queue of the message that its result will lose first, or would have lost had it not been pushed out.

A step first lets arrivals in, then asks the queues of who leaves; either sweeps a buffer before it changes it, so
what is told is the difference that the whole step makes.
"""

from nearcast.window._kernels.buffers.layout import (
    ALIVE,
    COMING,
    CURSOR,
    DONE,
    FIRST_ROW,
    N_ENTERED,
    N_MOVED,
    N_OUT,
    N_SEARCHED,
    N_SWEPT,
    NOBODY,
    NOW,
    OUT,
    POOL,
    ROOM_K,
    SCRATCH,
    SIZE,
    START,
    THETA,
    Batch,
    BufferArrays,
    BufferContext,
    ChangeBuffer,
    Later,
    class_for,
    places_of,
)
from nearcast.window._kernels.buffers.publish import begin, end, move_numbers, publish

__all__ = [
    "ALIVE",
    "COMING",
    "CURSOR",
    "DONE",
    "FIRST_ROW",
    "NOBODY",
    "NOW",
    "N_ENTERED",
    "N_MOVED",
    "N_OUT",
    "N_SEARCHED",
    "N_SWEPT",
    "OUT",
    "POOL",
    "ROOM_K",
    "SCRATCH",
    "SIZE",
    "START",
    "THETA",
    "Batch",
    "BufferArrays",
    "BufferContext",
    "ChangeBuffer",
    "Later",
    "begin",
    "class_for",
    "end",
    "move_numbers",
    "places_of",
    "publish",
]
