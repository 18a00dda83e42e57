"""Columns of ids: strings in Arrow's memory, integers beside them, objects on demand.

names     a      null    "7"        a string, or
numbers   null   7       null       an integer: 7 and "7" are two ids
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.model.identity import Id, id_key
from nearcast.model.split_columns import split
from nearcast.text import HashKey, hash_column


class IdColumn(Sequence[Id]):
    """Ids, one per row.

    >>> ids = IdColumn.of(["a", 7])
    >>> list(ids), ids.strings.to_pylist(), ids.are_numbers.tolist()
    (['a', 7], ['a', '7'], [False, True])
    """

    def __init__(self, names: pa.Array, numbers: pa.Array | None = None) -> None:
        self._names = names
        self._numbers = numbers if names.null_count else None
        self._keys: dict[HashKey, npt.NDArray[np.uint64]] = {}

    @classmethod
    def of(cls, ids: Sequence[Id]) -> IdColumn:
        """Return id objects as a column."""
        try:
            return cls(pa.array(ids, pa.string()))
        except (pa.ArrowTypeError, pa.ArrowInvalid):  # some of them are integers
            columns = split("id", ids)
            return cls(columns["id"], columns["id_int"])

    @classmethod
    def joined(cls, parts: Sequence[IdColumn]) -> IdColumn:
        """Concatenate columns of ids.

        >>> list(IdColumn.joined([IdColumn.of(["a"]), IdColumn.of([7])]))
        ['a', 7]
        """
        if all(part._numbers is None for part in parts):
            return cls(pa.concat_arrays([part._names for part in parts]))
        names, numbers = (pa.concat_arrays([p.columns[name] for p in parts]) for name in ("id", "id_int"))
        return cls(names, numbers)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, row: int) -> Id:  # type: ignore[override]
        return self.objects[row]

    def __iter__(self) -> Iterator[Id]:
        return iter(self.objects)

    @cached_property
    def objects(self) -> list[Id]:
        """The ids as objects."""
        names: list[Id] = self._names.to_pylist()
        if self._numbers is None:
            return names
        return [n if n is not None else m for n, m in zip(names, self._numbers.to_pylist(), strict=True)]

    @property
    def columns(self) -> dict[str, pa.Array]:
        """The pair of columns in which ids are stored."""
        numbers = pa.nulls(len(self), pa.int64()) if self._numbers is None else self._numbers
        return {"id": self._names, "id_int": numbers}

    @cached_property
    def strings(self) -> pa.Array:
        """All ids as strings, as in tables of updates."""
        return self._names if self._numbers is None else pc.coalesce(self._names, self._numbers.cast(pa.string()))

    @cached_property
    def are_numbers(self) -> npt.NDArray[np.bool_]:
        """Which ids are integers."""
        if self._numbers is None:
            return np.zeros(len(self), dtype=bool)
        flags: npt.NDArray[np.bool_] = self._names.is_null().to_numpy(zero_copy_only=False)
        return flags

    def keys(self, hash_key: HashKey) -> npt.NDArray[np.uint64]:
        """Return a 64-bit key of each id, see `id_key`."""
        if hash_key not in self._keys:
            self._keys[hash_key] = self._hashed(hash_key)
        return self._keys[hash_key]

    def _hashed(self, hash_key: HashKey) -> npt.NDArray[np.uint64]:
        if self._numbers is not None:
            return np.array([id_key(id_, hash_key) for id_ in self.objects], dtype=np.uint64)
        return hash_column(self._names, hash_key, prefix="s").view(np.uint64)

    def positions_in(self, others: IdColumn) -> npt.NDArray[np.int64]:
        """Return where each id is among others, all different, or -1.

        >>> IdColumn.of(["a", 7, "b"]).positions_in(IdColumn.of([7, "a"])).tolist()
        [1, 0, -1]
        """
        if self._numbers is None and others._numbers is None:
            found = pc.index_in(self._names, value_set=others._names)
            return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), np.int64)
        row_of = {id_: row for row, id_ in enumerate(others)}
        return np.array([row_of.get(id_, -1) for id_ in self], np.int64)

    def take(self, rows: npt.NDArray[np.int64]) -> IdColumn:
        """Return the given rows, in that order."""
        at = pa.array(rows)
        return IdColumn(self._names.take(at), None if self._numbers is None else self._numbers.take(at))

    def slice(self, start: int, stop: int) -> IdColumn:
        """Return a range of rows without a copy."""
        n = stop - start
        return IdColumn(self._names.slice(start, n), None if self._numbers is None else self._numbers.slice(start, n))
