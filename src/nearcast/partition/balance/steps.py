"""Steps of an adjustment: each turns a routing into the next one, and is data.

    Cut      a leaf of space becomes two, in the same shard; nothing moves
    Split    some terms of a cell become a cell of their own, in another shard (PS2Stream, section V-A, phase I)
    Move     cells go from one shard to another (phases I and II)
    Refit    a fresh routing takes new subscriptions, and old ones stay where they are (section V-B)
    Retire   the fresh routing takes them all

Numbers of cells and leaves are those of the routing that a step applies to. They are stable: a step adds new ones at
the end.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol, cast

import numpy as np

from nearcast.errors import FormatError, InvalidInput, require
from nearcast.partition.balance.cells import CellRouting, can_cut, can_split, has_cells
from nearcast.partition.base import Routing
from nearcast.partition.serialization import unpack
from nearcast.partition.transition import TransitionRouting


class RoutingStep(Protocol):
    """A step."""

    name: ClassVar[str]

    def apply(self, routing: Routing) -> Routing:
        """Return the next routing; raise `InvalidInput` if the step cannot have been made for this one."""

    def __str__(self) -> str:
        """Return the step as a line of text."""


@dataclass(frozen=True)
class Cut:
    """A leaf becomes two."""

    leaf: int
    axis: int
    """0 for x, 1 for y."""
    value: float

    name: ClassVar[str] = "cut"

    def apply(self, routing: Routing) -> CellRouting:
        """Return the next routing."""
        if has_cells(routing) and can_cut(routing):
            return routing.cut(self.leaf, axis=self.axis, value=self.value)
        raise InvalidInput("routing", "must divide space by a tree to be cut", type(routing).__name__)

    def __str__(self) -> str:
        return f"cut leaf {self.leaf} at {'xy'[self.axis]} = {self.value:g}"


@dataclass(frozen=True)
class Split:
    """Terms of a cell become a cell of their own."""

    cell: int
    terms: tuple[int, ...]
    source: int
    target: int

    name: ClassVar[str] = "split"

    def apply(self, routing: Routing) -> CellRouting:
        """Return the next routing."""
        if has_cells(routing) and can_split(routing):
            _check((self.cell,), self.source, self.target, routing)
            return routing.split(self.cell, np.array(self.terms, np.int64), shard=self.target)
        raise InvalidInput("routing", "must have cells by terms to be split", type(routing).__name__)

    def __str__(self) -> str:
        return f"split {len(self.terms):,} terms off cell {self.cell}, from shard {self.source} to {self.target}"


@dataclass(frozen=True)
class Move:
    """Cells go from one shard to another."""

    cells: tuple[int, ...]
    source: int
    target: int

    name: ClassVar[str] = "move"

    def apply(self, routing: Routing) -> CellRouting:
        """Return the next routing."""
        if not has_cells(routing):
            raise InvalidInput("routing", "must be a table of cells and their shards", type(routing).__name__)
        _check(self.cells, self.source, self.target, routing)
        shards = routing.cell_shards.copy()
        shards[np.array(self.cells, np.int64)] = self.target
        return routing.reassigned(shards)

    def __str__(self) -> str:
        cells = "1 cell" if len(self.cells) == 1 else f"{len(self.cells):,} cells"
        return f"move {cells} from shard {self.source} to {self.target}"


@dataclass(frozen=True)
class Refit:
    """A fresh routing takes new subscriptions."""

    routing: str
    """The fresh routing, packed, in base 64."""
    since: int = 0
    """The step at which the transition begins; 0 where each query of a job finds it."""

    name: ClassVar[str] = "refit"

    def apply(self, routing: Routing) -> Routing:
        """Return the transition to the fresh routing."""
        try:
            packed = base64.b64decode(self.routing, validate=True)
        except ValueError as error:
            raise FormatError(f"routing must be bytes in base 64: {error}") from None
        fresh = unpack(packed)
        rule = f"must be among {fresh.n_shards} shards, and no transition"
        ok = fresh.n_shards == routing.n_shards and not isinstance(routing, TransitionRouting)
        require(ok, "routing", rule, type(routing).__name__)
        return TransitionRouting(routing.fixed(), fresh, self.since)

    def __str__(self) -> str:
        return "place new subscriptions by a fresh routing"


@dataclass(frozen=True)
class Retire:
    """The new routing of a transition takes all subscriptions."""

    name: ClassVar[str] = "retire"

    def apply(self, routing: Routing) -> Routing:
        """Return the new routing."""
        if isinstance(routing, TransitionRouting):
            return routing.new
        raise InvalidInput("routing", "must be a transition to end", type(routing).__name__)

    def __str__(self) -> str:
        return "place all subscriptions by the new routing"


_STEPS: Mapping[str, Any] = {step.name: step for step in (Cut, Split, Move, Refit, Retire)}


def to_json(step: RoutingStep) -> dict[str, Any]:
    """Return a step as JSON values."""
    return {"step": step.name, **asdict(step)}  # type: ignore[call-overload]


def from_json(content: Any) -> RoutingStep:
    """Return the step of JSON values; raise `FormatError` if they are none.

    >>> from_json(to_json(Cut(leaf=3, axis=0, value=0.1))) == Cut(3, 0, 0.1)
    True
    """
    try:
        fields = dict(content)
        made = _STEPS[fields.pop("step")]
        step = made(**{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()})
        _check_types(step)
    except (KeyError, TypeError, ValueError) as error:
        rule = f"a step must be one of {', '.join(_STEPS)} with its fields"
        raise FormatError(f"{rule}; got {content!r} ({type(error).__name__}: {error})") from None
    return cast(RoutingStep, step)


def _check_types(step: Any) -> None:
    for name, kind in type(step).__annotations__.items():
        if kind.startswith("ClassVar"):
            continue
        value = getattr(step, name)
        values = value if kind.startswith("tuple") else (value,)
        if kind.startswith("tuple") != isinstance(value, tuple):
            raise TypeError(f"{name} must be {kind}")
        allowed: tuple[type, ...] = {"float": (int, float), "str": (str,)}.get(kind, (int,))
        if any(isinstance(one, bool) or not isinstance(one, allowed) for one in values):
            raise TypeError(f"{name} must be {kind}")


def _check(cells: tuple[int, ...], source: int, target: int, routing: CellRouting) -> None:
    shards = routing.cell_shards
    rule = f"must be between 0 and {routing.n_shards - 1}"
    for name, shard in (("source", source), ("target", target)):
        require(0 <= shard < routing.n_shards, name, rule, shard)
    outside = [cell for cell in cells if not 0 <= cell < len(shards)]
    require(not outside, "cells", f"must be between 0 and {len(shards) - 1}", outside[:3])
    elsewhere = [cell for cell in cells if shards[cell] != source]
    require(not elsewhere, "cells", f"must be in shard {source}", elsewhere[:3])
