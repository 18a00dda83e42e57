"""Which messages of a stream are these? What an engine has to know that sees only some of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.errors import require
from nearcast.partition import Masks


class StreamSlice(NamedTuple):
    """The messages of a batch among all that the stream has at that point."""

    rows: npt.NDArray[np.int64]
    """Which of the stream's next messages these are, ascending."""
    ats_us: npt.NDArray[np.int64]
    """The time of every message of the stream, those that go elsewhere included; NO_TIME where it has none."""
    seen_by: Masks | None = None
    """Which engines see each of the messages, as a mask; None if who sees it makes no difference."""

    def check(self, n_messages: int) -> None:
        """Raise `InvalidInput` if this is no share of so many messages."""
        require(
            len(self.rows) == n_messages, "stream_slice.rows", f"must be {n_messages}, one a message", len(self.rows)
        )
        if self.seen_by is not None:
            n = len(self.seen_by)
            require(n == n_messages, "stream_slice.seen_by", f"must be {n_messages}, one a message", n)
        ascend = bool((np.diff(self.rows, prepend=-1) > 0).all())
        require(ascend, "stream_slice.rows", "must ascend from 0 or more", self.rows)
        last = int(self.rows[-1]) if len(self.rows) else -1
        require(last < len(self.ats_us), "stream_slice.rows", f"must be below {len(self.ats_us)}", last)
