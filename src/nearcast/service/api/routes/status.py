"""Routes of health checks and metrics."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse

from nearcast.engine.stats import Stats
from nearcast.service.api.context import Admin, RunningService, problems
from nearcast.service.api.problems import Problem, not_ready

router = APIRouter(tags=["status"])


@router.get("/health/live", responses=problems())
async def live(service: RunningService) -> dict[str, Any]:
    """Report that the service runs; after an error that it cannot recover from, it has to be restarted."""
    if service.command_loop.state == "failed":
        raise not_ready(service.command_loop.state_detail)
    return {"live": True}


@router.get("/health/ready", responses=problems())
async def ready(service: RunningService) -> dict[str, Any]:
    """Report whether the service is ready for requests; it only reads while the disk is full."""
    service.command_loop.check_ready()
    return {"ready": True, "writable": not service.command_loop.is_disk_full}


@router.get("/metrics", response_class=PlainTextResponse, responses=problems())
async def metrics(service: RunningService, caller: Admin) -> PlainTextResponse:
    """Return the metrics of the service in the text format of Prometheus."""
    stats: Stats | None
    try:
        stats = await service.command_loop.read(lambda view: view.stats())
    except Problem:  # busy or recovering, when the metrics of the service itself matter most
        stats = None
    return PlainTextResponse(service.metrics.render(stats), media_type="text/plain; version=0.0.4; charset=utf-8")
