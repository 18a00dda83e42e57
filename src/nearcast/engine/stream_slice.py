"""The slice of a stream that one of several engines sees."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.errors import require
from nearcast.model import MessageBatch
from nearcast.partition import Masks


class StreamSlice(NamedTuple):
    """The place of a batch's messages among all next messages of the stream."""

    rows: npt.NDArray[np.int64]
    """int64 (n,): positions of the messages among the next ones of the stream, ascending."""
    ats_us: npt.NDArray[np.int64]
    """int64 (n_stream,): the time of every next message of the stream; NO_TIME where there is none."""
    seen_by: Masks | None = None
    """The engines that see each message, as masks; None if all do."""
    expires_us: npt.NDArray[np.int64] | None = None
    """int64 (n_stream,): when every next message of the stream expires by a time of its own; None if none does.

    An engine that sees some of the messages needs it to count late ones as all others do.
    """

    def check(self, n_messages: int) -> None:
        """Raise `InvalidInput` if the slice does not fit the given number of messages."""
        require(
            len(self.rows) == n_messages,
            "stream_slice.rows",
            f"must be {n_messages}, one per message",
            len(self.rows),
        )
        if self.seen_by is not None:
            n = len(self.seen_by)
            require(n == n_messages, "stream_slice.seen_by", f"must be {n_messages}, one per message", n)
        ascend = bool((np.diff(self.rows, prepend=-1) > 0).all())
        require(ascend, "stream_slice.rows", "must ascend from 0 or more", self.rows)
        last = int(self.rows[-1]) if len(self.rows) else -1
        require(last < len(self.ats_us), "stream_slice.rows", f"must be below {len(self.ats_us)}", last)

    def part(self, messages: MessageBatch, start: int, stop: int) -> tuple[MessageBatch, StreamSlice]:
        """Return some of the next messages of the stream as a slice of their own, given those of this one."""
        first, last = np.searchsorted(self.rows, (start, stop)).tolist()
        return messages.slice(first, last), StreamSlice(
            self.rows[first:last] - start,
            self.ats_us[start:stop],
            None if self.seen_by is None else self.seen_by[first:last],
            None if self.expires_us is None else self.expires_us[start:stop],
        )
