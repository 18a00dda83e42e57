"""Where is a subscription? One dictionary from its id to shard, kind and slot, packed into one number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.errors import UnknownSubscription
from nearcast.model import KINDS, Id

_SLOT_BITS = 32
_KIND_NAMES = [kind.kind for kind in KINDS]


class Address(NamedTuple):
    """Where a subscription is."""

    shard: int
    kind: str
    slot: int


class Directory:
    """Every id and its address."""

    def __init__(self) -> None:
        self._packed: dict[Id, int] = {}

    def __len__(self) -> int:
        return len(self._packed)

    def __contains__(self, id_: Id) -> bool:
        return id_ in self._packed

    def __getitem__(self, id_: Id) -> Address:
        try:
            return _unpack(self._packed[id_])
        except (KeyError, TypeError):  # a list is no id, and no key either
            raise UnknownSubscription(id_) from None

    def put(self, ids: Sequence[Id], shard: int, kind: str, slots: npt.NDArray[np.int32]) -> None:
        """Note where subscriptions are."""
        base = (shard * len(_KIND_NAMES) + _KIND_NAMES.index(kind)) << _SLOT_BITS
        self._packed.update(zip(ids, (base + slots.astype(np.int64)).tolist(), strict=True))

    def pop(self, ids: Iterable[Id]) -> dict[tuple[int, str], list[tuple[Id, int]]]:
        """Forget ids; return ids and slots by shard and kind."""
        gone: dict[tuple[int, str], list[tuple[Id, int]]] = {}
        for id_ in ids:
            shard, kind, slot = _unpack(self._packed.pop(id_))
            gone.setdefault((shard, kind), []).append((id_, slot))
        return gone

    def known(self, ids: Sequence[Id]) -> list[Id]:
        """Return those of the ids that are here."""
        packed = self._packed
        return [id_ for id_ in ids if id_ in packed] if packed else []


def _unpack(packed: int) -> Address:
    shard, kind = divmod(packed >> _SLOT_BITS, len(_KIND_NAMES))
    return Address(shard, _KIND_NAMES[kind], packed & ((1 << _SLOT_BITS) - 1))
