"""Writes docs/api.md: every request of the service with its fields, from the description that it serves itself."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

PAGE = Path(__file__).parents[1] / "docs" / "api.md"

_HEAD = """# The API

Made by `python tools/api_page.py` from what a service says of itself at `/openapi.json`; the story, and how the
WebSocket at `/v1/updates` speaks, is in [service.md](service.md). Errors are `application/problem+json` of this form,
which names field, rule and value of what was wrong:
"""
_SIMPLE = {"string": "string", "integer": "integer", "number": "number", "boolean": "true or false", "null": "null"}
_EVERYWHERE = {"400", "401", "403", "413", "422", "429", "503"}


def description() -> dict[str, Any]:
    """Return what a service says of itself."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["serve", "--data", f"{folder}/data", "--bounds", "0,0,1,1", "--port", "0"]
        with subprocess.Popen(
            [sys.executable, "-m", "nearcast.cli", *words], stdout=subprocess.PIPE, text=True
        ) as serving:
            assert serving.stdout is not None
            address = serving.stdout.readline().rpartition(" ")[2].strip()
            try:
                with urlopen(address) as answer:
                    said: dict[str, Any] = json.load(answer)
            finally:
                serving.terminate()
    return said


def page(said: dict[str, Any]) -> str:
    """Return the page."""
    return "\n".join([_HEAD, *_Writer(said).lines()]) + "\n"


class _Writer:
    def __init__(self, said: dict[str, Any]) -> None:
        self._said, self._schemas = said, said["components"]["schemas"]
        self._told: list[str] = []

    def lines(self) -> Iterator[str]:
        yield from self._fields("ProblemBody")
        yield f"\nEvery request may be answered with {', '.join(sorted(_EVERYWHERE))}; others are named.\n"
        by_tag: dict[str, list[tuple[str, str, Any]]] = {}
        for path, methods in self._said["paths"].items():
            for method, told in methods.items():
                by_tag.setdefault(told["tags"][0], []).append((method.upper(), path, told))
        for tag, requests in by_tag.items():
            yield f"\n## {tag.capitalize()}\n"
            for method, path, told in requests:
                yield from self._request(method, path, told)
        yield "\n## Forms\n"
        done: set[str] = {"ProblemBody"}
        while waiting := [name for name in dict.fromkeys(self._told) if name not in done]:
            for name in waiting:
                done.add(name)
                yield f"### {name}\n"
                yield f"{self._schemas[name].get('description', '')}\n"
                yield from self._fields(name)
                yield ""

    def _request(self, method: str, path: str, told: Any) -> Iterator[str]:
        yield f"### `{method} {path}`\n\n{told.get('description', '')}\n"
        for given in told.get("parameters", ()):
            usual = given["schema"].get("default")
            needed = (
                "" if given.get("required") else ", optional" if usual in (None, "") else f", {usual} unless given"
            )
            said = f": {given['description']}" if given.get("description") else ""
            yield f"- {given['in']} `{given['name']}`, {self._kind(given['schema'])}{needed}{said}"
        if "requestBody" in told:
            for media, body in told["requestBody"]["content"].items():
                yield f"- body, `{media}`: {self._kind(body['schema'])}"
        for status, answer in told["responses"].items():
            forms = {media: self._kind(one.get("schema", {})) for media, one in answer.get("content", {}).items()}
            if status.startswith("2"):
                yield f"- {status}: " + (
                    ", or ".join(f"`{media}`: {form}" for media, form in forms.items()) or "nothing"
                )
        also = [status for status in told["responses"] if not status.startswith("2") and status not in _EVERYWHERE]
        if also:
            yield f"- also {', '.join(also)}"
        yield ""

    def _fields(self, name: str) -> Iterator[str]:
        form = self._schemas[name]
        if "properties" not in form:
            yield self._kind(form)
            return
        yield "| field | type | |\n|---|---|---|"
        for field, told in form["properties"].items():
            needed = [] if field in form.get("required", ()) else ["optional"]
            limits = [f"{word} {told[key]}" for key, word in (("minimum", "from"), ("maximum", "to")) if key in told]
            said = "; ".join(filter(None, [told.get("description", ""), " ".join(limits), *needed]))
            yield f"| `{field}` | {self._kind(told)} | {said} |".replace("|  |", "| |")

    def _any(self, choices: list[Any]) -> str:
        """Say what several schemas allow; that something may be left out is said elsewhere."""
        names = [one.get("$ref", "").rpartition("/")[2] for one in choices]
        if all(name.endswith("Subscription") for name in names):
            self._told += [name.removeprefix("Named") for name in names]
            return f"a [subscription](#forms){' with its `id`' if names[0].startswith('Named') else ''}"
        return " or ".join(dict.fromkeys(self._kind(one) for one in choices if one.get("type") != "null"))

    def _kind(self, told: Any) -> str:
        """Say in a few words what values a schema allows."""
        if "$ref" in told:
            name = told["$ref"].rpartition("/")[2]
            self._told.append(name)
            return f"[{name}](#{name.lower()})"
        if "const" in told:
            return f'`"{told["const"]}"`'
        if "enum" in told:
            return " or ".join(f'`"{value}"`' for value in told["enum"])
        for key in ("anyOf", "oneOf"):
            if key in told:
                return self._any(told[key])
        kind = told.get("type")
        if kind == "array":
            sizes = {told.get("minItems"), told.get("maxItems")}
            many = f"{sizes.pop()} of " if len(sizes) == 1 and None not in sizes else ""
            return f"list of {many}{self._kind(told.get('items', {}))}"
        if kind == "string" and told.get("format") == "date-time":
            return "time"
        return _SIMPLE.get(str(kind), "object" if kind == "object" else "any value")


if __name__ == "__main__":
    PAGE.write_text(page(description()))
    sys.stdout.write(f"wrote {PAGE.name}\n")
