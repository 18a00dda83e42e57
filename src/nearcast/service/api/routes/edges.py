"""Routes of the social graph: edges are added and removed, and the results of kind `social` follow.

The graph belongs to no subscriber, and a change may affect the results of all of them, so it takes the scope `admin`.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from nearcast.service.api.context import Admin, IdempotencyKey, RunningService, problems
from nearcast.service.api.schemas import EdgeOrEdges, EdgesAnswer
from nearcast.service.commands import AddEdges, RemoveEdges

router = APIRouter(prefix="/v1/edges", tags=["edges"])


@router.post("", response_model=EdgesAnswer, responses=problems(409, 507))
async def add(body: EdgeOrEdges, service: RunningService, caller: Admin, key: IdempotencyKey = None) -> Any:
    """Add an edge, or a list of edges, all or none. New users and places become known; edges that exist stay."""
    edges = body if isinstance(body, list) else [body]
    command = AddEdges([[edge.user, edge.place] for edge in edges])
    return await service.command_loop.execute(command, subscriber=caller.subscriber, key=key)


@router.delete("", response_model=EdgesAnswer, responses=problems(409, 507))
async def remove(
    service: RunningService,
    caller: Admin,
    user: Annotated[str, Query(description="a user of the social graph, who stays known without edges")],
    place: Annotated[str, Query(description="a place of the social graph")],
    key: IdempotencyKey = None,
) -> Any:
    """Remove an edge, which must exist."""
    command = RemoveEdges([[user, place]])
    return await service.command_loop.execute(command, subscriber=caller.subscriber, key=key)
