"""Parts of a period: what each shard saw of it, as samples that fit together.

    shard 0   messages, subscriptions at the end, which are new, which went ─┐
    shard 1   the same ──────────────────────────────────────────────────────┼── one Period, with weights
    shard n   the same ──────────────────────────────────────────────────────┘

A message or a subscription that several shards hold is in the part of the first one. Every row has a hash, and a part
of level L holds the rows whose hash begins with L zero bits: one row of 2 ** L. Parts of several levels are joined at
the highest one.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from nearcast import ragged
from nearcast.model import Footprints, MessageBatch
from nearcast.partition.balance.cells import Period
from nearcast.text import TermRows, Vocabulary

Hashes = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_ALL = np.uint64(2**64 - 1)
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))


def hashes_of(numbers: npt.NDArray[np.integer]) -> Hashes:
    """Return numbers that look random, the same for the same number (the last steps of SplitMix64)."""
    mixed = numbers.astype(np.uint64)
    for shift, factor in zip(_SHIFTS[:2], _FACTORS, strict=True):
        mixed = (mixed ^ (mixed >> shift)) * factor
    hashes: Hashes = mixed ^ (mixed >> _SHIFTS[2])
    return hashes


def level_for(n: int, *, most: int) -> int:
    """Return the level at which about `most` of n rows are left.

    >>> level_for(1000, most=1000), level_for(1001, most=1000), level_for(5000, most=1000)
    (0, 1, 3)
    """
    return max(0, (max(n, 1) - 1) // most).bit_length()


def are_chosen(hashes: Hashes, level: int) -> Flags:
    """Return which rows a part of a level holds."""
    chosen: Flags = hashes <= _ALL >> np.uint64(level)
    return chosen


@dataclass(frozen=True)
class SampledMessages:
    """Some of the messages of a shard."""

    level: int
    hashes: Hashes
    xs: Floats
    ys: Floats
    term_indptr: Longs
    term_ids: Longs

    @classmethod
    def of(cls, batch: MessageBatch, rows: Longs, hashes: Hashes, *, level: int) -> SampledMessages:
        """Return some rows of a batch."""
        at, indptr = ragged.positions(batch.term_indptr, rows)
        return cls(level, hashes, batch.xs[rows], batch.ys[rows], indptr, batch.term_ids[at])

    @classmethod
    def joined(cls, parts: Sequence[SampledMessages], *, level: int) -> SampledMessages:
        """Join samples at a level that is at least as high as theirs."""
        if not parts:
            none = np.zeros(0)
            return cls(level, none.astype(np.uint64), none, none, np.zeros(1, np.int64), none.astype(np.int64))
        hashes, xs, ys, ids = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("hashes", "xs", "ys", "term_ids")
        )
        indptr = ragged.starts(np.concatenate([np.diff(part.term_indptr) for part in parts]))
        rows = np.flatnonzero(are_chosen(hashes, level))
        at, taken = ragged.positions(indptr, rows)
        return cls(level, hashes[rows], xs[rows], ys[rows], taken, ids[at])

    def __len__(self) -> int:
        return len(self.hashes)

    def batch(self) -> MessageBatch:
        """Return the messages as partitioners see them."""
        n = len(self)
        terms = TermRows(self.term_indptr, self.term_ids, np.ones(len(self.term_ids), np.int32))
        return MessageBatch.from_columns(
            ids=range(n), xs=self.xs, ys=self.ys, ats_us=np.zeros(n, np.int64), places=[None] * n, texts=terms,
            vocabulary=Vocabulary.with_weights({}),
        )  # fmt: skip


@dataclass(frozen=True)
class PeriodPart:
    """What one shard saw of a period."""

    messages: SampledMessages
    level: int
    """The level of both samples of subscriptions."""
    hashes: Hashes
    footprints: Footprints
    """Subscriptions that the shard stores at the end of the period."""
    are_new: Flags
    """Which of them came in the period."""
    are_old: Flags
    """Which of them stay where an old routing placed them."""
    deleted_hashes: Hashes
    deleted: Footprints
    """Subscriptions that went in the period."""

    def pack(self) -> bytes:
        """Return the part as bytes."""
        arrays = {"level": np.array(self.level)}
        arrays |= {name: getattr(self, name) for name in ("hashes", "are_new", "are_old", "deleted_hashes")}
        for prefix in ("messages", "footprints", "deleted"):
            columns = getattr(self, prefix)
            values = {field.name: getattr(columns, field.name) for field in fields(columns)}
            arrays |= {f"{prefix}.{name}": np.asarray(value) for name, value in values.items() if value is not None}
        sink = io.BytesIO()
        np.savez(sink, **arrays)  # type: ignore[arg-type] # keywords of its own are not among the names
        return sink.getvalue()

    @classmethod
    def unpack(cls, data: bytes) -> PeriodPart:
        """Return the part that was packed."""
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:

            def columns(prefix: str) -> dict[str, npt.NDArray[np.generic]]:
                return {
                    name.removeprefix(f"{prefix}."): arrays[name]
                    for name in arrays.files
                    if name.startswith(f"{prefix}.")
                }

            of_messages = columns("messages")
            level = int(of_messages.pop("level"))
            return cls(
                SampledMessages(level, **of_messages),  # type: ignore[arg-type]
                int(arrays["level"]),
                arrays["hashes"],
                Footprints(**columns("footprints")),  # type: ignore[arg-type]
                arrays["are_new"],
                arrays["are_old"],
                arrays["deleted_hashes"],
                Footprints(**columns("deleted")),  # type: ignore[arg-type]
            )


def period_of(parts: Sequence[PeriodPart], *, counts_pairs: bool) -> Period:
    """Return the period that the parts of all shards describe."""
    level = max((part.level for part in parts), default=0)
    message_level = max((part.messages.level for part in parts), default=0)
    messages = SampledMessages.joined([part.messages for part in parts], level=message_level)
    stored = [np.flatnonzero(are_chosen(part.hashes, level)) for part in parts]
    gone = [np.flatnonzero(are_chosen(part.deleted_hashes, level)) for part in parts]
    are_new = [part.are_new[rows] for part, rows in zip(parts, stored, strict=True)]
    are_old = [part.are_old[rows] for part, rows in zip(parts, stored, strict=True)]
    return Period.of(
        messages.batch(),
        Footprints.joined([part.footprints.take(rows) for part, rows in zip(parts, stored, strict=True)]),
        are_new=np.concatenate([*are_new, np.zeros(0, np.bool_)]),
        deleted=Footprints.joined([part.deleted.take(rows) for part, rows in zip(parts, gone, strict=True)]),
        are_old=np.concatenate([*are_old, np.zeros(0, np.bool_)]),
        weight=1 << level,
        message_weight=1 << message_level,
        counts_pairs=counts_pairs,
    )
