"""Moves: subscriptions go from shard to shard between two epochs, by files named after epoch, batch, from and to.

    last batch of epoch 3     shard 0 ── moves/00000004/00000017.0-2.transfer ──┐
                              shard 1 ── moves/00000004/00000017.1-2.transfer ──┤
                              each   ── 00000017.0.done, 00000017.1.done        │
    first batch of epoch 4    shard 2 ── frames of source "move" ── its engine ─┘

Files are written before the batch is committed, so writing them again is harmless. The new owner reads them in its
first batch of the epoch and logs them as frames, so that its engine can be rebuilt without them. A shard that was
there before also gets a frame of its own, without content: it gives up what the new routing places elsewhere. One
without such a frame is new, and begins with what it gets. A shard that retired and returns is new.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from nearcast.engine.shard_engine import ShardEngine
from nearcast.engine.transfer import Rerouting, pack_transfer, unpack_transfer
from nearcast.jobs.epochs import done_name, moves_folder
from nearcast.jobs.folder import Folder
from nearcast.jobs.frame import MOVE, Frame
from nearcast.jobs.job import Job
from nearcast.model import NO_TIME


def write_moves(
    folder: Folder, engine: ShardEngine, *, shard: int, before: Job, after: Job, number: int, batch: int
) -> int:
    """Write what moves from a shard to those of the next epoch, and then that it is written; return its bytes."""
    change, to_shards, n_bytes = Rerouting(shard, before.placement, after.placement), [], 0
    for to, state in engine.transfers(change):
        packed = pack_transfer(state, has_graph=to >= before.shards)
        n_bytes += folder.write(_transfer(number, batch, shard, to), packed)
        to_shards.append(to)
    done = {"to": to_shards, "now_us": engine.now_us, "seq": engine.seq}
    folder.write(done_name(number, batch, shard), json.dumps(done).encode())
    return n_bytes


class ReadMoves(NamedTuple):
    """What moves to a shard."""

    frames: list[Frame]
    now_us: int
    """The time of the job when it was written."""


def read_moves(folder: Folder, *, shard: int, before: Job, number: int, batch: int, is_new: bool) -> ReadMoves:
    """Return what moves to a shard as frames of the epoch, given the batch at whose end it was written."""
    frames = [] if is_new else [Frame(MOVE, shard, 0, 0, None, b"", epoch=number)]
    now_us = NO_TIME
    for source in range(before.shards):
        done = json.loads(folder.read(done_name(number, batch, source)))
        now_us = max(now_us, done["now_us"])
        if shard in done["to"]:
            packed = folder.read(_transfer(number, batch, source, shard))
            frames.append(Frame(MOVE, source, 0, 0, None, packed, epoch=number))
    return ReadMoves(frames, now_us)


def apply_moves(engine: ShardEngine, frames: Sequence[Frame], *, shard: int, job: Job) -> None:
    """Let a shard give up what is placed elsewhere in the epoch of a job, and add what moves to it."""
    arriving = [
        unpack_transfer(frame.payload, engine.config)
        for frame in sorted(frames, key=lambda frame: frame.part)
        if frame.payload
    ]
    if any(not frame.payload for frame in frames):
        engine.reroute(shard, job.placement, arriving)
    else:
        engine.rebuild(arriving)


def remove_moves(folder: Folder, number: int) -> None:
    """Remove what moved to the shards of an epoch. The files that say when the epoch began stay."""
    where = moves_folder(number)
    folder.remove([f"{where}/{name}" for name in folder.names(where) if name.endswith(".transfer")])


def _transfer(number: int, batch: int, shard: int, to: int) -> str:
    return f"{moves_folder(number)}/{batch:08d}.{shard}-{to}.transfer"
