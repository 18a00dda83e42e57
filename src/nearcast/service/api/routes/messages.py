"""Routes of messages: one message, a list, or a stream of lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, Request
from pydantic import ValidationError

from nearcast.errors import InvalidInput, UnknownMessage
from nearcast.service.api.access import Caller
from nearcast.service.api.context import (
    IdempotencyKey,
    MessageId,
    Publisher,
    RunningService,
    Service,
    Subscriber,
    problems,
)
from nearcast.service.api.problems import Problem, field_error
from nearcast.service.api.schemas import (
    MessageBody,
    MessageOrMessages,
    PublishAnswer,
    ReplacingBody,
    RetractAnswer,
    StreamAnswer,
)
from nearcast.service.api.validation_errors import field_errors
from nearcast.service.commands import Publish, Replace, Retract
from nearcast.service.json_bodies import Body

router = APIRouter(prefix="/v1/messages", tags=["messages"])
STREAM = "/v1/messages/stream"

_CHUNK = 500  # lines per command
_MAX_ERRORS = 20
_NDJSON = {"requestBody": {"content": {"application/x-ndjson": {"schema": {"type": "string"}}}, "required": True}}


@router.post("", response_model=PublishAnswer, responses=problems(409, 507))
async def publish(
    body: MessageOrMessages, service: RunningService, caller: Publisher, key: IdempotencyKey = None
) -> Any:
    """Publish a message, or a list of messages, all or none. GeoJSON features and collections are accepted too."""
    messages = body if isinstance(body, list) else [body]
    command = Publish([message.to_json() for message in messages], caller.subscriber)
    answer = await service.command_loop.execute(command, subscriber=caller.subscriber, key=key)
    service.feed.publish(command.messages)
    return answer


@router.put("/{id}", response_model=PublishAnswer, responses=problems(409, 507))
async def replace(
    id: MessageId, body: ReplacingBody, service: RunningService, caller: Publisher, key: IdempotencyKey = None
) -> Any:
    """Publish a message in place of those that the caller has published under the id, if there are any.

    The old message leaves every result, and the new one enters where it belongs, in one step.
    """
    command = Replace([MessageBody(id=id, **body.model_dump()).to_json()], caller.subscriber)
    answer = await service.command_loop.execute(command, subscriber=caller.subscriber, key=key)
    service.feed.publish(command.messages)
    return answer


@router.delete("/{id}", response_model=RetractAnswer, responses=problems(404, 409, 507))
async def retract(id: MessageId, service: RunningService, caller: Publisher, key: IdempotencyKey = None) -> Any:
    """Withdraw the messages that the caller has published under an id: they leave every result."""
    command = Retract(caller.subscriber, [id])
    return await service.command_loop.execute(command, subscriber=caller.subscriber, key=key)


@router.get("/{id}", response_model=MessageBody, response_model_exclude_none=True, responses=problems(404))
async def get(id: MessageId, service: RunningService, caller: Subscriber) -> Any:
    """Return the newest message under an id that is retained and not withdrawn."""
    found = await asyncio.to_thread(service.command_loop.reader.message, id)
    if found is None:
        raise UnknownMessage(id)
    return found


@router.post("/stream", response_model=StreamAnswer, responses=problems(507), openapi_extra=_NDJSON)
async def stream(request: Request, service: RunningService, caller: Publisher) -> Any:
    """Publish messages sent as lines of JSON, as they arrive. Invalid lines are skipped and reported."""
    counts, number = _StreamCounts(), 0
    try:
        async for lines in _lines(request, service.max_body_bytes):
            messages = list[tuple[int, Body]]()
            for line in lines:
                number += 1
                if line is None:
                    rule = f"must have at most {service.max_body_bytes} bytes"
                    counts.reject(number, field_error("line", rule, None))
                elif line.strip():
                    try:
                        messages.append((number, MessageBody.model_validate_json(line).to_json()))
                    except ValidationError as error:
                        counts.reject(number, field_errors(error.errors())[0])
            for start in range(0, len(messages), _CHUNK):
                await _publish_lines(messages[start : start + _CHUNK], service, caller, counts)
    except Problem as problem:
        raise Problem(problem.status, problem.detail, headers=problem.headers, **counts.body()) from None
    return counts.body()


@dataclass
class _StreamCounts:
    messages: int = 0
    late: int = 0
    rejected: int = 0
    updates: int = 0
    errors: list[dict[str, Any]] = field(default_factory=list)

    def reject(self, line: int, error: dict[str, Any]) -> None:
        self.rejected += 1
        if len(self.errors) < _MAX_ERRORS:
            self.errors.append({"line": line, **error})

    def body(self) -> dict[str, Any]:
        errors = sorted(self.errors, key=lambda error: error["line"])
        counts = {name: getattr(self, name) for name in ("messages", "late", "rejected", "updates")}
        return {**counts, "errors": errors}


async def _publish_lines(
    chunk: list[tuple[int, Body]], service: Service, caller: Caller, counts: _StreamCounts
) -> None:
    """Publish lines as one command; if one is invalid, each as a command of its own."""
    parts = [chunk]
    while parts:
        answers = await asyncio.gather(
            *(
                service.command_loop.execute(
                    Publish([body for _, body in part], caller.subscriber),
                    subscriber=caller.subscriber,
                    wait_for_room=True,
                )
                for part in parts
            ),
            return_exceptions=True,
        )
        retried = []
        for part, answer in zip(parts, answers, strict=True):
            if isinstance(answer, InvalidInput):
                if len(part) == 1:
                    counts.reject(part[0][0], field_error(answer.field, answer.rule, answer.value))
                else:
                    retried = [[line] for line in part]
            elif isinstance(answer, BaseException):
                raise answer
            else:
                service.feed.publish([body for _, body in part])
                counts.messages += answer["messages"]
                counts.late += answer["late"] or 0
                counts.updates += answer["updates"] or 0
        parts = retried


async def _lines(request: Request, max_bytes: int) -> AsyncIterator[list[bytes | None]]:
    """Yield the lines of a body, those together that arrived together; None stands for a line that is too long."""
    rest, is_too_long = b"", False
    async for part in request.stream():
        *complete, rest = (rest + part).split(b"\n")
        if complete:
            lines = [None if len(line) > max_bytes else line for line in complete]
            yield [None, *lines[1:]] if is_too_long else lines
            is_too_long = False
        if len(rest) > max_bytes:
            rest, is_too_long = b"", True
    if rest or is_too_long:
        yield [None if is_too_long else rest]
