"""What was wrong with the form of a request? Errors of pydantic, as field, rule and value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nearcast.service.problem import fault
from nearcast.service.schema import TAGS

_PLACES = frozenset({"body", "query", "path", "header"})


def faults_of(errors: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one broken rule an error.

    >>> faults_of([{"loc": ("body", "topk", "k"), "msg": "Input should be a valid integer", "input": "x"}])
    [{'field': 'k', 'rule': 'must be a valid integer', 'value': 'x'}]
    """
    return [fault(_field(error["loc"]), _rule(error["msg"]), error.get("input")) for error in errors]


def _field(place: tuple[str | int, ...]) -> str:
    inner = place[1:] if place and place[0] in _PLACES else place
    named = [str(part) for part in inner if part not in TAGS]
    return ".".join(named) or (str(place[0]) if place else "body")


def _rule(said: str) -> str:
    return (
        said.removeprefix("Value error, ")
        .replace("Input should be", "must be")
        .replace("Field required", "must be given")
    )
