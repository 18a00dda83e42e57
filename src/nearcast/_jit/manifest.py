"""The manifest of an arena's folder.

    arena.json   {"format": "nearcast arena", "version": 1,
                  "arrays": {"xs": {"dtype": "<f8", "shape": [16], "fill": "0000000000000000",
                                    "file": "xs.5f0c91aa.array"}}}

`fill` is the bytes of one item in hex, exact for every dtype. A file may be longer than its shape (after an
interrupted growth), never shorter. The manifest is written under another name and renamed, so it is complete or
absent.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from nearcast.errors import FormatError

__all__ = ["MANIFEST", "ArraySpec", "read_manifest", "write_manifest"]

FORMAT = "nearcast arena"
VERSION = 1
MANIFEST = "arena.json"


class ArraySpec(NamedTuple):
    """Everything about an array besides its contents."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fill: NDArray[Any]
    """One item, as a zero-dimensional array."""
    file: str
    """Name in the folder, or empty on the heap."""

    @property
    def nbytes(self) -> int:
        """Bytes of the contents."""
        return self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))

    def as_json(self) -> dict[str, Any]:
        """Return the entry of the manifest."""
        return {
            "dtype": np.lib.format.dtype_to_descr(self.dtype),
            "shape": self.shape,
            "fill": self.fill.tobytes().hex(),
            "file": self.file,
        }

    @classmethod
    def from_json(cls, spelled: Mapping[str, Any]) -> Self:
        """Return the spec of a manifest entry.

        >>> spec = ArraySpec(np.dtype("<i4"), (3,), np.array(-1, "<i4"), "slots.array")
        >>> ArraySpec.from_json(spec.as_json()) == spec
        True
        """
        dtype = np.lib.format.descr_to_dtype(_descr(spelled["dtype"]))
        fill = np.frombuffer(bytes.fromhex(spelled["fill"]), dtype, count=1).reshape(())
        return cls(dtype, tuple(int(size) for size in spelled["shape"]), fill, str(spelled["file"]))


def _descr(spelled: Any) -> Any:
    """Restore the tuples of a dtype that JSON turned into lists."""
    if isinstance(spelled, str):
        return spelled
    return [(name, _descr(inner), *map(tuple, shape)) for name, inner, *shape in spelled]


def write_manifest(folder: Path, specs: Mapping[str, ArraySpec], *, durable: bool = False) -> None:
    """Replace the manifest of a folder in one step; `durable` waits for the disk."""
    beside = folder / f"{MANIFEST}.{secrets.token_hex(4)}"
    arrays = {name: spec.as_json() for name, spec in specs.items()}
    with beside.open("w", encoding="utf-8") as file:
        json.dump({"format": FORMAT, "version": VERSION, "arrays": arrays}, file, indent=1)
        file.flush()
        if durable:
            os.fsync(file.fileno())
    beside.replace(folder / MANIFEST)
    if durable:  # the rename itself is an entry of the folder
        entries = os.open(folder, os.O_RDONLY)
        os.fsync(entries)
        os.close(entries)


def read_manifest(folder: Path) -> dict[str, ArraySpec]:
    """Return the arrays of a folder, by name; all files must exist and be long enough."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FormatError(f"{folder} must hold an arena; found no {MANIFEST}") from None
    except ValueError as error:
        raise FormatError(f"{path} must be JSON: {error}") from None
    manifest = manifest if isinstance(manifest, dict) else {}
    found = manifest.get("format"), manifest.get("version")
    if found != (FORMAT, VERSION):
        raise FormatError(f"{path} must be {FORMAT!r} version {VERSION}; found {found[0]!r} version {found[1]!r}")
    arrays = manifest.get("arrays")
    if not isinstance(arrays, dict):
        raise FormatError(f"{path} must list its arrays by name; found {arrays!r}")
    specs = {}
    for name, spelled in arrays.items():
        try:
            specs[name] = ArraySpec.from_json(spelled)
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"{path} must describe array {name!r}; found {spelled!r}: {error!r}") from None
        _check_file(folder, name, specs[name])
    return specs


def _check_file(folder: Path, name: str, spec: ArraySpec) -> None:
    if Path(spec.file).name != spec.file:
        raise FormatError(f"array {name!r} must be a file of {folder} itself; found {spec.file!r}")
    try:
        held = (folder / spec.file).stat().st_size
    except FileNotFoundError:
        raise FormatError(f"array {name!r} must be in {folder / spec.file}; found no such file") from None
    if held < spec.nbytes:
        raise FormatError(f"{folder / spec.file} must hold {spec.nbytes} bytes of array {name!r}; found {held}")
