"""Is it alive, is it ready, how is it doing?"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse

from nearcast.engine.stats import Stats
from nearcast.service.context import Admin, Running, problems
from nearcast.service.problem import Problem

router = APIRouter(tags=["status"])


@router.get("/health/live")
async def live() -> dict[str, Any]:
    """Tell that the process is there."""
    return {"live": True}


@router.get("/health/ready", responses=problems())
async def ready(service: Running) -> dict[str, Any]:
    """Tell whether requests are served."""
    service.command_loop.check_ready()
    return {"ready": True}


@router.get("/metrics", response_class=PlainTextResponse, responses=problems())
async def metrics(service: Running, caller: Admin) -> PlainTextResponse:
    """Tell figures for Prometheus."""
    stats: Stats | None
    try:
        stats = await service.command_loop.ask(lambda engine: engine.stats())
    except Problem:  # busy or recovering: the figures of the service itself are wanted most then
        stats = None
    return PlainTextResponse(service.meters.text(stats), media_type="text/plain; version=0.0.4; charset=utf-8")
