"""Parts of the work: a part of space, or some of its terms, with its messages and the branches posted there.

    by space   the part is cut in two, as in a kd-tree, repeatedly; a box across a cut is in both parts
    by text    the terms that its branches are posted under are grouped, see `text_metric`; a message is in each part
               that has one of its terms

A message that holds none of the terms is in no part. A branch without terms is posted under `NOTHING`, a term that
every message holds. The load of a part is that of definition 1, for its messages and subscriptions; a subscription
counts once, regardless of the number of its branches.

Cost: a cut or a grouping reads all terms of the part about ten times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nearcast.partition.base import Sample
from nearcast.partition.load import load_of
from nearcast.partition.term_assignment import posting_terms
from nearcast.partition.term_frequencies import TermFrequencies
from nearcast.partition.text_metric import gather
from nearcast.partition.tree import Path

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

NOTHING = np.iinfo(np.int64).min
"""The id of the term that branches without terms are posted under; a real term with this id is harmless."""

_PLANNED = 250_000  # most subscriptions
_PLACES = 64  # candidate positions per cut
_SAMPLED = 20_000  # coordinates that the positions are taken from


@dataclass(frozen=True)
class WorkPart:
    """A part of the work."""

    path: Path
    """The cuts around the part."""
    messages: Longs
    """Rows of the messages in the part."""
    branches: Longs
    """Branches posted in the part, ascending."""
    sent: Longs
    """Rows of the messages that hold a term with a posting in the part."""
    n_subscriptions: int
    is_whole: bool
    """True if it has all terms of its part of space."""
    text_only: bool = False
    """True if it may be divided by text only."""

    @property
    def load(self) -> float:
        """The load of definition 1."""
        return float(load_of(len(self.sent), self.n_subscriptions))


class SampleWork:
    """The messages and branches of a sample, with terms numbered from 0.

    Of many subscriptions only every second, third, ... is used, with weight 2, 3, ....
    """

    def __init__(self, sample: Sample, frequencies: TermFrequencies) -> None:
        self.weight = max(1, -(-len(sample.footprints) // _PLANNED))
        footprints, messages = sample.footprints, sample.messages
        if self.weight > 1:
            footprints = footprints.take(np.arange(0, len(footprints), self.weight))
        with_terms, posted = posting_terms(footprints, frequencies)
        n_branches = len(footprints.term_indptr) - 1
        self.terms, slots = np.unique(
            np.concatenate([[NOTHING], messages.term_ids, footprints.term_ids]), return_inverse=True
        )
        self._message_slots = Rows(messages.term_indptr, slots[1 : 1 + len(messages.term_ids)])
        self._branch_slots = Rows(footprints.term_indptr, slots[1 + len(messages.term_ids) :])
        self.posts = np.zeros(n_branches, np.int64)  # number 0 is NOTHING
        self.posts[with_terms] = np.searchsorted(self.terms, posted)
        self._owners = np.repeat(np.arange(len(footprints)), np.diff(footprints.branch_indptr))
        self.n_messages, self.n_subscriptions = len(messages), len(footprints)
        self._points = messages.xs, messages.ys
        self._boxes = footprints.boxes
        self._is_wanted = np.zeros(len(self.terms), np.bool_)

    def all(self) -> WorkPart:
        """Return the whole work."""
        return self._part((), np.arange(len(self._points[0])), np.arange(len(self.posts)))

    def similarity(self, part: WorkPart) -> float:
        """Return the cosine between the term counts of messages and branches; 1 if both are empty."""
        message_counts, branch_counts = (
            np.bincount(rows.take(some), minlength=len(self.terms)).astype(np.float64)
            for rows, some in ((self._message_slots, part.messages), (self._branch_slots, part.branches))
        )
        lengths = float(np.sqrt(message_counts @ message_counts) * np.sqrt(branch_counts @ branch_counts))
        return float(message_counts @ branch_counts) / lengths if lengths else 1.0

    def halves(self, part: WorkPart, axis: int, shares: tuple[int, int] = (1, 1)) -> list[WorkPart]:
        """Return both sides of the cut across an axis with loads in proportion to shares, or the part itself."""
        points = self._points[axis][part.messages]
        boxes = self._boxes[self._owners[part.branches]]
        value = _even_cut(points, boxes[:, axis], boxes[:, axis + 2], self.weight, shares)
        if value is None:
            return [part]
        is_low = points <= value
        low, high = boxes[:, axis] <= value, boxes[:, axis + 2] > value
        sides = ((part.messages[is_low], part.branches[low]), (part.messages[~is_low], part.branches[high]))
        return [
            self._part((*part.path, (axis, value, side)), messages, branches)
            for side, (messages, branches) in enumerate(sides)
        ]

    def by_space(self, part: WorkPart, n: int) -> list[WorkPart]:
        """Cut a part of space into up to n parts; each cut takes the better axis."""
        if n == 1:
            return [part]
        shares = n // 2, n - n // 2
        cuts = [halves for axis in (0, 1) if len(halves := self.halves(part, axis, shares)) == 2]
        if not cuts:
            return [part]
        best = min(cuts, key=total)
        return [piece for half, share in zip(best, shares, strict=True) for piece in self.by_space(half, share)]

    def by_text(self, part: WorkPart, n: int) -> list[WorkPart]:
        """Group the terms of a part into the given number of parts, or fewer if there are fewer terms."""
        posts = self.posts[part.branches]
        counts = np.bincount(posts, minlength=len(self.terms))
        known, place = np.flatnonzero(counts), np.cumsum(counts > 0) - 1
        n = min(n, len(known))
        if n < 2:
            return [part]
        rows, slots = self._wanted_of(part.sent, counts)
        order = np.argsort(slots, kind="stable")
        indptr = np.searchsorted(slots[order], np.arange(len(known) + 1))
        pieces = gather(indptr, rows[order].astype(np.int32), counts[known] * self.weight, len(part.sent), n)
        piece_of = pieces[place[posts]]
        is_in = np.zeros((n, len(part.sent)), np.bool_)
        is_in[pieces[slots], rows] = True
        return [
            self._part(part.path, part.sent[is_in[piece]], part.branches[piece_of == piece], is_whole=False)
            for piece in range(n)
            if (pieces == piece).any()
        ]

    def _wanted_of(self, messages: Longs, counts: Longs) -> tuple[Longs, Longs]:
        """Return pairs of messages and counted terms that they hold, as positions in both lists."""
        lengths = self._message_slots.lengths(messages)
        slots, rows = self._message_slots.take(messages), np.repeat(np.arange(len(messages)), lengths)
        if counts[0]:
            slots = np.concatenate([slots, np.zeros(len(messages), np.int64)])
            rows = np.concatenate([rows, np.arange(len(messages))])
        found = counts[slots] > 0
        return rows[found], (np.cumsum(counts > 0) - 1)[slots[found]]

    def _part(self, path: Path, messages: Longs, branches: Longs, *, is_whole: bool = True) -> WorkPart:
        wanted = self._is_wanted
        wanted[self.posts[branches]] = True
        if wanted[0]:
            sent = messages
        else:
            rows = self._message_slots
            ends = np.concatenate([[0], np.cumsum(rows.lengths(messages))])
            n_wanted = np.concatenate([[0], np.cumsum(wanted[rows.take(messages)])])[ends]
            sent = messages[np.diff(n_wanted) > 0]
        wanted[self.posts[branches]] = False
        owners = self._owners[branches]
        n_owners = int(np.count_nonzero(np.diff(owners))) + 1 if len(owners) else 0
        return WorkPart(path, messages, branches, sent, n_owners * self.weight, is_whole, text_only=not is_whole)

    def owners(self, part: WorkPart) -> Longs:
        """Return the distinct subscriptions of a part."""
        owners = self._owners[part.branches]
        return owners[np.diff(owners, prepend=-1) > 0]


def total(parts: list[WorkPart]) -> float:
    """Return the sum of the loads of parts."""
    return sum(part.load for part in parts)


@dataclass(frozen=True)
class Rows:
    """Compressed rows."""

    indptr: Longs
    items: Longs

    def lengths(self, rows: Longs) -> Longs:
        """Return the number of items in rows."""
        return self.indptr[rows + 1] - self.indptr[rows]

    def take(self, rows: Longs) -> Longs:
        """Return the items of rows, concatenated."""
        lengths = self.lengths(rows)
        before = np.cumsum(lengths) - lengths
        taken: Longs = self.items[np.repeat(self.indptr[rows] - before, lengths) + np.arange(lengths.sum())]
        return taken


def _even_cut(points: Floats, lows: Floats, highs: Floats, weight: int, shares: tuple[int, int]) -> float | None:
    """Return where both sides have loads in proportion to their shares; None if there is no such position."""
    edges = np.concatenate([values[np.isfinite(values)] for values in (points, lows, highs)])
    if not len(edges):
        return None
    values = np.unique(edges[:: 1 + len(edges) // _SAMPLED])
    values = values[values < edges.max()]
    if not len(values):
        return None
    values = values[np.unique(np.linspace(0, len(values) - 1, _PLACES).astype(np.int64))]
    n_low, n_lows, n_highs = (
        np.cumsum(np.bincount(np.searchsorted(values, some), minlength=len(values) + 1))[:-1]
        for some in (points, lows, highs)
    )
    low, high = load_of(n_low, n_lows * weight), load_of(len(points) - n_low, (len(highs) - n_highs) * weight)
    return float(values[np.argmin(np.abs(low / shares[0] - high / shares[1]))])
