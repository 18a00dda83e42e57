"""Validation errors of pydantic as field, rule and value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nearcast.errors import InvalidInput
from nearcast.model import kinds
from nearcast.service.api.problems import field_error
from nearcast.service.api.schemas import TAGS

_PARTS = frozenset({"body", "query", "path", "header"})


def field_errors(errors: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one violated rule per error of pydantic.

    >>> field_errors([{"loc": ("body", "topk", "k"), "msg": "Input should be a valid integer", "input": "x"}])
    [{'field': 'k', 'rule': 'must be a valid integer', 'value': 'x'}]
    """
    return [_not_json(error) if error.get("type") == "json_invalid" else _violated(error) for error in errors]


def _violated(error: Mapping[str, Any]) -> dict[str, Any]:
    raised = error.get("ctx", {}).get("error")
    if isinstance(raised, InvalidInput):  # its field is that of the location, or a path within it
        field = _field((*error["loc"][:-1], raised.field)) if error["loc"] else raised.field
        return field_error(field, raised.rule, raised.value)
    return field_error(_field(error["loc"]), _rule(error["msg"]), error.get("input"))


def _not_json(error: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is wrong with text that is not JSON; requests and lines of streams report it differently."""
    reason, at = error.get("ctx", {}).get("error", ""), error["loc"][-1] if error["loc"] else None
    where = f" at character {at}" if isinstance(at, int) else ""
    rule = f"must be JSON ({reason}{where})" if reason else "must be JSON"
    value = error.get("input")
    return field_error("body", rule, value if isinstance(value, str) else None)


def _field(location: tuple[str | int, ...]) -> str:
    inner = location[1:] if location and location[0] in _PARTS else location
    tags = TAGS | {kind.kind for kind in kinds()}
    names = [str(part) for part in inner if part not in tags]
    return ".".join(names) or (str(location[0]) if location else "body")


def _rule(message: str) -> str:
    return (
        message.removeprefix("Value error, ")
        .replace("Input should be", "must be")
        .replace("Field required", "must be given")
    )
