"""What is said? Messages one by one, in bulk, or as a stream of lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, Request
from pydantic import ValidationError

from nearcast.errors import InvalidInput
from nearcast.service.access import Caller
from nearcast.service.commands import Body, Publish
from nearcast.service.context import IdempotencyKey, Publisher, Running, Service, problems
from nearcast.service.faults import faults_of
from nearcast.service.problem import Problem, fault
from nearcast.service.schema import MessageBody, Messages, Published, Streamed

router = APIRouter(prefix="/v1/messages", tags=["messages"])
STREAM = "/v1/messages/stream"

_CHUNK = 500  # lines of one command
_MOST_ERRORS = 20
_NDJSON = {"requestBody": {"content": {"application/x-ndjson": {"schema": {"type": "string"}}}, "required": True}}


@router.post("", response_model=Published, responses=problems(409))
async def publish(body: Messages, service: Running, caller: Publisher, key: IdempotencyKey = None) -> Any:
    """Publish a message, or a list of them, all or none; GeoJSON features and collections are taken too."""
    listed = body if isinstance(body, list) else [body]
    command = Publish([one.body() for one in listed])
    answer = await service.command_loop.carry_out(command, subscriber=caller.subscriber, key=key)
    service.feed.show(command.messages)
    return answer


@router.post("/stream", response_model=Streamed, responses=problems(), openapi_extra=_NDJSON)
async def stream(request: Request, service: Running, caller: Publisher) -> Any:
    """Publish messages that come as lines of JSON, as they come; bad lines are left out and reported."""
    counts, number = _Counts(), 0
    try:
        async for lines in _lines(request, service.most_bytes):
            said = list[tuple[int, Body]]()
            for line in lines:
                number += 1
                if line is None:
                    counts.reject(number, fault("line", f"must be {service.most_bytes} bytes at most", None))
                elif line.strip():
                    try:
                        said.append((number, MessageBody.model_validate_json(line).body()))
                    except ValidationError as error:
                        counts.reject(number, faults_of(error.errors())[0])
            for start in range(0, len(said), _CHUNK):
                await _publish(said[start : start + _CHUNK], service, caller, counts)
    except Problem as problem:
        raise Problem(problem.status, problem.detail, headers=problem.headers, **counts.body()) from None
    return counts.body()


@dataclass
class _Counts:
    messages: int = 0
    rejected: int = 0
    updates: int = 0
    lines: list[dict[str, Any]] = field(default_factory=list)

    def reject(self, line: int, why: dict[str, Any]) -> None:
        self.rejected += 1
        if len(self.lines) < _MOST_ERRORS:
            self.lines.append({"line": line, **why})

    def body(self) -> dict[str, Any]:
        lines = sorted(self.lines, key=lambda one: one["line"])
        return {"messages": self.messages, "rejected": self.rejected, "updates": self.updates, "errors": lines}


async def _publish(chunk: list[tuple[int, Body]], service: Service, caller: Caller, counts: _Counts) -> None:
    """Publish some lines as one command; if some are bad, each as its own."""
    parts = [chunk]
    while parts:
        answers = await asyncio.gather(
            *(
                service.command_loop.carry_out(
                    Publish([body for _, body in part]), subscriber=caller.subscriber, patient=True
                )
                for part in parts
            ),
            return_exceptions=True,
        )
        again = []
        for part, answer in zip(parts, answers, strict=True):
            if isinstance(answer, InvalidInput):
                if len(part) == 1:
                    counts.reject(part[0][0], fault(answer.field, answer.rule, answer.value))
                else:
                    again = [[one] for one in part]
            elif isinstance(answer, BaseException):
                raise answer
            else:
                service.feed.show([body for _, body in part])
                counts.messages += answer["messages"]
                counts.updates += answer["updates"] or 0
        parts = again


async def _lines(request: Request, most_bytes: int) -> AsyncIterator[list[bytes | None]]:
    """Yield the lines of a body, those together that have come together; None for one that is too long."""
    rest, is_long = b"", False
    async for part in request.stream():
        *whole, rest = (rest + part).split(b"\n")
        if whole:
            fit = [None if len(line) > most_bytes else line for line in whole]
            yield [None, *fit[1:]] if is_long else fit
            is_long = False
        if len(rest) > most_bytes:
            rest, is_long = b"", True
    if rest or is_long:
        yield [None if is_long else rest]
