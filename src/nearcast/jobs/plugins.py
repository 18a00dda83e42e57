"""Kinds and partitioners that a job brings along; `nearcast.spark.plugins` packs them."""

from __future__ import annotations

import pickle

from nearcast.model import register_kind, registered_kinds
from nearcast.partition import register_partitioner, registered_partitioners


def register_plugins(packed: bytes) -> None:
    """Register kinds and partitioners in this process, except for names that are registered already."""
    kinds, partitioners = pickle.loads(packed)
    for kind in kinds:
        if kind.kind not in {known.kind for known in registered_kinds()}:
            register_kind(kind)
    for partitioner in partitioners:
        if partitioner.name not in {known.name for known in registered_partitioners()}:
            register_partitioner(partitioner)
