"""What shards saw of a batch, as files that the driver reads to adjust the routing; see `balancer`.

    <state>/<query>/periods/00000003/00000019.1.part      epoch 3, batch 19, shard 1

A shard writes its part before the batch is committed. A replay writes it again, and until then an old one does no
harm: a part is a measurement, and no update depends on it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from nearcast.jobs.folder import Folder
from nearcast.partition.balance.period_parts import PeriodPart

_PERIODS = "periods"
_PART = re.compile(r"(\d{8})\.(\d+)\.part")


class Measured(NamedTuple):
    """A batch of which every shard wrote its part."""

    query: str
    batch: int


def write_part(folder: Folder, part: PeriodPart, *, epoch: int, batch: int, shard: int, every: int) -> None:
    """Write the part of a shard, and remove the one before."""
    folder.write(_name(epoch, batch, shard), part.pack())
    folder.remove([_name(epoch, batch - every, shard)])


def remove_parts(folder: Folder, *, epoch: int) -> None:
    """Remove what was measured in an epoch."""
    folder.remove_folder(_within(epoch))


def newest_measured(state: str, *, epoch: int, shards: int) -> Measured | None:
    """Return the newest batch of any query of which all shards of an epoch wrote their parts."""
    found = []
    folder = Folder(state)
    for query in folder.names(""):
        shards_of: dict[int, set[int]] = {}
        for name in folder.names(f"{query}/{_within(epoch)}"):
            if (part := _PART.fullmatch(name)) is not None:
                shards_of.setdefault(int(part[1]), set()).add(int(part[2]))
        found += [Measured(query, batch) for batch, written in shards_of.items() if written >= set(range(shards))]
    return max(found, key=lambda measured: measured.batch, default=None)


def read_parts(state: str, measured: Measured, *, epoch: int, shards: int) -> list[PeriodPart]:
    """Return what all shards saw of a batch."""
    folder = Folder(f"{state}/{measured.query}")
    return [PeriodPart.unpack(folder.read(_name(epoch, measured.batch, shard))) for shard in range(shards)]


def _name(epoch: int, batch: int, shard: int) -> str:
    return f"{_within(epoch)}/{batch:08d}.{shard}.part"


def _within(epoch: int) -> str:
    return f"{_PERIODS}/{epoch:08d}"
