"""Blocks by reference: rows for several shards are written once, and frames carry the name of the file.

    dispatch ── <state>/<query>/blocks/00000017/<hash>.block ──┬── shard 0
            └── frames with the name, one per shard ───────────┼── shard 1      log: the name
                                                               └── shard n

The bytes that travel through the shuffle then do not grow with the number of shards that see a message, and the log
of a shard names the file instead of repeating it. A file is named after its content, so an attempt that writes it
again writes the same. Small blocks travel in their frames: a file is not worth it.

A shard needs the files since the snapshot before its last one, and says so in `blocks/needed.<shard>`. The first
shard removes those that no shard needs.

What shards report to a partition of the merge stage goes the same way, in a folder of the partition: its log names
the files, so the bytes are written once and do not pass through the shuffle.
"""

from __future__ import annotations

import re

import xxhash

from nearcast.errors import StateError
from nearcast.jobs.folder import Folder
from nearcast.jobs.frame import Frame, pack_frames, unpack_frames

MIN_BYTES = 64 << 10
"""Rows of fewer bytes travel in frames."""

_NEEDED = re.compile(r"needed\.(\d+)")
_BATCH = re.compile(r"\d{8,}")


class BlockFiles:
    """The blocks of a query."""

    def __init__(self, folder: Folder, place: str = "blocks") -> None:
        """Take the folder of the query, and that of the blocks within it."""
        self._folder, self._place = folder, place

    @classmethod
    def of_partition(cls, folder: Folder, partition: int) -> BlockFiles:
        """Return the blocks of a partition of the merge stage."""
        return cls(folder, f"merge/{partition}/blocks")

    def write(self, frame: Frame, batch: int) -> Frame:
        """Write the rows of a frame, and return one that refers to them."""
        packed = pack_frames([frame])
        name = f"{batch:08d}/{xxhash.xxh3_128_hexdigest(packed)}.block"
        self._folder.write(f"{self._place}/{name}", packed)
        return frame._replace(ats=None, payload=b"", ends=None, file=name)

    def read(self, frame: Frame) -> Frame:
        """Return a frame with its rows; raise `StateError` if the file is not the one that was written."""
        if frame.file is None:
            return frame
        packed = self._folder.read(f"{self._place}/{frame.file}")
        if f"/{xxhash.xxh3_128_hexdigest(packed)}." not in frame.file:
            raise StateError(f"{frame.file} is not as it was written: its checksum differs ({self._folder.path})")
        (whole,) = unpack_frames(packed)
        return whole

    def size(self, frame: Frame) -> int:
        """Return the bytes of the file that a frame refers to; 0 if it refers to none."""
        return 0 if frame.file is None else self._folder.size(f"{self._place}/{frame.file}") or 0

    def release(self, shard: int, batch: int) -> None:
        """Note that a shard needs no blocks before a batch."""
        self._folder.write(f"{self._place}/needed.{shard}", str(batch).encode())

    def remove_unneeded(self, n_shards: int) -> None:
        """Remove the blocks that none of the shards needs; none while a shard has not said what it needs."""
        names = self._folder.names(self._place)
        noted = {int(found[1]) for name in names if (found := _NEEDED.fullmatch(name))}
        if not noted >= set(range(n_shards)):
            return
        first = min(int(self._folder.read(f"{self._place}/needed.{shard}")) for shard in range(n_shards))
        for name in names:
            if _BATCH.fullmatch(name) and int(name) < first:
                self._folder.remove_folder(f"{self._place}/{name}")
